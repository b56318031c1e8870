"""A recording in progress: the recorder, the phases, the spooled tables, and finally the Run.

Recorded data survives an exception, Ctrl-C and a kill of the recorder: the recorder writes to a spool from a separate
process, spans and windows are spooled at once, and ``run.json`` is on disk from the start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from jouletrace.arrays import Floats, Indices, Ints
from jouletrace.devices.base import Clock, Device, Process, used_by
from jouletrace.devices.host import beside
from jouletrace.errors import BadInputError, BrokenOffError, ClosedError, RecorderDiedError
from jouletrace.known_secrets import refresh
from jouletrace.recording import calibrations, open_recorder
from jouletrace.recording.base import Recorder
from jouletrace.recording.collector import written_to
from jouletrace.recording.environment import commit, environment, versions
from jouletrace.recording.job import scheduled_job
from jouletrace.recording.spooled import SpooledRows, span_rows
from jouletrace.run import Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.figures import Units
from jouletrace.run.files import shown
from jouletrace.run.forms import Settings, WorkloadFacts
from jouletrace.run.gathered import gather, is_large
from jouletrace.run.lazily import compute as pc
from jouletrace.run.masking import mask, masked_arguments
from jouletrace.run.measured import keep, mend
from jouletrace.run.places import written
from jouletrace.run.scratch import Scratch
from jouletrace.run.spool import SPOOL, SpoolWriter, read_spool
from jouletrace.run.store import remove_own, save_header
from jouletrace.tracer.process_trace import Launched

WITH_HOST = ("profile", "program", "monitor", "record")
"""Kinds of Runs beside whose GPUs their host is recorded, where it can be read."""


class Session:
    """Records one or several devices within a ``with`` block.

    Args:
        kind: ``Run.kind``.
        devices: The devices to record; they must share one clock.
        folder: Folder of the Run, resolved now, so that a later ``chdir`` doesn't matter; None to keep it in memory
            (spooled to a temporary folder).
        command, workload, settings: As in ``Run``.
        calibrated: Whether stored calibrations of the devices count.
        power_s, kept_s: As in ``Collector``.
        id: Of the Run for which the folder has been taken (``run.places.begin``); "" if it hasn't.
        meanwhile: Work for the host while the recorder starts.

    Attributes:
        folder: As given, absolute.
    """

    def __init__(
        self,
        kind: str,
        devices: Sequence[Device],
        *,
        folder: Path | None = None,
        command: str = "",
        workload: WorkloadFacts | None = None,
        settings: Settings | None = None,
        calibrated: bool = True,
        power_s: float | None = None,
        kept_s: float | None = None,
        id: str = "",
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.devices = list(devices)
        self.clock: Clock = devices[0].clock
        self.folder = folder.absolute() if folder is not None else None
        self._scratch = Scratch() if self.folder is None else None
        self._home = self._scratch.path if self._scratch is not None else Path(self.folder or "")
        self.run = Run(
            kind=kind,
            command=command,
            workload=workload or {},
            settings=settings or {},
            devices=[device.info for device in devices],
            complete=False,
        )
        if job := scheduled_job():
            self.run.workload["job"] = job
        self._is_first, self._calibrated, self._meanwhile = not id, calibrated, meanwhile
        self.run.id = id or self.run.id
        self._next_span = 0
        self._recording = self._finished = False
        self._rows: dict[str, SpooledRows] = {}
        self._others: dict[str, dict[int, Process]] = {}
        self._on_disk: SpoolWriter | None = None
        self._host = beside(self.devices) if kind in WITH_HOST else []
        self.recorder: Recorder = open_recorder([*self.devices, *self._host], self._home / SPOOL, power_s, kept_s)

    def __enter__(self) -> Self:
        """Start recording.

        Raises:
            BadInputError: If the folder can't be written.
            RecorderDiedError: If recording can't start.
        """
        self.open()
        try:
            if self._meanwhile is None:
                self.start_recorder()
            else:
                with ThreadPoolExecutor(1) as beside:
                    started = beside.submit(self.start_recorder)
                    self._meanwhile()
                    started.result()
        except BaseException as error:
            self._end_early(error)
            raise
        return self

    def open(self) -> None:
        """Accept spans: the first half of ``with``, for who doesn't want to wait for the recorder.

        Raises:
            BadInputError: If the folder can't be written.
        """
        self.run.created_ns = self.clock.time_ns()
        self._pair_clocks(ahead_ns=0)
        mend(self.run)
        save_header(self.run, self._home, first=self._is_first)  # from here on a crash leaves a readable Run
        try:
            self._rows = {name: SpooledRows(self._home / SPOOL, name) for name in ("spans", "windows", "units")}
        except Exception:  # an interrupt keeps the Run that is on disk already
            remove_own(self._home)
            raise

    def start_recorder(self) -> None:
        """Record the devices, which takes a second to start; the second half of ``with``, in any thread.

        Raises:
            RecorderDiedError: If recording can't start.
        """
        self.recorder.start()
        self._recording = True
        self.run.channels = list(self.recorder.channels)
        for device in self.devices if self._calibrated else ():
            calibrations.attach(self.run, device)
        self.save_header()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            self._end_early(error)

    @contextmanager
    def phase(self, name: str, lane: str = "profile") -> Iterator[None]:
        """Add a phase to ``spans``, also if it ends with an exception."""
        start = self.clock.time_ns()
        try:
            yield
        finally:
            self.add_span("phase", name, start, self.clock.time_ns(), lane)

    def add_span(self, kind: str, name: str, start_ns: int, end_ns: int, lane: str, device: str | None = None) -> int:
        """Add one span and spool it; returns its id."""
        row = {"id": 0, "kind": kind, "name": name, "lane": lane, "start_ns": start_ns, "end_ns": end_ns}
        return self.add_spans([row | {"device": device or self.devices[0].info.id}])

    def add_iterations(self, start_ns: int, seconds: Floats, lane: str) -> None:
        """Add one span per iteration, contiguous from ``start_ns``."""
        edges = start_ns + np.concatenate([[0], np.cumsum(np.round(seconds * 1e9))]).astype(np.int64)
        about = {"kind": "iteration", "name": "iteration", "lane": lane}
        self.add_spans(
            [{"id": i, **about, "start_ns": int(a), "end_ns": int(b)} for i, (a, b) in enumerate(pairwise(edges))]
        )

    def add_spans(self, rows: Sequence[Mapping[str, object]]) -> int:
        """Add spans whose rows have the same keys; their ids and parents are relative to the first id, returned."""
        first, self._next_span = self._next_span, self._next_span + len(rows)
        device = self.devices[0].info.id
        self._rows["spans"].append([{"device": device, **row, **_moved(row, first)} for row in rows])
        return first

    def add_window(self, **columns: object) -> None:
        """Add one row of ``windows`` and spool it."""
        self._rows["windows"].append([{"order": len(self._rows["windows"]), **columns}])

    def add_units(self, units: Units) -> None:
        """Add units and spool them."""
        self._rows["units"].append(units.table().to_pylist())

    def add_samples(self, rows: list[dict[str, object]]) -> None:
        """Add and spool readings from outside the recorder; the caller adds their channels to ``run.channels``."""
        self._add("samples", rows, "beside")

    def read_host(self) -> None:
        """Read the counters of the host now: of the time before the recorder has started."""
        for host in self._host:
            self.add_samples(host.first())

    def add_requests(self, rows: list[dict[str, object]]) -> None:
        """Add and spool requests to a server."""
        self._add("requests", rows)

    def _add(self, table: str, rows: list[dict[str, object]], part: str = "") -> None:
        if not rows:
            return
        if table not in self._rows:
            self._rows[table] = SpooledRows(self._home / SPOOL, table, part)
        self._rows[table].append(rows)

    def spool_spans(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Write spans that stay only on disk until the end, for recordings of any length; the caller sets the ids.

        Raises:
            RecorderDiedError: If they can't be written.
        """
        with written_to(self._home):
            if self._on_disk is None:
                self._on_disk = SpoolWriter(self._home / SPOOL, "spans", "live")
            self._on_disk.append(columns)

    def add_trace(self, work: Launched, units: Sequence[int], iteration: Indices) -> None:
        """Add one span per launch on the first device, within one span per iteration.

        Args:
            work: The launches.
            units: Unit id of each, length n.
            iteration: Iteration of each, shape (n,).
        """
        above = {}
        for number in np.unique(iteration):
            here = iteration == number
            edges = int(work.start_ns[here].min()), int(work.end_ns[here].max())
            above[int(number)] = self.add_span("iteration", "iteration", *edges, "tracing")
        first, self._next_span = self._next_span, self._next_span + len(work)
        self._rows["spans"].append(
            span_rows(work, units, [above[int(i)] for i in iteration], first, self.devices[0].info.id)
        )

    def add_activity(self, columns: Mapping[str, object]) -> None:
        """Spool and keep the kernels of one more recording, by column; see ``run.tables.ACTIVITY``.

        Raises:
            RecorderDiedError: If they can't be written.
        """
        part = str(len(self.run.activity) or "")  # a file of its own for each recording
        with written_to(self._home), SpoolWriter(self._home / SPOOL, "activity", part) as writer:
            writer.append(columns)
        self.run.activity = read_spool(self._home / SPOOL, "activity")

    def power(self, since_ns: int, device: str | None = None) -> tuple[Ints, Floats]:
        """The power record since ``since_ns``: stamps in ns and power in watts."""
        table = self.recorder.samples()
        wanted = pc.and_(
            pc.and_(pc.equal(table["channel"], POWER), pc.equal(table["device"], device or self.devices[0].info.id)),
            pc.greater_equal(table["time_ns"], since_ns),
        )
        rows = table.filter(wanted)
        return rows["time_ns"].to_numpy(), rows["value"].to_numpy()

    def snapshot(self) -> Run:
        """The Run so far, without figures: the input of the stopping rule."""
        in_files = self._finished and is_large(self._home / SPOOL)
        self.run.samples = self.recorder.samples() if self._recording and not in_files else tables.empty("samples")
        if in_files or not self.recorder.is_whole():
            with written(self._home, BrokenOffError):
                gather(self.run, self._home / SPOOL, self._home / SPOOL)
        elif "samples" in self._rows:
            self.run.samples = tables.concat([self.run.samples, self._rows["samples"].table()], "samples")
        if self._on_disk is None:
            self.run.spans = self._rows["spans"].table()
        elif self._finished:
            self.run.spans = read_spool(self._home / SPOOL, "spans")
        if "requests" in self._rows:
            self.run.requests = self._rows["requests"].table()
        self.run.windows, self.run.units = self._rows["windows"].table(), self._rows["units"].table()
        return self.run

    def finish(self, *, complete: bool = True) -> Run:
        """Record the sensor's tail, stop recording and assemble the Run; saves it if it has a folder.

        Raises:
            RecorderDiedError: If the recorder had failed before. The recorded data has then been saved and marked
                incomplete.
        """
        if self._finished:
            return self.run
        self._finished = True
        died: RecorderDiedError | None = None
        try:
            cost = self.recorder.stop()
            self.run.recorder = {"cpu_s": cost.cpu_s, "wall_s": cost.wall_s, "samples": float(cost.samples)}
            for rows in self._rows.values():
                rows.close()
            if self._on_disk is not None:
                self._on_disk.close()
                if not self._on_disk.path.exists():
                    raise RecorderDiedError(f"another process removed the spans in {shown(self._on_disk.path)}")
        except RecorderDiedError as error:
            died = error
            self.run.warn("failed", str(error))
        self._pair_clocks(self.clock.ahead_ns())
        self.run.versions, self.run.environment = versions(), environment()
        self.snapshot()
        self.run.complete = complete and died is None
        if self._scratch is not None:
            self._scratch.remove()
        self.save()
        if died is not None:
            raise died
        return self.run

    def save(self) -> None:
        """Save the Run, if it has a folder; again, once figures have been added to what ``finish`` saved.

        Raises:
            BrokenOffError: If it can't be saved there.
        """
        refresh()
        mask(self.run)
        if self.folder is not None:
            keep(self.run, self.folder, taken=True)
        else:
            mend(self.run)

    def save_header(self) -> None:
        """Write the Run without its tables, so that it can be read after a crash.

        Raises:
            BadInputError: If it can't be written before recording has started.
            BrokenOffError: If it can't be written afterwards.
        """
        self.run.versions, self.run.environment = versions(), environment()
        mend(self.run)
        try:
            save_header(self.run, self._home)
        except BadInputError as error:
            raise BrokenOffError(str(error)) if self._recording else error from None

    def _end_early(self, error: BaseException) -> None:
        """Save what was recorded before ``error``, which the caller then raises."""
        if self._finished:
            return
        if not isinstance(error, RecorderDiedError):  # ``finish`` adds the warning for that itself
            self.run.warn("interrupted", ended_by(error))
        with suppress(RecorderDiedError):
            self.finish(complete=False)

    def warn_of_others(self, users: Mapping[str, Sequence[Process]], ours: Collection[int] = ()) -> None:
        """Warn of the processes that ``others`` names, with those of earlier calls but the pids ``ours``."""
        for id, there in users.items():
            seen = self._others.setdefault(id, {})
            seen.update({process.pid: process for process in there})
            for pid in ours:
                seen.pop(pid, None)
            named = "other_processes", id
            self.run.warnings = [warning for warning in self.run.warnings if (warning.code, warning.where) != named]
            if seen:
                self.run.warn("other_processes", used_by(seen.values()), id)

    def state_commit(self, wanted: bool) -> None:
        """State the commit of the working folder if that is wanted and git knows one; it takes up to some seconds."""
        if wanted and (stated := commit()):
            self.run.workload["commit"] = stated

    def _pair_clocks(self, ahead_ns: int) -> None:
        """Note what the host's clock shows, which may have been set since ours was made, beside a steady one."""
        shown_ns = self.clock.time_ns() + ahead_ns
        self.run.clock_pairs.append({"time_ns": shown_ns, "monotonic_ns": self.clock.monotonic_ns()})


def _moved(row: Mapping[str, object], first: int) -> dict[str, object]:
    ids = {name: row.get(name) for name in ("id", "parent")}
    return {name: id + first if isinstance(id, int) else None for name, id in ids.items()}


def ended_by(error: BaseException) -> str:
    """The warning "interrupted" of an incomplete Run, which an exception ended."""
    said = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    said = str(error) if isinstance(error, ClosedError) else said
    return f"ended early by {said}; what was recorded until then is kept"


def command_line(left_out: int = 0) -> str:
    """The command line as typed, for ``Run.command``, with secrets masked, and without so many words at its end."""
    return " ".join(["jouletrace", *masked_arguments(sys.argv[1 : len(sys.argv) - left_out])])
