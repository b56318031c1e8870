"""Models of torchvision and timm by name, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError, nearest
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Inputs
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.inputs import image_inputs
from jouletrace.workloads.options import WorkloadOptions, check_consistent, over_defaults
from jouletrace.workloads.placement import placed_random
from jouletrace.workloads.transformers_models import build_model

if TYPE_CHECKING:
    import torch

Zoo = tuple[list[str], Callable[[str], Any], Callable[[str, Any], tuple[int, int, int]]]
"""Functions of a package: its names, the model of a name, and the shape of that model's images."""

_IMAGE = (3, 224, 224)
_CLASSES = 1000


class ZooModel:
    """An image classifier that a package creates by name.

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
        check_consistent(self.name, options)
        require_device(device)
        over_defaults(self.name, options, {})
        if options.seq_len is not None:
            raise BadInputError(f"--seq-len {options.seq_len}: {self.name} takes images, which have no such length")
        try:
            package = importlib.import_module(self._package)
        except ImportError as error:
            raise NotPossibleError(
                f"{self.name}: {self._package} can't be imported ({error}): pip install {self._package}"
            ) from error
        names, create, shape_of = _ZOOS[self._package](package)
        if self._model.partition(".")[0] not in names:  # in timm the name of the weights follows a point
            raise BadInputError(
                f"{self.name}: {self._package} {package.__version__} has no such image classifier"
                f"{nearest(self._model, names)}"
            )

        def make(on: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
            return placed_random(lambda: create(self._model), on, dtype, options.seed)

        def draw(model: Any, on: torch.device, dtype: torch.dtype) -> tuple[list[Inputs], WorkloadFacts]:
            return image_inputs(shape_of(self._model, model), on, dtype, options)

        facts: WorkloadFacts = {"name": self.name, "config": {}, "source": f"{self._package} {package.__version__}"}
        return build_model(make, device, options, facts=facts, draw=draw, classes=_classes)


def _classes(model: Any) -> int:
    """Number of classes that a timm model states; for a model without a head, the number of its features."""
    return int(getattr(model, "num_classes", _CLASSES) or model.num_features)


def _torchvision(package: Any) -> Zoo:
    models = package.models

    def shape(name: str, model: Any) -> tuple[int, int, int]:
        """The shape for which the model was designed, else that in the evaluation of its published weights, if any."""
        size = getattr(model, "image_size", None)
        with suppress(AttributeError, KeyError, ValueError):
            size = size or models.get_model_weights(name).DEFAULT.transforms.keywords["crop_size"]
        return (3, int(size), int(size)) if size else _IMAGE

    return models.list_models(module=models), partial(models.get_model, weights=None), shape


def _timm(package: Any) -> Zoo:
    def shape(_: str, model: Any) -> tuple[int, int, int]:
        channels, height, width = (getattr(model, "default_cfg", None) or {}).get("input_size") or _IMAGE
        return int(channels), int(height), int(width)

    return package.list_models(), partial(package.create_model, pretrained=False), shape


_ZOOS: dict[str, Callable[[Any], Zoo]] = {"torchvision": _torchvision, "timm": _timm}
