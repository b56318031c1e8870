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

import atexit
import builtins
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import ContextDecorator, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from jouletrace import analysis
from jouletrace.devices import open_devices
from jouletrace.errors import BadInputError, NotPossibleError, RecorderDiedError
from jouletrace.profiler import calibrations
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.monitoring.monitor import realtime
from jouletrace.profiler.session import Session
from jouletrace.run import Run
from jouletrace.run.store import check_free, save

_FLUSH_S = 1.0
MOST_SPANS = 2_000_000
"""Spans that are kept; more than figures need, and as many as fit into memory at the end."""

_Span = tuple[int, int | None, str, str, str, int, int]
"""Id, parent, kind, name, lane, start, end."""


@dataclass
class _Thread:
    """Where one thread is: its open ranges, and its current step.

    Attributes:
        open: Ids and starts of open ranges, the innermost last.
        step_ns: When its step began; None before the first mark of a thread that the recording didn't begin in.
        depth: How many ranges were open then.
    """

    lane: str
    open: list[tuple[int, int]] = field(default_factory=list)
    step_ns: int | None = None
    depth: int = 0


class Recording:
    """A recording of devices, with the ranges and steps that the program marks; see the module.

    Attributes:
        run: The Run with its figures; None until the recording has ended.
    """

    def __init__(self, label: str, devices: Sequence[str], save_to: str | Path | None) -> None:
        self.label = label
        self.run: Run | None = None
        self._specs = list(devices)
        self._place = check_free(Path(save_to)) if save_to is not None else None
        self._ids = itertools.count(1)  # 0 is the recording's own phase
        self._spans: deque[_Span] = deque()
        self._kept = self._left_out = self._crossed = 0
        self._unended: set[int] = set()
        self._not_synchronised: set[str] = set()
        self._threads = threading.local()
        self._owner = os.getpid()
        self._failed: RecorderDiedError | None = None
        self._ending = threading.Event()
        self._session: Session
        self._start_ns = 0

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            BadInputError: If another recording is on, this one has ended, or a device can't be recorded so.
            RecorderDiedError: If recording can't start.
        """
        global _current  # noqa: PLW0603  # marks find their recording without being handed it
        if self.run is not None:
            raise BadInputError(f"record: {self.label!r} has ended; ask for another with jt.record()")
        with _lock:
            if _current is not None:
                raise BadInputError(f"record: a recording is on already ({_current.label!r})")
            self._open()
            _current = self
        self._start_ns = self._session.clock.time_ns()
        mine = self._thread()
        mine.step_ns = self._start_ns
        self._flusher = threading.Thread(target=self._flush_regularly, name="jouletrace-spans", daemon=True)
        self._flusher.start()
        atexit.register(self._close, None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close(error)
        if error is None and self._failed is not None:
            raise self._failed

    def begin(self, name: str) -> tuple[int, int | None, int]:
        """Open a range in this thread; returns its id, its parent's and its start."""
        mine = self._thread()
        parent = mine.open[-1][0] if mine.open else None
        id, now = next(self._ids), self._session.clock.time_ns()
        mine.open.append((id, now))
        self._unended.add(id)
        return id, parent, now

    def end(self, name: str, id: int, parent: int | None, start_ns: int, sync: bool) -> None:
        """Close a range; those opened after it in this thread and still open crossed it."""
        mine = self._thread()
        now = self._session.clock.time_ns()
        self._unended.discard(id)
        self._add((id, parent, "range", name, mine.lane, start_ns, now))
        if mine.open and mine.open[-1][0] == id:
            mine.open.pop()
        else:
            self._crossed += 1
            mine.open = [entry for entry in mine.open if entry[0] != id]
        if len(mine.open) < mine.depth:  # the range around the steps is over: what follows is none of them
            mine.depth, mine.step_ns = len(mine.open), now
        if not sync and name not in self._not_synchronised and _uses_cuda():
            self._not_synchronised.add(name)

    def step(self, sync: bool = False) -> None:
        """An iteration of this thread's loop has ended, and the next begins."""
        if sync:
            synchronize()
        mine = self._thread()
        now = self._session.clock.time_ns()
        start, parent = mine.step_ns, None
        if mine.open:
            parent, opened = mine.open[-1]
            if len(mine.open) > mine.depth:  # the range around the loop was opened after the last step
                start = opened
        if start is not None:
            self._add((next(self._ids), parent, "iteration", "step", mine.lane, start, now))
        mine.step_ns, mine.depth = now, len(mine.open)
        if not sync and _uses_cuda():
            self._not_synchronised.add("step")

    def skip(self) -> None:
        """What this thread has done since its last step (an evaluation, say) belongs to no step."""
        mine = self._thread()
        mine.step_ns, mine.depth = self._session.clock.time_ns(), len(mine.open)

    def _thread(self) -> _Thread:
        found: _Thread | None = getattr(self._threads, "state", None)
        if found is None:
            thread = threading.current_thread()
            found = self._threads.state = _Thread(f"{thread.name} ({threading.get_native_id()})")
        return found

    def _add(self, span: _Span) -> None:
        if self._kept >= MOST_SPANS:
            self._left_out += 1
            return
        self._kept += 1
        self._spans.append(span)

    def _open(self) -> None:
        devices = open_devices(self._specs)
        try:
            for device in devices:
                if device.clock.virtual:
                    raise BadInputError(f"record: {device.spec}: a loop takes real time; write {realtime(device.spec)}")
            zipped = self._place is not None and self._place.suffix.lower() == ".zip"
            self._session = Session(
                "record",
                devices,
                folder=None if zipped else self._place,
                command=f"jouletrace.record({self.label!r})",
                workload={"name": self.label},
                settings={"devices": self._specs},
            )
            self._session.__enter__()
        except BaseException:
            for device in devices:
                device.close()
            raise
        for device in devices:
            calibrations.attach(self._session.run, device)

    def _flush_regularly(self) -> None:
        while not self._ending.wait(_FLUSH_S) and self._failed is None:
            self._flush()
            with suppress(RecorderDiedError):
                self._session.recorder.check()

    def _flush(self) -> None:
        # Others append meanwhile: what is there now is taken, and no more.
        rows = [self._spans.popleft() for _ in builtins.range(len(self._spans))]
        if not rows or self._failed is not None:
            return
        names = ("id", "parent", "kind", "name", "lane", "start_ns", "end_ns")
        columns: dict[str, Sequence[object]] = dict(zip(names, zip(*rows, strict=True), strict=True))
        columns["device"] = [self._session.devices[0].info.id] * len(rows)
        try:
            self._session.spool_spans({name: list(column) for name, column in columns.items()})
        except RecorderDiedError as error:
            self._failed = error

    def _close(self, error: BaseException | None) -> None:
        """End the recording, whatever ended the loop, and compute what there is."""
        global _current  # noqa: PLW0603  # as above
        if self.run is not None or os.getpid() != self._owner:
            return
        with _lock:
            _current = None
        atexit.unregister(self._close)
        self._ending.set()
        self._flusher.join()
        self._flush()
        session, run = self._session, self._session.run
        self.run = run
        session.add_span("phase", "monitor", self._start_ns, session.clock.time_ns(), "record")
        run.settings["not_synchronised"] = sorted(self._not_synchronised)
        if self._left_out:
            message = f"{self._left_out} spans came after the first {MOST_SPANS}; figures are of those"
            run.warn("spans_left_out", message)
        if self._crossed:
            run.warn("ranges_crossed", f"{self._crossed} ranges ended inside of others that began within them")
        if self._unended:
            run.warn("ranges_not_ended", f"{len(self._unended)} ranges were open when the recording ended: left out")
        try:
            if error is not None:
                session.__exit__(type(error), error, error.__traceback__)
            else:
                session.finish()
        except RecorderDiedError as died:
            self._failed = self._failed or died
        finally:
            for device in session.devices:
                device.close()
        analysis.analyse(run)
        if self._place is not None:
            save(run, self._place, overwrite=session.folder is not None)


