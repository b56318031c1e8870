"""The first iteration of a workload, which shows its errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.run import RunWarning
from jouletrace.workloads.base import Built
from jouletrace.workloads.placement import named_tensors
from jouletrace.workloads.user_code import check_ran, memory_guard, no_silent_exit, one_line

if TYPE_CHECKING:
    import torch


def trial(built: Built, device: torch.device | None = None) -> Any:
    """Run each input set once, wait for the CUDA device if there is one, and return the last outputs.

    Raises:
        BadInputError: If the workload raises (type, text and place in one line), or if it returns before its work
            is done.
        NotPossibleError: If memory runs out.
    """
    outputs = None
    with user_code(built):
        for i in range(len(built.inputs)):
            outputs = check_ran(built.call(i), name_of(built))
        if device is not None:
            import torch

            torch.cuda.synchronize(device)
    return outputs


@contextmanager
def user_code(built: Built, under: str = "", failure: type[BadInputError] = BadInputError) -> Iterator[None]:
    """Report an exception of the workload that is called inside the block in one line.

    Args:
        built: The workload.
        under: Unusual conditions of the call, for the end of that line.
        failure: Exception to raise; ``BrokenOffError`` in the recorded passes.

    Raises:
        failure: If the workload raises, or ends the process: type, text and place.
        NotPossibleError: If memory runs out.
    """
    what = name_of(built)
    try:
        with memory_guard(what), no_silent_exit():
            yield
    except JouletraceError:
        raise
    except (Exception, SystemExit) as error:
        which = "forward" if built.module is not None else "call"
        raise failure(f"{what}: its {which} raised {one_line(error)}{under}") from error


def name_of(built: Built) -> str:
    """The workload's name with its batch, for messages."""
    name, batch = built.facts.get("name", "workload"), built.facts.get("batch")
    return f"{name}, batch {batch}" if batch else str(name)


def check_outputs(built: Built) -> list[RunWarning]:
    """Run each input set once and check inputs and outputs. Waits for the device.

    Returns:
        Warnings ``constant_inputs`` (a tensor with more than one element, all of them equal),
        ``nan_outputs`` and ``inf_outputs``, each naming the tensor.

    Raises:
        BadInputError: If the workload raises.
    """
    warnings = []
    for index, inputs in enumerate(built.inputs):
        where = f"input set {index}"
        for path, tensor in named_tensors(inputs):
            values = _wide(tensor)
            if tensor.is_floating_point() and tensor.numel() > 1 and bool((values == values.flatten()[0]).all()):
                name = path.partition(".")[2]  # the first part only distinguishes positional from keyword arguments
                text = f"input {name} is the same number throughout, which draws less power than real data"
                warnings.append(RunWarning("constant_inputs", text, where))
        with user_code(built):
            outputs = built.call(index)
        for path, tensor in named_tensors(outputs):
            name = f"output {path}" if path else "the output"
            values = _wide(tensor)
            for code, kind, which in (
                ("nan_outputs", "NaN", values.isnan()),
                ("inf_outputs", "infinite", values.isinf()),
            ):
                if bool(which.any()):
                    text = f"{name} holds {kind} values, which draw less power than real numbers"
                    warnings.append(RunWarning(code, text, where))
    return warnings


def outputs_of(built: Built) -> list[torch.Tensor]:
    """The tensors that an iteration on the first input set returns, as double on the CPU. Runs it once.

    Raises:
        BadInputError: If the workload raises.
    """
    with user_code(built):
        outputs = built.call(0)
    return [_wide(tensor).detach().cpu().double() for _, tensor in named_tensors(outputs)]


def largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float | None:
    """The largest difference of an element over the largest of ``ours``, of those that are finite in both.

    None of no tensors, or of other shapes; inf where ``ours`` is finite and ``theirs`` isn't.
    """
    if not ours or [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return None
    if any(bool((a.isfinite() & ~b.isfinite()).any()) for a, b in zip(ours, theirs, strict=True)):
        return math.inf
    both = [a.isfinite() & b.isfinite() for a, b in zip(ours, theirs, strict=True)]
    pairs = [(a[here], b[here]) for a, b, here in zip(ours, theirs, both, strict=True) if bool(here.any())]
    largest = max((float(a.abs().max()) for a, _ in pairs), default=0.0)
    difference = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return difference / largest if largest else float(difference > 0)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a wider type: the 8-bit floating types support few operators."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
