"""Recording of a user's loop: the loop marks ranges and steps on a concurrent record.

    with jt.record("training") as recording:
        for batch in loader:
            with jt.range("forward"):
                loss = model(batch)
            with jt.range("backward"):
                loss.backward()
            jt.step()
    print(recording)  # its ranges and kernels; recording.run and recording.split have all figures

A mark costs microseconds, and only the look-up of a name without a recording. Spans are written to
disk once per second, so that recordings may be of any length.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from jouletrace.devices import one_or_several
from jouletrace.errors import BadInputError
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.record.ranges import Marks, Opened
from jouletrace.profiler.record.recording import OnUpdate, Recording, is_seconds
from jouletrace.workloads.user_code import deferred

_Function = TypeVar("_Function", bound=Callable[..., Any])


def record(
    label: str = "recording",
    *,
    device: str | Sequence[str] | None = None,
    save_to: str | Path | None = None,
    annotations: bool = True,
    kernels: bool = True,
    operators: bool = True,
    on_update: OnUpdate | None = None,
    update_s: float = 10.0,
) -> Recording:
    """Record devices while a loop runs; use it in a ``with`` statement. A recording within another becomes a range.

    Under ``torchrun`` each rank records its own GPU into a separate part below ``save_to``, and the
    first rank merges all parts when it ends (otherwise ``jouletrace merge`` merges them later).

    Args:
        label: Name of the Run.
        device: A name as for ``--device``, or several; "visible" is every GPU that CUDA shows this process (the CPU
            if there is none), and for a rank its own GPU. None means "visible". Simulated GPUs run in real time.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory until ``run.save``, separately
            for each rank.
        annotations: Also record ranges of NVTX and ``record_function``.
        kernels: Trace the kernels that this process runs on the recorded GPUs, for ``Recording.split``; costs a few
            percent of a loop that waits for its launches.
        operators: Also sample operators and modules of torch, for a few iterations.
        on_update: Called every ``update_s`` seconds, in a separate thread, with the figures so far;
            ``print`` prints a line.
        update_s: Seconds between updates.

    Raises:
        BadInputError: If ``save_to`` exists, or an argument is invalid.
        NotPossibleError: If no device was named.
    """
    wanted = one_or_several("record", device, label)
    if not (is_seconds(update_s) and update_s > 0):
        raise BadInputError(f"record: update_s={update_s!r}: must be more than 0 s")
    if on_update is not None and not callable(on_update):
        raise BadInputError(f"record: on_update={on_update!r}: must be a function, such as print")
    if save_to is not None and not isinstance(save_to, str | PathLike):
        raise BadInputError(f"record: save_to={save_to!r}: must be a path")
    return Recording(
        str(label),
        wanted,
        save_to,
        annotations=annotations,
        kernels=kernels,
        operators=operators,
        on_update=on_update,
        update_s=update_s,
    )


def step(*, sync: bool = False) -> None:
    """Mark the end of an iteration of the loop and the start of the next. Without a recording it does nothing.

    Args:
        sync: Synchronise with the GPUs first, so that the step includes all work that it launched.
    """
    recording = Recording.active
    if recording is not None:
        recording.step(sync)


class range(ContextDecorator):
    """A named part of the loop: ``with jt.range("forward"):`` or ``@jt.range("forward")``.

    Ranges nest, and each thread has its own, as has each task of asyncio. Without a recording they do nothing.

    Args:
        name: Name of the range; ranges with the same path of names share one row. Another object is
            converted by ``str``.
        sync: Synchronise with the GPUs at both edges, so that the range includes all work that it
            launched. This prevents the overlap of host and GPU; without it, a range measures the host's time.
    """

    def __init__(self, name: str, *, sync: bool = False) -> None:
        self.name = str(name)
        self.sync = sync
        self._opened: list[tuple[Marks, Opened] | None] = []

    def __call__(self, func: _Function) -> _Function:
        """Decorate a function.

        Raises:
            BadInputError: If a call of it returns before its body has run.
        """
        if deferred(func):
            why = "a call of it returns before its body runs; write `with jt.range(...):` inside it"
            raise BadInputError(f"range {self.name!r} can't decorate {func.__qualname__}: {why}")
        return super().__call__(func)

    def _recreate_cm(self) -> Self:
        return type(self)(self.name, sync=self.sync)  # calls of a decorated function may overlap

    def __enter__(self) -> Self:
        recording = Recording.active
        if recording is None:
            self._opened.append(None)
            return self
        if self.sync:
            synchronize()
        marks = recording.marks
        self._opened.append((marks, marks.begin(self.name)))
        return self

    def __exit__(self, *_: object) -> None:
        if not self._opened:
            self._ended_unopened()
            return
        recording = Recording.active
        mine = recording.marks.innermost() if recording is not None else None
        # Another task may have entered this object, too.
        opened = self._opened.pop(
            max((n for n, entered in enumerate(self._opened) if entered and entered[1] is mine), default=-1)
        )
        if opened is None:
            return
        if self.sync:
            synchronize()
        if recording is not None and opened[0] is recording.marks:  # it may have ended inside
            opened[0].end(opened[1], self.sync)

    def _ended_unopened(self) -> None:
        """Warn and continue: the program's own work is correct."""
        recording = Recording.active
        if recording is None or recording.marks.unopened(self.name):
            text = f"range {self.name!r} ends without having begun, or twice: this end is ignored"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
