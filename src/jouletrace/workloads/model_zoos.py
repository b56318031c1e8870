"""Models of torchvision and timm by their names there, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads.base import Built, WorkloadOptions
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.inputs import image_inputs
from jouletrace.workloads.iteration import Inputs
from jouletrace.workloads.kernels import over_defaults
from jouletrace.workloads.nearest import nearest
from jouletrace.workloads.options import check_options
from jouletrace.workloads.random_weights import placed_random
from jouletrace.workloads.transformers_models import build_model

if TYPE_CHECKING:
    import torch

_IMAGE = (3, 224, 224)
_CLASSES = 1000


class ZooModel:
    """A classifier of images that a package makes by its name.

    Attributes:
        name: ``torchvision:NAME`` or ``timm:NAME``, as given.
    """

    def __init__(self, spec: str) -> None:
        self.name = spec
        self._package, _, self._model = spec.partition(":")
        if not self._model:
            raise BadInputError(f"'{spec}': write {self._package}:NAME, such as {self._package}:resnet50")

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_options(self.name, options)
        require_device(device)
        over_defaults(self.name, options, {})
        if options.seq_len is not None:
            raise BadInputError(f"--seq-len {options.seq_len}: {self.name} takes images, which have no such length")
        package = self._installed()
        known, create, shape_of = _ZOOS[self._package]
        if self._model.partition(".")[0] not in (names := known(package)):  # timm names weights behind a point
            raise BadInputError(
                f"{self.name}: {self._package} {package.__version__} has no such classifier of images"
                f"{nearest(self._model, names)}"
            )

        def make(on: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
            return placed_random(lambda: create(package, self._model), on, dtype, options.seed)

        def draw(model: Any, on: torch.device, dtype: torch.dtype) -> tuple[list[Inputs], dict[str, Any]]:
            return image_inputs(shape_of(package, self._model, model), on, dtype, options)

        facts = {"name": self.name, "config": {}, "source": f"{self._package} {package.__version__}"}
        return build_model(make, device, options, facts=facts, draw=draw, classes=_classes)

    def _installed(self) -> Any:
        try:
            return importlib.import_module(self._package)
        except ImportError as error:
            raise NotPossibleError(
                f"{self.name}: {self._package} can't be imported ({error}): pip install {self._package}"
            ) from error


def _classes(model: Any) -> int:
    """As timm's models state it; of one without a head, whose features are its outputs, their number."""
    return int(getattr(model, "num_classes", _CLASSES) or model.num_features)


def _torchvision_names(package: Any) -> list[str]:
    return list(package.models.list_models(module=package.models))


def _torchvision_shape(package: Any, name: str, model: Any) -> tuple[int, int, int]:
    """As the model was made for, else as its published weights were evaluated, where there are some."""
    if size := getattr(model, "image_size", None):
        return 3, int(size), int(size)
    try:
        size = package.models.get_model_weights(name).DEFAULT.transforms.keywords["crop_size"]
    except (AttributeError, KeyError, ValueError):
        return _IMAGE
    return 3, int(size), int(size)


def _timm_shape(_: Any, __: str, model: Any) -> tuple[int, int, int]:
    channels, height, width = (getattr(model, "default_cfg", None) or {}).get("input_size") or _IMAGE
    return int(channels), int(height), int(width)


Zoo = tuple[Callable[[Any], list[str]], Callable[[Any, str], Any], Callable[[Any, str, Any], tuple[int, int, int]]]
"""Of a package: the names that it has, its model of a name, and the shape of an image for it."""

_ZOOS: dict[str, Zoo] = {
    "torchvision": (
        _torchvision_names,
        lambda package, name: package.models.get_model(name, weights=None),
        _torchvision_shape,
    ),
    "timm": (
        lambda package: list(package.list_models()),
        lambda package, name: package.create_model(name, pretrained=False),
        _timm_shape,
    ),
}

PREFIXES = tuple(f"{package}:" for package in _ZOOS)
