"""Records a program that runs in this process, from before its first CUDA call to its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace import analysis
from jouletrace.analysis.recording import PHASE
from jouletrace.devices import open_devices
from jouletrace.errors import NotPossibleError, RecorderDiedError
from jouletrace.profiler import calibrations
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.program import timeline
from jouletrace.profiler.program.imports import AfterImport
from jouletrace.profiler.program.operators import OperatorSampler
from jouletrace.profiler.program.script import HardExit, Script
from jouletrace.profiler.program.streams import Streams
from jouletrace.profiler.record.annotations import Annotations
from jouletrace.profiler.record.ranges import Marks, Opened
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.store import save
from jouletrace.tracing.log import Ints, KernelLog, Launched

LOOK_S = 0.25
"""Time between looks at the program."""

ALL_KERNELS, TRACED_S, EVERY_S = 1_500_000, 5.0, 60.0
"""A program with more kernels is traced for 5 s of every minute from then on. Until then CUPTI's records (216 bytes per
kernel) are kept as they are: decoding them takes the interpreter from the program."""

MOST_LOADS = 1_000_000
"""Largest number of calls of a data loader whose times are kept."""

_WRAPPED = ("torch.cuda.nvtx", "torch.autograd.profiler", "nvtx.nvtx", "torch.utils.data.dataloader")

SHORT_GAP_S = 20e-6
"""Idle time between kernels up to this length lies between launches that the GPU has already received."""

FIRST_RANGE = 1 << 20
"""Meanings of marks from here on are ranges."""


@dataclass
class Settings:
    """How a program is recorded.

    Attributes:
        devices: As for ``--device``.
        operators: Whether operators and modules are sampled.
    """

    devices: list[str] = field(default_factory=lambda: ["visible"])
    operators: bool = True


class RangeMarks(Marks):
    """Marks of ranges, which also mark the launches within them.

    Args:
        time_ns: As for ``Marks``.
        mark: Marks the place between two launches.
    """

    def __init__(self, time_ns: Callable[[], int], mark: Callable[[int], None]) -> None:
        super().__init__(time_ns)
        self.paths: list[tuple[str, ...]] = []
        self._mark, self._index = mark, dict[int, int]()

    def begin(self, name: str) -> Opened:
        """See ``Marks``."""
        opened = super().begin(name)
        self._index[opened.id] = len(self.paths)
        self.paths.append(opened.path)
        self._mark(FIRST_RANGE + 2 * self._index[opened.id])
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """See ``Marks``."""
        number = self._index.pop(opened.id, None)
        if number is not None:
            self._mark(FIRST_RANGE + 2 * number + 1)
        super().end(opened, sync)
        self.take()  # the spans themselves aren't kept


class Recorder:
    """The recording around a program.

    Args:
        session: The session in progress.
        settings: How to record.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        self.problem = ""
        self.loads: list[tuple[int, int]] = []
        self.segments: list[tuple[int, int, float]] = []
        self._session, self._owner = session, os.getpid()
        self._log: KernelLog | None = None
        try:
            self._log = KernelLog()
            self._log.start()
        except NotPossibleError as error:
            self._log, self.problem = None, str(error)
            if all(device.info.kind == "cpu" for device in session.devices):
                self.problem = "there is no GPU here, so that only the time of the program is known"
        self.marks = RangeMarks(session.clock.time_ns, self._mark)
        self.sampler = OperatorSampler(self._mark) if settings.operators else None
        self._annotations = Annotations(self.marks)
        self._ending = threading.Event()
        self._undo: list[Callable[[], None]] = []
        self._traced_from = session.clock.time_ns()
        self._wrap()
        self._imports = AfterImport(_WRAPPED, self._wrap).__enter__()
        self._thread = threading.Thread(target=self._keep_up, name="jouletrace-run", daemon=True)
        self._thread.start()

    def _mark(self, meaning: int) -> None:
        if self._log is not None and os.getpid() == self._owner:
            self._log.mark(meaning)

    def _keep_up(self) -> None:
        paused: float | None = None
        resumed = time.monotonic()
        while not self._ending.wait(LOOK_S):
            self._wrap()
            if self.sampler is not None and self._log is not None:
                self.sampler.look()
            now = time.monotonic()
            if self._log is None:
                continue
            try:
                if paused is not None and now - paused >= EVERY_S - TRACED_S:
                    self._log.resume()
                    self._traced_from, paused, resumed = self._session.clock.time_ns(), None, now
                elif paused is None and self._log.kernels > ALL_KERNELS and now - resumed >= TRACED_S:
                    self._end_segment()
                    self._log.pause()
                    paused = now
            except (NotPossibleError, ValueError) as error:
                self.problem = f"{error}; kernels after that are missing"
                return
            try:
                self._session.recorder.check()
            except RecorderDiedError as error:
                self._session.run.warn("failed", str(error))
                return

    def _end_segment(self) -> None:
        weight = 1.0 if not self.segments else EVERY_S / TRACED_S
        self.segments.append((self._traced_from, self._session.clock.time_ns(), weight))

    def _wrap(self) -> None:
        """Wrap what the program has imported since."""
        self._annotations.attach()
        self._wrap_loader()

    def _wrap_loader(self) -> None:
        """Time what the program waits for torch's data loader."""
        module = sys.modules.get("torch.utils.data.dataloader")
        if self._undo or not hasattr(module, "_BaseDataLoaderIter"):
            return
        assert module is not None
        kind, original, loads = module._BaseDataLoaderIter, module._BaseDataLoaderIter.__next__, self.loads

        def timed(it: Any) -> Any:
            begin = time.time_ns()
            try:
                return original(it)
            finally:
                if len(loads) < MOST_LOADS:
                    loads.append((begin, time.time_ns()))

        kind.__next__ = timed
        self._undo.append(lambda: setattr(kind, "__next__", original))

    def end(self) -> tuple[Launched, timeline.Marks] | None:
        """End tracing; what ran, and None if nothing was traced."""
        self._ending.set()
        self._thread.join(10.0)
        self._imports.__exit__()
        self._annotations.detach()
        for undo in self._undo:
            undo()
        if self.sampler is not None:
            self.sampler.end()
        if self._log is None:
            return None
        synchronize()
        self._end_segment()
        try:
            self._log.stop()
        except (NotPossibleError, ValueError) as error:
            self.problem = str(error)
        if self._log.dropped:
            text = f"the tracer dropped {self._log.dropped} records: kernels are missing"
            self._session.run.warn("records_dropped", text)
        work, number, meanings = self._log.launched()
        if not len(work):
            self.problem = self.problem or "the program ran no kernels in this process"
            return None
        labels = self.sampler.labels if self.sampler is not None else []
        return work, timeline.Marks(number, np.array(meanings, np.int64), labels, self.marks.paths, FIRST_RANGE)

    @property
    def dropped(self) -> int:
        """Records that CUPTI dropped."""
        return self._log.dropped if self._log is not None else 0


