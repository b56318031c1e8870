"""The first iteration of a workload, which shows its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.workloads.base import Built
from jouletrace.workloads.deferred import check_ran
from jouletrace.workloads.leaving import no_silent_exit
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.user_errors import one_line

if TYPE_CHECKING:
    import torch


def trial(built: Built, device: torch.device | None = None) -> Any:
    """Run each input set once, wait, and return the last outputs.

    Args:
        built: The workload.
        device: The CUDA device to wait for; None on the CPU.

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
    """Report an exception of the workload inside the block in one line.

    Args:
        built: The workload that is called inside.
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
