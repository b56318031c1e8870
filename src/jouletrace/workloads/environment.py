"""The meaning of each ``--dtype``, and the libraries and devices that a workload needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError, nearest
from jouletrace.run.forms import WorkloadFacts

if TYPE_CHECKING:
    import torch

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp64", "amp")
"""Every ``--dtype``."""

_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}


@dataclass(frozen=True)
class Precision:
    """How numbers are stored and multiplied.

    Attributes:
        name: The ``--dtype``; None keeps everything as the user's code made it.
        weights: Type of weights and inputs; None leaves them unchanged.
        autocast: Type in which autocast computes; None without autocast.
        device_type: "cuda", "cpu" or "meta".
        tf32: Whether float32 products may be computed in TF32; None leaves torch's switches unchanged.
    """

    name: str | None
    weights: torch.dtype | None
    autocast: torch.dtype | None
    device_type: str
    tf32: bool | None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """The context of one iteration: inference mode, autocast, the TF32 switches; all restored afterwards."""
        import torch

        with tf32_switches(self.tf32), torch.inference_mode(), self._autocast():
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """The context of a training step's forward: autocast and the TF32 switches, with gradients."""
        import torch

        with tf32_switches(self.tf32), torch.enable_grad(), self._autocast():
            yield

    def _autocast(self) -> Any:
        import torch

        return nullcontext() if self.autocast is None else torch.autocast(self.device_type, dtype=self.autocast)


def precision(name: str | None, device: str) -> Precision:
    """The meaning of ``name`` on ``device``.

    "fp32" is IEEE single precision throughout: TF32 is off for matrix products *and* for cuDNN's
    convolutions, where torch leaves it on by default. "amp" keeps fp32 weights and autocasts to
    fp16 on CUDA and to bf16 elsewhere, as torch does by default.

    Raises:
        BadInputError: If the dtype is unknown.
    """
    import torch

    kind = torch.device(device).type
    if name is None:
        return Precision(None, None, None, kind, None)
    if name not in DTYPES:
        raise BadInputError(f"unknown dtype '{name}': {', '.join(DTYPES)}{nearest(name, DTYPES)}")
    autocast = None
    if name == "amp":
        autocast = torch.float16 if kind == "cuda" else torch.bfloat16
    weights = getattr(torch, _TYPES.get(name, "float32"))  # "tf32" and "amp" store single precision
    return Precision(name, weights, autocast, kind, name == "tf32")


@contextmanager
def tf32_switches(on: bool | None) -> Iterator[None]:
    """Set both TF32 switches of torch to ``on`` and restore them afterwards; None leaves them unchanged.

    The older ``allow_tf32`` switches are used because torch updates its newer ``fp32_precision``
    with them, while code that reads the older ones fails once the newer ones are set.
    """
    if on is None:
        yield
        return
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = on
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def short_name(dtype: object) -> str:
    """The ``--dtype`` of a type ("fp16" for ``torch.float16``); torch's own name for other types."""
    name = str(dtype).removeprefix("torch.")
    return {long: short for short, long in _TYPES.items()}.get(name, name)


_INSTALL = "pip install 'jouletrace[torch]'"


def require_transformers() -> Any:
    """transformers; errors are those of ``require_torch``."""
    return _required("transformers")


def require_torch() -> None:
    """Import torch, which simulated GPUs need too: what a workload calls is counted by it.

    Raises:
        NotPossibleError: If it isn't installed or can't be imported.
    """
    _required("torch")


def _required(library: str) -> Any:
    try:
        module = import_module(library)
    except (Exception, SystemExit) as error:  # a broken package raises anything
        why = str(error) or type(error).__name__
        raise NotPossibleError(f"{library} can't be imported ({why}): {_INSTALL}") from error
    if not hasattr(module, "__version__"):
        raise NotPossibleError(f"{library} is another module here, {getattr(module, '__file__', None)}: rename that")
    return module


def require_device(device: str) -> torch.device:
    """The torch device named ``device`` ("cuda:0", "cpu", "meta"), after a check that it exists.

    Raises:
        BadInputError: If torch has no such kind of device.
        NotPossibleError: If torch isn't installed or can't use the device here.
    """
    require_torch()
    import torch

    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise BadInputError(f"'{device}' is no torch device: write cuda:N or cpu") from error
    return _cuda(parsed) if parsed.type == "cuda" else parsed


def _cuda(device: torch.device) -> torch.device:
    """The same with its index, if torch can use it."""
    import torch

    if not torch.cuda.is_available():
        why = "is built without CUDA"
        if torch.version.cuda is not None:
            why = f"is built for CUDA {torch.version.cuda} and has no GPU that it can use"
        raise NotPossibleError(f"{device}: torch {torch.__version__} {why}")
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise NotPossibleError(f"{device}: torch sees {count} GPU{'s' if count != 1 else ''} here")
    return torch.device("cuda", index)


def common_facts(model: torch.nn.Module | None, how: Precision, device: torch.device) -> WorkloadFacts:
    """Device, dtype, parameters, attention, threads, the present switches of torch, versions."""
    import torch

    facts: WorkloadFacts = {"device": str(device), "dtype": how.name}
    if how.autocast is not None:
        facts["autocast"] = str(how.autocast).removeprefix("torch.")
    if model is not None:
        facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        facts["attention"] = _attention(model)
    with tf32_switches(how.tf32):
        facts["torch_flags"] = torch_flags()
    return {**facts, "threads": torch.get_num_threads(), "versions": versions()}


def versions() -> dict[str, str]:
    """Versions of torch, of what it was built with, and of transformers where it is loaded."""
    import torch

    texts = {"torch": str(torch.__version__)}
    if torch.version.cuda is not None:
        texts["cuda"] = torch.version.cuda
        cudnn: Any = torch.backends.cudnn  # partly untyped
        if cudnn.version() is not None:
            texts["cudnn"] = str(cudnn.version())
    if "transformers" in sys.modules:
        texts["transformers"] = sys.modules["transformers"].__version__
    return texts


def torch_flags() -> dict[str, Any]:
    """The present global switches of torch that decide which kernels run."""
    import torch

    cuda: Any = torch.backends.cuda  # partly untyped
    cudnn: Any = torch.backends.cudnn
    return {
        "matmul_tf32": cuda.matmul.allow_tf32,
        "cudnn_tf32": cudnn.allow_tf32,
        "cudnn_benchmark": cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fp16_reduced_precision": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "sdp": [name for name in ("flash", "mem_efficient", "cudnn", "math") if getattr(cuda, f"{name}_sdp_enabled")()],
    }


def _attention(model: torch.nn.Module) -> str | None:
    """The attention implementation of transformers ("sdpa", "eager"); None without attention."""
    if not any("attention" in type(module).__name__.lower() for module in model.modules()):
        return None
    return getattr(getattr(model, "config", None), "_attn_implementation", None)
