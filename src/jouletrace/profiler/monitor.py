"""``monitor``: record devices while something else runs, and say what they drew."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace import analysis
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.profiler.session import Session
from jouletrace.run import Run
from jouletrace.run.store import save


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
    """Record until the command ends, the duration is over, or Ctrl-C.

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
        BadInputError: If the command can't be started.
        RecorderDiedError: If recording ended by itself.
    """
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
        watch = _Watch(session, on_tick)
        start = session.clock.time_ns()
        try:
            if command:
                code = _with_command(session, command, interval_s, watch)
            else:
                while duration_s is None or (session.clock.time_ns() - start) / 1e9 < duration_s:
                    left = interval_s if duration_s is None else duration_s - (session.clock.time_ns() - start) / 1e9
                    session.clock.sleep(min(interval_s, max(left, 0.0)))
                    watch.tick()
        except KeyboardInterrupt:
            pass  # the ordinary end of a monitor
        session.add_span("phase", "monitor", start, session.clock.time_ns(), "monitor")
        run = session.finish()
    analysis.analyse(run)
    if folder is not None:
        save(run, folder, overwrite=True)
    return run, code


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
    except KeyboardInterrupt:
        process.wait()  # it has had the same Ctrl-C; its end is waited for, so that it is in the record
    except JouletraceError:
        process.terminate()
        raise
    session.add_span("range", " ".join(command), start, session.clock.time_ns(), "command")
    if process.returncode != 0:
        session.run.warn("command_failed", f"{command[0]} ended with exit code {process.returncode}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


class _Watch:
    """Turns the growing record into the latest reading of each channel."""

    def __init__(self, session: Session, on_tick: Tick | None) -> None:
        self._session = session
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
            mean = row["channel"] == "power_w"
            value = row["value_mean"] if mean else row["value_last"]
            if value is not None and np.isfinite(value):
                reading.values[row["channel"]] = value
                reading.time_ns = max(reading.time_ns, row["time_ns_max"])
