"""Resolves the user's name of a workload, as after ``jouletrace profile``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from jouletrace.errors import BadInputError, nearest
from jouletrace.wing import registered
from jouletrace.workloads.base import Workload
from jouletrace.workloads.kernels import GEMMS
from jouletrace.workloads.model_zoos import ZooModel
from jouletrace.workloads.models import ALIASES, MODELS
from jouletrace.workloads.saved_models import HubModel, LocalFolder, ModelFile
from jouletrace.workloads.transformers_models import BuiltInModel
from jouletrace.workloads.user import UserWorkload, split

_OTHERS = (
    "hf:ORG/NAME, torchvision:NAME, timm:NAME, file.py:callable, package.module:callable, "
    "a local transformers folder, a .onnx file"
)

_OWN: dict[str, tuple[str, ...]] = {
    "dlrm": ("dlrm:Dlrm",),
    **{name: ("kernels:Gemm", name) for name in GEMMS},
    "memcpy": ("kernels:Memcpy",),
}
"""Workloads with code in this package, by name: module and class, and the arguments of the class."""

_PREFIXES: dict[str, Callable[[str], Workload]] = {
    "hf:": HubModel,
    "torchvision:": ZooModel,
    "timm:": ZooModel,
}
"""Sources of models, by the prefix of their names."""


def names() -> list[str]:
    """Built-in workloads, for help texts: canonical names of models in the order of their table, then the others."""
    return [*MODELS, *_OWN]


def resolve(spec: str | Workload) -> Workload:
    """The workload that ``spec`` names, or is. Imports neither torch nor the user's code.

    Write ``./NAME`` for a folder with the name of a built-in model.

    Raises:
        BadInputError: If the name is unknown; the message offers the nearest names.
    """
    if not isinstance(spec, str):
        return spec
    if not spec.strip():
        raise BadInputError(f"no workload named (built in: {', '.join(names())}; or {_OTHERS})")
    canonical = ALIASES.get(spec.lower(), spec.lower())
    if canonical in MODELS:
        return BuiltInModel(canonical, MODELS[canonical])
    if canonical in _OWN:
        module_name, *taken = _OWN[canonical]
        module, _, kind = module_name.partition(":")
        workload: Workload = getattr(import_module(f"jouletrace.workloads.{module}"), kind)(*taken)
        return workload
    for prefix, of_prefix in _PREFIXES.items():
        if spec.startswith(prefix):
            return of_prefix(spec)
    path = Path(spec)
    is_folder = path.is_dir()
    if is_folder or path.suffix.lower() in registered("model_files"):
        return LocalFolder(spec) if is_folder else ModelFile(spec)
    if path.suffix == ".py":
        raise BadInputError(f"{spec}: which callable in it? Write {spec}:NAME")
    _refuse_near_prefix(spec)
    if split(spec) is not None:
        return UserWorkload(spec)
    raise BadInputError(
        f"unknown workload '{spec}'{nearest(spec, [*names(), *ALIASES])} (built in: {', '.join(names())}; or {_OTHERS})"
    )


def _refuse_near_prefix(spec: str) -> None:
    """Refuse a misspelt prefix, unless a module of that name exists."""
    module, colon, rest = spec.partition(":")
    if not colon or not module.isidentifier() or Path(module).exists() or Path(f"{module}.py").exists():
        return
    meant = [f"{prefix}{rest}" for prefix in _PREFIXES if nearest(module, [prefix.removesuffix(":")])]
    if meant and importlib.util.find_spec(module) is None:
        raise BadInputError(f"unknown workload '{spec}'{nearest(spec, meant)}")
