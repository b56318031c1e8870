"""The reason why a workload couldn't be captured as a CUDA graph, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.user_errors import place

if TYPE_CHECKING:
    import torch


class CaptureError(BadInputError):
    """The workload does something that a CUDA graph can't contain; ``--mode eager`` may work."""


class LastOperator:
    """Records the operator that torch ran last.

    Attributes:
        name: Such as "aten.item.default"; None before the first. In inference mode, composite
            operators appear as a whole.
    """

    def __init__(self) -> None:
        self.name: str | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the operators run inside the block."""
        from torch.utils._python_dispatch import TorchDispatchMode

        note = self

        class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                note.name = str(func)
                return func(*args, **(kwargs or {}))

        with Watch():  # type: ignore[no-untyped-call]  # torch's __init__
            yield


@contextmanager
def generator_kept(device: torch.device) -> Iterator[None]:
    """Keep torch's random generator of the GPU usable and unchanged if the capture inside fails.

    A capture that breaks off leaves the generator's state marked as being captured: from then on
    every random number outside of a graph raises "Offset increment outside graph capture". The
    mark can't be removed, so the generator gets a new state with its earlier seed and offset.
    """
    import torch

    if device.type != "cuda":
        yield
        return
    generator = torch.cuda.default_generators[device.index]
    before = generator.get_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        generator.set_state(before)
        raise


def first_cause(error: BaseException) -> BaseException:
    """The first error: ending a broken capture fails too, and its error hides the first one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def explain(error: BaseException, operator: str | None) -> str:
    """``"can't be captured as a CUDA graph at OPERATOR (file, line 3: code): reason; use --mode eager"``.

    Args:
        error: The exception of the capture.
        operator: The operator that ran last, where known.
    """
    first = first_cause(error)
    # CUDA adds paragraphs of general advice; the first line is the reason.
    reason = next(iter(str(first).splitlines()), "") or type(first).__name__
    at = f" at {operator}" if operator else ""
    where = place(first)
    return f"can't be captured as a CUDA graph{at}{f' ({where})' if where else ''}: {reason}; use --mode eager"
