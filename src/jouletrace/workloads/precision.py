"""The meaning of each ``--dtype``: the type of the weights, autocast, and torch's TF32 switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.nearest import nearest

if TYPE_CHECKING:
    import torch

_WEIGHTS = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "amp": "float32",
}
DTYPES = tuple(_WEIGHTS)
"""Every ``--dtype``."""

_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


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
    if name not in _WEIGHTS:
        raise BadInputError(f"unknown dtype '{name}': {', '.join(DTYPES)}{nearest(name, DTYPES)}")
    autocast = None
    if name == "amp":
        autocast = torch.float16 if kind == "cuda" else torch.bfloat16
    return Precision(name, getattr(torch, _WEIGHTS[name]), autocast, kind, name == "tf32")


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


def short_name(dtype: torch.dtype) -> str:
    """The ``--dtype`` of a type ("fp16" for ``torch.float16``); torch's own name for other types."""
    name = str(dtype).removeprefix("torch.")
    return _SHORT.get(name, name)
