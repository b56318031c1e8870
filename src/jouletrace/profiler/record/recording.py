"""A recording of devices during a program, with the ranges and steps that the program marks."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from jouletrace import analysis, higher
from jouletrace.devices import open_devices
from jouletrace.devices.base import Device, others
from jouletrace.errors import BadInputError, ClosedError, JouletraceError, RecorderDiedError, TakenError
from jouletrace.profiler.measure import settle, synchronize, warn_of_idle
from jouletrace.profiler.record.annotations import Annotations
from jouletrace.profiler.record.launch_marks import LaunchMarks
from jouletrace.profiler.record.live_sums import LiveSums, SoFar, span_columns
from jouletrace.profiler.record.ranges import Marks, Opened, uses_cuda
from jouletrace.profiler.record.ranks import device_of, merge_when_all_ended, parts_of, this_rank
from jouletrace.profiler.record.split import SPAN, has_kernels, largest, leave, split_of
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.files import RUN_JSON, quoted, shown
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.measured import keep
from jouletrace.run.places import EXISTS, SAVE_LATER, check_free
from jouletrace.run.shown import Shown
from jouletrace.tracer.in_process import InProcess
from jouletrace.tracer.process_trace import ProcessTrace

_FLUSH_S, _LEAST_S = 1.0, 0.1
_PATIENCE_S = 10.0
"""Seconds within which ``on_update`` must return when the recording ends."""

OnUpdate = Callable[[SoFar], object]


class Recording(Shown):
    """A recording of devices, with the ranges and steps that the program marks; created by ``record``.

    Attributes:
        label: Name of the Run.
        rank: Rank of this process; None if the program runs in a single process.
        run: The Run with its figures; None until the recording has ended, and for a recording within another. With
            several ranks, the first rank holds the merged Run if it was saved, and the others hold their own.
        active: The recording of this process that collects marks; None if there is none.
        split: Where the energy went: ranges, modules, operators, kernels and idle, as a Run of kind "program". None
            where there is no ``run``, and without kernels. If ranks are saved, the first holds that of all of them.
    """

    active: ClassVar[Recording | None] = None
    _changing: ClassVar[threading.Lock] = threading.Lock()
    """Held while ``active`` changes."""

    def __init__(
        self,
        label: str,
        devices: Sequence[str],
        save_to: str | Path | None,
        *,
        annotations: bool = True,
        kernels: bool = True,
        operators: bool = True,
        on_update: OnUpdate | None = None,
        update_s: float = 10.0,
    ) -> None:
        self.label = label
        self.run: Run | None = None
        self.split: Run | None = None
        self.rank = this_rank()
        # Absolute, since the program may change the current folder.
        self._whole = Path(save_to).absolute() if save_to is not None else None
        # A recording within another isn't saved, so its place may exist.
        self._place = self._checked_place() if Recording.active is None else None
        self._specs = list(devices)
        if self.rank is not None and self._specs == ["visible"]:
            self._specs = [device_of(self.rank)]
        self._pick_up, self._kernels, self._operators = annotations, kernels, operators
        self._on_update = on_update
        self._update_s = update_s
        self._owner = os.getpid()
        self._failed: RecorderDiedError | None = None
        self._ending = threading.Event()
        self._flushing = threading.Lock()
        self._closing = threading.RLock()
        self._session: Session
        self._marks: Marks
        self._sums: LiveSums | None = None
        self._started = threading.Event()
        self._tracer: InProcess | None = None
        self._annotations: Annotations | None = None
        self._start_ns = 0
        self._within: list[tuple[Recording, Opened] | None] = []
        self._outer: Recording | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        """Start recording. Within an active recording it becomes a range; after its end it does nothing. Both warn.

        The recorder starts in a second, for which the program doesn't wait; most GPUs keep their power of that time.

        Raises:
            BadInputError: If a device can't be recorded.
        """
        with Recording._changing:
            outer = Recording.active
            if outer is None and self.run is None:
                self._open()
                self._flusher = threading.Thread(target=self._flush_regularly, name="jouletrace-spans", daemon=True)
                self._flusher.start()
                atexit.register(self._close, None)
                self._start_ns = self._session.clock.time_ns()  # after all that takes time
                self._session.read_host()
                self._marks.start(self._start_ns)
                Recording.active = self  # from here on it accepts marks of other threads
            else:
                self._within.append(self._begin_within(outer))
                self._outer = outer or self._outer
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._within:
            opened = self._within.pop()
            if opened is not None and Recording.active is opened[0]:  # which may have ended
                opened[0].marks.end(opened[1])
            return
        self._end_with(error)

    def close(self) -> None:
        """End one that an interruption has left active: ``jt.Recording.active.close()``. Its Run is incomplete.

        The Run names the exception that is being handled, if one is. After the end it does nothing.

        Raises:
            BadInputError: If it has not begun, or is to be ended by ``on_update``.
        """
        self._end_with(sys.exception() or ClosedError("close()"))

    def check(self) -> None:
        """Open its devices and close them again.

        Raises:
            BadInputError, NotPossibleError: If they can't be recorded.
        """
        for device in self._devices():
            device.close()

    def __str__(self) -> str:
        """The figures so far in a line; after the end the text of its ``run``, that of its ``split``, and its place."""
        if self.run is not None:
            return "\n\n".join(str(run) for run in (self.run, self.split) if run is not None) + self._saved()
        on = self._outer if self._start_ns == 0 else self
        return str(on.now()) if on is not None and os.getpid() == self._owner else f"{self.label}: not recording"

    def __repr__(self) -> str:
        return f"Recording({self.summary().partition(chr(10))[0]})"

    def summary(self) -> str:
        """In few lines the verdict, the largest parts of its energy, and its place; before the end the figures so far.

        ``%%joules`` and the callbacks print it.
        """
        if self.run is None:
            return str(self)
        parts = largest(self.split) if self.split else []
        return "\n".join([higher.summary(self.split or self.run), *parts]) + self._saved()

    def _saved(self) -> str:
        """The line that names its place; "" if it isn't saved."""
        if self._whole is None or not self.place:
            return ""
        return f"\nsaved {self.place} · more: jouletrace show {quoted(self._whole)}"

    @property
    def place(self) -> str:
        """Where the Run is saved, as it is printed; "" if it isn't, or hasn't ended."""
        return shown(self._whole) if self._whole is not None and self.run is not None else ""

    @property
    def marks(self) -> Marks:
        """The marks, which open and close ranges."""
        return self._collector()._marks

    @property
    def started(self) -> bool:
        """True if the recorder has started, so that ``now`` returns at once."""
        return self._collector()._started.is_set()

    def warn(self, code: str, text: str) -> None:
        """Add a warning to the Run, if it is the first with its code."""
        if code not in self._warned:
            self._warned.add(code)
            self._session.run.warn(code, text)

    def step(self, sync: bool = False) -> None:
        """Mark the end of an iteration of this thread's loop and the start of the next."""
        on = self._collector()
        if sync:
            synchronize()
        on._marks.step(sync)

    def skip(self) -> None:
        """Exclude the time since this thread's last step (an evaluation, say) from all steps."""
        self._collector()._marks.skip()

    def now(self) -> SoFar:
        """The figures so far, up to about a second ago: sums for live displays, without intervals.

        After the end they are of the whole recording, with the Run's time, energy and power. A recording within another
        returns the figures of the outer one.

        Raises:
            BadInputError: If it has not begun, or belongs to the parent of this fork.
        """
        on = self._collector()
        if on is not self:
            return on.now()
        with self._caught_up():
            name = self.label if self.rank is None else f"{self.label}, rank {self.rank.rank}"
            if self._sums is None:
                return SoFar(name, 0.0, None, None, problem=str(self._failed))
            return self._sums.so_far(name, self._session.run if self.run is not None else None)

    def recent(self, seconds: float = 30.0) -> Run:
        """The last ``seconds`` (at most 120) as a Run with all figures and intervals, during the recording.

        Raises:
            BadInputError: As ``now``, and if ``seconds`` is invalid.
            RecorderDiedError: If recording couldn't start.
        """
        if not (is_seconds(seconds) and seconds > 0):
            raise BadInputError(f"record: recent({seconds!r}): must be more than 0 s")
        on = self._collector()
        if on is not self:
            return on.recent(seconds)
        with self._caught_up():
            if self._sums is None:
                raise self._failed or RecorderDiedError("recording can't start")
            self._session.run.settings["not_synchronised"] = sorted(self._marks.not_synchronised)
            return self._sums.recent(seconds)

    def leave_to_parent(self) -> None:
        """Remove the annotations in a fork, where no marks are collected and nothing is traced."""
        self._end_marks()
        if self._tracer is not None:
            self._tracer.leave()

    def _begin_within(self, outer: Recording | None) -> tuple[Recording, Opened] | None:
        """Open a range of the active recording in place of a recording of its own, which must not end the program.

        ``_changing`` is held since ``outer`` was read, which can't end before it has the range. None if this recording
        has ended and no other is active.

        Raises:
            RuntimeWarning: If warnings are configured as errors; then ``outer`` is unchanged.
        """
        if outer is None:
            text = f"record: {self.label!r} has ended and records nothing now; start another with jt.record()"
        else:
            text = f"record: {self.label!r} is within the active {outer.label!r}: it becomes a range there, not a Run"
            if self._whole is not None and outer is not self:
                text += f", and nothing is saved to {shown(self._whole)}"
        if outer is None or "record_within" not in outer._warned:
            way_out = "; if that was interrupted, jt.Recording.active.close() ends it" if outer is not None else ""
            warnings.warn(text + way_out, RuntimeWarning, stacklevel=3)  # where the program says `with`
        if outer is None:
            return None
        outer.warn("record_within", text)
        return outer, outer.marks.begin(self.label)

    def _collector(self) -> Recording:
        """The recording that collects this one's marks: the outer one if this is only a range, else itself."""
        if self._start_ns == 0 and self._outer is not None:
            return self._outer
        self._check_begun()
        return self

    def _check_begun(self) -> None:
        if self._start_ns == 0:
            raise BadInputError(f"record: {self.label!r} has not begun; use it in a with statement")

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold still with all marks and readings so far, in the process that records."""
        if os.getpid() != self._owner:
            raise BadInputError(f"record: {self.label!r} belongs to process {self._owner}; call it there")
        self._started.wait()
        with self._flushing:
            if not self._ending.is_set():
                self._flush()
            yield

    def _checked_place(self) -> Path | None:
        """The place of this process's Run, refused if it exists."""
        if self._whole is None or self.rank is None:
            return check_free(self._whole, SAVE_LATER) if self._whole is not None else None
        parts = parts_of(self._whole)
        for taken in (parts / RUN_JSON, self._whole if self._whole.is_file() else parts / RUN_JSON):
            if taken.exists():
                raise TakenError(f"{shown(taken)} {EXISTS}")
        return check_free(parts / self.rank.name)

    def _open(self) -> None:
        if self._place is None:
            self._place = self._checked_place()
        devices = self._devices()
        try:
            zipped = self._place is not None and self._place.suffix.lower() == ".zip"
            rank = self.rank.facts() if self.rank is not None else WorkloadFacts()
            session = self._session = Session(
                "record",
                devices,
                folder=None if zipped else self._place,
                command=f"jouletrace.record({self.label!r})",
                workload={"name": self.label, **rank},
                settings={"devices": self._specs, "pid": os.getpid()},
            )
            session.open()
            session.warn_of_others(others(devices, used_here=uses_cuda()))
        except BaseException:
            for device in devices:
                device.close()
            raise
        self._marks = self._launch_marks() if self._kernels and has_kernels(devices) else Marks(session.clock.time_ns)
        if self._pick_up:
            self._annotations = Annotations(self._marks)
            self._annotations.attach()

    def _devices(self) -> list[Device]:
        """Its devices, opened."""
        devices = open_devices(self._specs, real_time=True)
        virtual = [device.spec for device in devices if device.clock.virtual]
        if virtual:
            for device in devices:
                device.close()
            raise BadInputError(f"record: {virtual[0]}: a loop takes real time; leave out realtime=0")
        return devices

    def _launch_marks(self) -> Marks:
        """Begin to trace kernels; marks for them."""
        tracer = self._tracer = InProcess(self._operators)
        time_ns = self._session.clock.time_ns
        return Marks(time_ns) if tracer.problem else LaunchMarks(time_ns, tracer.push, tracer.pop)

    def _end_marks(self) -> None:
        if self._annotations is not None:
            self._annotations.detach()
        if isinstance(self._marks, LaunchMarks):
            self._marks.leave()

    def _start_recorder(self) -> None:
        session = self._session
        try:
            session.start_recorder()
            warn_of_idle(session.run, session.devices)
            with Recording._changing:  # held until it has begun
                start_ns = self._start_ns
            self._sums = LiveSums(session.run, session.recorder.follow(), start_ns)
        except JouletraceError as error:
            self._failed = error if isinstance(error, RecorderDiedError) else RecorderDiedError(str(error))
            session.run.warn("failed", str(error))
        finally:
            self._started.set()

    def _flush_regularly(self) -> None:
        self._start_recorder()
        due = time.monotonic() + self._update_s  # not before there is a record
        while not self._ending.wait(self._pause_s(due)) and self._failed is None:
            with self._flushing:
                self._flush()
            if self._annotations is not None:
                self._annotations.attach()  # covers modules imported since
            try:
                self._session.recorder.check()
            except RecorderDiedError as error:
                if self._sums is not None:
                    self._sums.problem = str(error)
            if self._on_update is not None and time.monotonic() >= due:
                due = time.monotonic() + self._update_s
                self._tell(self._on_update)

    def _pause_s(self, due: float) -> float:
        """Seconds until spans are to be written, or an update is due."""
        return _FLUSH_S if self._on_update is None else min(_FLUSH_S, max(due - time.monotonic(), _LEAST_S))

    def _tell(self, on_update: OnUpdate) -> None:
        try:
            on_update(self.now())
        except BaseException as error:  # no exception of the user's function may end the recording
            self._on_update = None
            message = f"on_update failed and was not called again ({type(error).__name__}: {error})"
            self._session.run.warn("update_failed", message)

    def _flush(self) -> None:
        """Write ended spans and add new readings; ``_flushing`` is held."""
        spans = self._marks.take()
        if self._sums is not None:
            self._sums.update(spans, self._marks.still_open())
        if not spans or (self._failed is not None and self._sums is not None):  # they couldn't be written before
            return
        try:
            self._session.spool_spans(span_columns(spans, self._session.devices[0].info.id))
        except RecorderDiedError as error:
            self._failed = error

    def _end_with(self, error: BaseException | None) -> None:
        self._check_begun()
        if threading.current_thread() is self._flusher:
            raise BadInputError(f"record: {self.label!r} can't be ended by on_update; end it in the loop")
        self._close(error)
        if error is None and self._failed is not None:
            raise self._failed

    def _close(self, error: BaseException | None) -> None:
        """End the recording, also after an error, and compute its figures."""
        if os.getpid() != self._owner:
            return
        with self._closing:
            if self.run is None:
                self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._tracer is not None and uses_cuda():
            settle()  # what the loop has launched belongs to it
        end_ns = self._session.clock.time_ns()  # before all that takes time
        with Recording._changing:
            if Recording.active is self:
                Recording.active = None
        self._end_marks()
        atexit.unregister(self._close)
        self._ending.set()
        traced = self._tracer.end() if self._tracer is not None else []
        self._started.wait()
        self._flusher.join(_PATIENCE_S)
        if self._flusher.is_alive():
            text = f"on_update had not returned {_PATIENCE_S:g} s after the end, and was abandoned"
            self._session.run.warn("update_failed", text)
        with self._flushing:
            self._flush()
        self._add_phases(traced, end_ns)
        self._finish(error, end_ns)
        analysis.analyse(self._session.run)
        self.run = self._session.run
        self._save(self.run, traced, error)

    def _add_phases(self, traced: Sequence[ProcessTrace], end_ns: int) -> None:
        """Add when there was a record and when kernels were traced, and what is wrong with the marks."""
        session, run = self._session, self._session.run
        begin_ns = self._recorded_from(end_ns)
        session.add_span("phase", "monitor", begin_ns, end_ns, "record")
        began = [process.segments[0][0] for process in traced if process.segments]
        if self._tracer is not None and began:
            since_ns = min(began) if self._tracer.ran else begin_ns
            session.add_span("phase", SPAN, max(since_ns, begin_ns), end_ns, "record")
        if self._tracer is not None and self._tracer.problem:
            run.warn("not_traced", f"kernels: {self._tracer.problem}")
        run.settings["not_synchronised"] = sorted(self._marks.not_synchronised)
        for warning in self._marks.warnings():
            run.warn(*warning)

    def _finish(self, error: BaseException | None, end_ns: int) -> None:
        """End the session, early after an error, or if recording couldn't start."""
        session = self._session
        if self._sums is None:
            error = error or self._failed
        try:
            session.warn_of_others(others(session.devices, used_here=uses_cuda()))
            if error is not None:
                session.__exit__(type(error), error, error.__traceback__)
            else:
                session.finish()
        except RecorderDiedError as died:
            self._failed = self._failed or died
        finally:
            if self._sums is not None:
                self._sums.end(end_ns)
            for device in session.devices:
                device.close()

    def _recorded_from(self, end_ns: int) -> int:
        """Start of the record of all GPUs: a driver that keeps no past readings is read from a second later."""
        since_ns = self._sums.since_ns if self._sums is not None else 0
        if since_ns <= self._start_ns:
            return self._start_ns
        late_s = (since_ns - self._start_ns) / 1e9
        self._session.run.warn("recorded_late", f"power is recorded from {late_s:.2f} s after the start on")
        return since_ns if since_ns < end_ns else self._start_ns

    def _save(self, run: Run, traced: Sequence[ProcessTrace], error: BaseException | None) -> None:
        if self._place is None or self.rank is None:
            self.split = split_of(run, traced, self._place)
        if self._place is None:
            return
        if self.rank is not None:
            leave(traced, self._place)
        run.settings["ended"] = True  # in the header, which is written last: the part may be merged now
        keep(run, self._place, taken=self._session.folder is not None)
        if self.rank is None or self.rank.rank or self._whole is None:
            return
        if error is None:
            self.run, self.split = merge_when_all_ended(self._whole, self.rank)
        else:  # the launcher is about to end all other ranks: later parts need `jouletrace merge`
            with suppress(BadInputError):
                self.run, self.split = merge_when_all_ended(self._whole, self.rank, wait_s=5.0)


def _forget_parent() -> None:
    """Deactivate the recording in a fork: it belongs to the parent, which may hold the lock at the fork."""
    Recording._changing = threading.Lock()
    if Recording.active is not None:
        Recording.active.leave_to_parent()
        Recording.active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def is_seconds(value: object) -> bool:
    """True if a value is a finite number."""
    return isinstance(value, Real) and math.isfinite(value)
