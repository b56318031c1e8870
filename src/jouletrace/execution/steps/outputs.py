"""Checks against figures of broken data: NaN and constants draw less power than real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jouletrace.execution.steps.trial import user_code
from jouletrace.run import RunWarning
from jouletrace.workloads.base import Built
from jouletrace.workloads.trees import named_tensors

if TYPE_CHECKING:
    import torch


def check_outputs(built: Built) -> list[RunWarning]:
    """Run each input set once and check inputs and outputs. Waits for the device.

    Returns:
        Warnings ``constant_inputs`` (a tensor with more than one element, all of them equal),
        ``nan_outputs`` and ``inf_outputs``, each naming the tensor. Outputs without tensors
        can't be checked and give none.

    Raises:
        BadInputError: If the workload raises.
    """
    warnings = []
    for index, inputs in enumerate(built.inputs):
        where = f"input set {index}"
        for path, tensor in named_tensors(inputs):
            if _constant(tensor):
                text = f"input {_short(path)} is the same number throughout, which draws less power than real data"
                warnings.append(RunWarning("constant_inputs", text, where))
        with user_code(built):
            outputs = built.call(index)
        for path, tensor in named_tensors(outputs):
            name = f"output {path}" if path else "the output"
            for code, kind, found in (("nan_outputs", "NaN", _any_nan), ("inf_outputs", "infinite", _any_inf)):
                if found(tensor):
                    text = f"{name} holds {kind} values, which draw less power than real numbers"
                    warnings.append(RunWarning(code, text, where))
    return warnings


def _short(path: str) -> str:
    """The path without its first part, which only distinguishes positional from keyword arguments."""
    return path.partition(".")[2]


def _constant(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_floating_point() and tensor.numel() > 1 and bool((_wide(tensor) == _wide(tensor).flatten()[0]).all())
    )


def _any_nan(tensor: torch.Tensor) -> bool:
    return bool(_wide(tensor).isnan().any())


def _any_inf(tensor: torch.Tensor) -> bool:
    return bool(_wide(tensor).isinf().any())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a wider type: the 8-bit floating types support few operators."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
