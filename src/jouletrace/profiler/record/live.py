"""The user's own loop: ranges and steps marked in it, on a record that runs beside it.

    with jt.record("training") as recording:
        for batch in loader:
            with jt.range("forward"):
                loss = model(batch)
            with jt.range("backward"):
                loss.backward()
            jt.step()
    print(recording.run.result("energy_total_j", ...))   # or: jouletrace show

Marks cost microseconds, and nothing but a look at a name where nothing is recorded. Spans go to
disk once a second, so that a recording may be as long as it likes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.record import active
from jouletrace.profiler.record.ranges import Marks, Opened
from jouletrace.profiler.record.recording import OnUpdate, Recording, is_seconds
from jouletrace.workloads.deferred import deferred

_Function = TypeVar("_Function", bound=Callable[..., Any])


def record(
    label: str = "recording",
    *,
    devices: str | Sequence[str] = "visible",
    save_to: str | Path | None = None,
    annotations: bool = True,
    trace_s: float = 0.0,
    on_update: OnUpdate | None = None,
    update_s: float = 10.0,
) -> Recording:
    """Record devices while a loop runs; use it in a ``with`` statement. One at a time: another within it is a range.

    Under ``torchrun`` each rank records its own GPU into a part of its own beneath ``save_to``, and the
    first one merges all parts when it ends (``jouletrace merge`` does it later, if it couldn't).

    Args:
        label: What the Run is called.
        devices: "visible" for every GPU that CUDA shows this process (the CPU if there is none), of
            several ranks the one of its own; or specs as ``--device`` takes them.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory until ``run.save``, and of
            several ranks each its own.
        annotations: Take ranges of NVTX and ``record_function`` too.
        trace_s: Seconds of kernels to trace once the loop has settled (20 steps), which costs several
            percent meanwhile and about one afterwards; 0 for none. Shows communication between GPUs.
        on_update: Called every ``update_s`` seconds, in a thread of its own, with what has been measured
            so far; ``print`` prints a line.
        update_s: Seconds between updates.

    Raises:
        BadInputError: If the place is taken, or an argument makes no sense.
        NotPossibleError: If no device was named.
    """
    several = isinstance(devices, Sequence) and all(isinstance(device, str) for device in devices)
    if not several:
        raise BadInputError(f"record: devices={devices!r}: must be a name, or a list of names")
    wanted = [devices] if isinstance(devices, str) else list(devices)
    if not wanted:
        raise NotPossibleError("record: no device was named")
    if not (is_seconds(trace_s) and trace_s >= 0):
        raise BadInputError(f"record: trace_s={trace_s!r}: must be 0 s or more")
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
        trace_s=trace_s,
        on_update=on_update,
        update_s=update_s,
    )


def step(*, sync: bool = False) -> None:
    """An iteration of the loop has ended, and the next begins. Outside of a recording it does nothing.

    Args:
        sync: Wait for the GPUs first, so that the step holds all that it launched.
    """
    recording = active.current
    if recording is not None:
        recording.step(sync)


class range(ContextDecorator):
    """A named stretch of the loop: ``with jt.range("forward"):`` or ``@jt.range("forward")``.

    Ranges nest, and each thread has its own. Outside of a recording they do nothing.

    Args:
        name: What it is called; ranges of one name in the same ranges are one row. What is no string
            goes by how it prints.
        sync: Wait for the GPUs at both edges, so that the range holds what it launched. It costs
            the overlap of host and GPU: without it, a range says when the host was in it.
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
            why = "a call of it returns before its body runs; write `with jt.range(...):` inside of it"
            raise BadInputError(f"range {self.name!r} can't decorate {func.__qualname__}: {why}")
        return super().__call__(func)

    def _recreate_cm(self) -> Self:
        return type(self)(self.name, sync=self.sync)  # calls of a decorated function may overlap

    def __enter__(self) -> Self:
        recording = active.current
        if recording is None:
            self._opened.append(None)
            return self
        if self.sync:
            synchronize()
        marks = recording.marks
        self._opened.append((marks, marks.begin(self.name)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._opened:
            self._ended_unopened()
            return
        opened = self._opened.pop()
        if opened is None:
            return
        if self.sync:
            synchronize()
        marks, mine = opened
        recording = active.current
        if recording is not None and marks is recording.marks:  # it may have ended inside
            marks.end(mine, self.sync)

    def _ended_unopened(self) -> None:
        """Say so and go on: the program's own work isn't wrong."""
        recording = active.current
        if recording is None or recording.marks.unopened(self.name):
            text = f"range {self.name!r} ends without having begun, or twice: that is ignored"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
