"""``monitor``: record devices while something else runs, and say what they drew."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace import analysis
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, TerminatedError
from jouletrace.profiler import calibrations
from jouletrace.profiler.session import Session
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.store import save

FLUSH_S = 1.0
LATE_S = 0.1
"""How old the newest power reading may be where lines come faster than ``FLUSH_S``."""


@dataclass
class Reading:
    """The latest readings of one device.

    Attributes:
        device: Its id.
        name: Its name.
        time_ns: Stamp of the newest reading.
        values: Latest value by channel name; power is the mean since the last tick.
    """

    device: str
    name: str
    time_ns: int = 0
    values: dict[str, float] = field(default_factory=dict)


Tick = Callable[[list[Reading]], None]


def monitor(
    devices: Sequence[Device],
    *,
    interval_s: float = 1.0,
    duration_s: float | None = None,
    command: Sequence[str] | None = None,
    folder: Path | None = None,
    typed: str = "",
    on_tick: Tick | None = None,
) -> tuple[Run, int]:
    """Record until the command ends, the duration is over, or Ctrl-C (or SIGTERM, which the command gets too).

    Args:
        devices: What to record.
        interval_s: Seconds between calls of ``on_tick``; the record itself has the sensor's pace.
        duration_s: Stop after so long; None for no limit.
        command: A program to run meanwhile.
        folder: Where the Run goes; None keeps it in memory.
        typed: For ``Run.command``.
        on_tick: Called with the latest readings.

    Returns:
        The analysed Run, and the command's exit code (0 without a command).

    Raises:
        BadInputError: If the command can't be started, or nothing would ever end the recording of a
            simulated board.
        RecorderDiedError: If recording ended by itself.
    """
    if devices[0].clock.virtual and (command or duration_s is None):
        why = "a command takes real time; write" if command else "its time passes at once; give a duration, or write"
        raise BadInputError(f"{devices[0].spec}: {why} {realtime(devices[0].spec)}")
    if command and shutil.which(command[0]) is None:
        why = "it is not executable" if Path(command[0]).exists() else "there is no such program"
        raise BadInputError(f"cannot run {command[0]!r}: {why}")
    session = Session(
        "monitor",
        devices,
        folder=folder,
        command=typed,
        workload={"name": " ".join(command) if command else "monitor"},
        settings={"interval_s": interval_s, "duration_s": duration_s},
    )
    code = 0
    with session:
        for device in devices:
            calibrations.attach(session.run, device)
        session.save_header()
        watch = _Watch(session, on_tick, interval_s)
        start = session.clock.time_ns()
        try:
            if command:
                code = _with_command(session, command, interval_s, watch)
            else:
                _until(session, start + int(duration_s * 1e9) if duration_s is not None else None, interval_s, watch)
        except KeyboardInterrupt:
            pass  # the ordinary end of a monitor
        session.add_span("phase", "monitor", start, session.clock.time_ns(), "monitor")
        run = session.finish()
    analysis.analyse(run)
    if folder is not None:
        save(run, folder, overwrite=True)
    return run, code


def realtime(spec: str) -> str:
    """The same simulated board in real time."""
    return f"{spec}{'&' if '?' in spec else '?'}realtime=1"


def _until(session: Session, end_ns: int | None, interval_s: float, watch: _Watch) -> None:
    while (left := interval_s if end_ns is None else (end_ns - session.clock.time_ns()) / 1e9) > 0:
        session.clock.sleep(min(interval_s, left))
        watch.tick()


def _with_command(session: Session, command: Sequence[str], interval_s: float, watch: _Watch) -> int:
    try:
        process = subprocess.Popen(list(command))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInputError(f"cannot run {command[0]!r}: {reason}") from None
    start = session.clock.time_ns()
    try:
        while True:
            try:
                process.wait(timeout=interval_s)
                break
            except subprocess.TimeoutExpired:
                watch.tick()
    except KeyboardInterrupt as error:
        # At a terminal it has had the same Ctrl-C; its end is waited for, so that it is in the record.
        if isinstance(error, TerminatedError):
            process.terminate()
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        session.add_span("range", " ".join(command), start, session.clock.time_ns(), "command")
    if process.returncode != 0:
        session.run.warn("command_failed", f"{command[0]} ended with {_how(process.returncode)}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _Watch:
    """Turns the growing record into the latest reading of each channel."""

    def __init__(self, session: Session, on_tick: Tick | None, interval_s: float) -> None:
        self._session = session
        self._hurry = interval_s < FLUSH_S
        self._on_tick = on_tick
        self._seen = 0
        self._readings = {d.info.id: Reading(d.info.id, d.info.name) for d in session.devices}

    def tick(self) -> None:
        """Look for new readings and hand them on.

        Raises:
            RecorderDiedError: If the recorder is gone.
        """
        self._session.recorder.check()
        if self._on_tick is None:
            return
        if self._hurry:  # the recorder hands on what it has once a second unless it is asked
            self._session.recorder.wait_until(self._session.clock.time_ns() - int(LATE_S * 1e9), LATE_S)
        table = self._session.recorder.samples()
        fresh = table.slice(self._seen)
        self._seen = len(table)
        self._take(fresh)
        self._on_tick(list(self._readings.values()))

    def _take(self, fresh: pa.Table) -> None:
        if len(fresh) == 0:
            return
        groups = fresh.group_by(["device", "channel"], use_threads=False).aggregate(
            [("time_ns", "max"), ("value", "mean"), ("value", "last")]
        )
        for row in groups.to_pylist():
            reading = self._readings.get(row["device"])
            if reading is None:
                continue
            mean = row["channel"] == POWER
            value = row["value_mean"] if mean else row["value_last"]
            if value is not None and np.isfinite(value):
                reading.values[row["channel"]] = value
                reading.time_ns = max(reading.time_ns, row["time_ns_max"])
