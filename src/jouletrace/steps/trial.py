"""The first iteration of a workload, where what is wrong with it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.workloads.base import Built
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
        BadInputError: If the workload raises: its type, text and place in one line.
        NotPossibleError: If memory runs out.
    """
    what = name_of(built)
    outputs = None
    try:
        with memory_guard(what):
            for i in range(len(built.inputs)):
                outputs = built.call(i)
            if device is not None:
                import torch

                torch.cuda.synchronize(device)
    except JouletraceError:
        raise
    except Exception as error:
        raise BadInputError(f"{what} raised {one_line(error)}") from error
    return outputs


def name_of(built: Built) -> str:
    """The workload's name with its batch, for messages."""
    name, batch = built.facts.get("name", "workload"), built.facts.get("batch")
    return f"{name}, batch {batch}" if batch else str(name)