def run_program(
    script: Script,
    settings: Settings,
    *,
    folder: Path | None = None,
    command: str = "",
    ends: bool = False,
    then: Callable[[Run, int], None] = lambda run, code: None,
) -> tuple[Run, int]:
    """Run a program and say where its energy went.

    Args:
        script: The program, checked.
        settings: How to record.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.
        ends: As for ``Script.run``.
        then: Receives what is returned, also where the program ends the process by ``os._exit`` or by a signal.

    Returns:
        The analysed Run, and the exit code of the program. A process that the program forks ends here.

    Raises:
        BadInputError, NotPossibleError: If the devices can't be opened.
        RecorderDiedError: If the recorder failed; the folder holds what was recorded.
    """
    devices = open_devices(settings.devices)
    try:
        about: WorkloadFacts = {"name": script.name, "arguments": len(script.arguments)}
        session = Session("program", devices, folder=folder, command=command, workload=about)
        with session:
            for device in devices:
                calibrations.attach(session.run, device)
            calibrations.recall_rate(session.run, devices[0].info.id)
            recorder = Recorder(session, settings)
            owner, begin_ns = os.getpid(), session.clock.time_ns()
            finished: list[Run] = []
            finishing, streams = threading.Lock(), Streams()

            def finish(code: int) -> None:
                with finishing:
                    if not finished:
                        streams.restore()
                        finished.append(_finish(session, recorder, begin_ns, code))
                        then(finished[0], code)

            with HardExit(finish):
                code = script.run(ends)
            if os.getpid() != owner:  # a fork that came to the end of the program
                streams.flush()
                os._exit(code)
            finish(code)
    finally:
        for device in devices:
            device.close()
    return finished[0], code