_current: Recording | None = None
_lock = threading.Lock()


def _forget_parent() -> None:
    """In a fork: the recording is the parent's."""
    global _current, _lock  # noqa: PLW0603  # the parent may hold it at the fork
    _lock = threading.Lock()
    _current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def record(
    label: str = "recording", *, devices: str | Sequence[str] = "visible", save_to: str | Path | None = None
) -> Recording:
    """Record devices while a loop runs; use it in a ``with`` statement. One at a time.

    Args:
        label: What the Run is called.
        devices: "visible" for every GPU that CUDA shows this process (the CPU if there is none),
            or specs as ``--device`` takes them.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory until ``run.save``.

    Raises:
        BadInputError: If the place is taken.
        NotPossibleError: If no device was named.
    """
    wanted = [devices] if isinstance(devices, str) else list(devices)
    if not wanted:
        raise NotPossibleError("record: no device was named")
    return Recording(label, wanted, save_to)


def step(*, sync: bool = False) -> None:
    """An iteration of the loop has ended, and the next begins. Outside of a recording it does nothing.

    Args:
        sync: Wait for the GPUs first, so that the step holds all that it launched.
    """
    recording = _current
    if recording is not None:
        recording.step(sync)


class range(ContextDecorator):
    """A named stretch of the loop: ``with jt.range("forward"):`` or ``@jt.range("forward")``.

    Ranges nest, and each thread has its own. Outside of a recording they do nothing.

    Args:
        name: What it is called; ranges of one name in the same ranges are one row.
        sync: Wait for the GPUs at both edges, so that the range holds what it launched. It costs
            the overlap of host and GPU: without it, a range says when the host was in it.
    """

    def __init__(self, name: str, *, sync: bool = False) -> None:
        self.name = name
        self.sync = sync
        self._opened: list[tuple[Recording, int, int | None, int] | None] = []

    def _recreate_cm(self) -> Self:
        return type(self)(self.name, sync=self.sync)  # calls of a decorated function may overlap

    def __enter__(self) -> Self:
        recording = _current
        if recording is None:
            self._opened.append(None)
            return self
        if self.sync:
            synchronize()
        self._opened.append((recording, *recording.begin(self.name)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        opened = self._opened.pop()
        if opened is None:
            return
        if self.sync:
            synchronize()
        recording, id, parent, start_ns = opened
        if recording is _current:  # it may have ended inside
            recording.end(self.name, id, parent, start_ns, self.sync)