def _finish(session: Session, recorder: Recorder, begin_ns: int, code: int) -> Run:
    """End the recording and compute its figures."""
    found = recorder.end()
    end_ns = session.clock.time_ns()
    session.add_span("phase", "program", begin_ns, end_ns, "program")
    run = session.run
    run.workload["exit_code"] = code
    if code:
        run.warn("program_failed", f"the program ended with exit code {code}; figures are of what ran until then")
    if found is not None:
        _add_rows(session, recorder, *found)
    if recorder.problem:
        run.warn("not_traced", f"kernels: {recorder.problem}")
    session.finish()
    analysis.analyse_recorded(run)
    calibrations.remember_rate(run, run.devices[0].id)
    if session.folder is not None:
        save(run, session.folder, overwrite=True)
    return run


def _add_rows(session: Session, recorder: Recorder, work: Launched, marks: timeline.Marks) -> None:
    """Add units and the timeline of the device on which kernels ran for the longest."""
    length = work.end_ns - work.start_ns
    used = int(np.argmax(np.bincount(work.device, length)))
    if len(np.unique(work.device)) > 1:
        session.run.warn("one_device", f"kernels are those of CUDA device {used}, on which they ran for the longest")
        work = work.take(work.device == used)
    rows = timeline.rows_of(work, _weights(work, recorder.segments), marks, 1)
    session.add_units(rows.units)
    session.add_activity({**rows.activity, "copy": np.zeros(len(rows.activity["unit"]), bool)})
    session.run.workload[PHASE] = {
        "device": _device_id(session, used),
        "iterations": 1,
        "iterations_by": None,
        "start_ns": rows.begin_ns,
        "end_ns": rows.end_ns,
        "whole": [rows.begin_ns, rows.end_ns, 1],
        "unmatched": rows.unmatched,
        "first_ns": int(work.start_ns.min()),
        "dropped": recorder.dropped,
        "seconds": rows.seconds,
        "kernels": len(work),
        "idle_by": _idle_by(rows.activity["start_ns"], rows.activity["end_ns"], recorder.loads),
    }
    if recorder.sampler is not None and recorder.sampler.problem and not recorder.sampler.labels:
        session.run.workload[PHASE]["note"] = f"operators: {recorder.sampler.problem}"


def _device_id(session: Session, number: int) -> str:
    """The recorded device that CUDA gives a number."""
    ids = [device.info.id for device in session.devices]
    return ids[number] if number < len(ids) else ids[0]


def _weights(work: Launched, segments: list[tuple[int, int, float]]) -> NDArray[np.float64]:
    """For how many of its like each kernel stands, shape (n,)."""
    weight = np.ones(len(work))
    for begin, end, factor in segments:
        weight[(work.start_ns >= begin) & (work.start_ns < end)] = factor
    return weight


def _idle_by(start: Ints, end: Ints, loads: list[tuple[int, int]]) -> dict[str, float]:
    """Shares of the idle time: waiting for the data loader, between launches, and for the host otherwise."""
    until = np.maximum.accumulate(end)[:-1]
    gap = np.maximum(start[1:] - until, 0)
    total = float(gap.sum())
    if total <= 0:
        return {}
    short = float(gap[gap <= SHORT_GAP_S * 1e9].sum())
    long = gap > SHORT_GAP_S * 1e9
    loading = _overlap(until[long], start[1:][long], np.array(sorted(loads), np.int64).reshape(-1, 2))
    return {
        "data loading": loading / total,
        "between launches": short / total,
        "host": max(total - short - loading, 0.0) / total,
    }


def _overlap(start: Ints, end: Ints, spans: Ints) -> float:
    """Length that intervals have in common with spans, both ascending; overlapping spans count once."""
    if not len(spans) or not len(start):
        return 0.0
    begin, until = spans[:, 0], np.maximum.accumulate(spans[:, 1])
    begin = np.maximum(begin, np.append(begin[0], until[:-1]))
    covered = np.append(0, np.cumsum(np.maximum(until - begin, 0)))
    edges, values = (
        np.column_stack([begin, np.maximum(until, begin)]).ravel(),
        np.column_stack([covered[:-1], covered[1:]]).ravel(),
    )
    return float((np.interp(end, edges, values) - np.interp(start, edges, values)).sum())
