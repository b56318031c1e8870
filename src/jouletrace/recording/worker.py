"""The recording process: ``python -m jouletrace.recording.worker CONFIG``.

A separate program, not a fork or ``multiprocessing`` child, so that the user's ``__main__`` isn't
imported again and a crash of the workload doesn't end the recording. It exchanges lines with its parent:

- standard input: "poll" requests the power record at once; the end of the input, on request or
  because the parent has ended, ends the recording.
- standard output, one JSON object per line: "ready" with the channels and the time after the first poll,
  "source_failed", "failed", and "done" with the cost of recording.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace.devices.base import Device, Source
from jouletrace.errors import JouletraceError, RecorderDiedError
from jouletrace.recording.collector import TAIL_S, Collector
from jouletrace.run.files import RUN_JSON, quoted
from jouletrace.run.scratch import remove_left_behind
from jouletrace.without_pandas import hide_pandas


class Deadlines:
    """Deadlines of sources.

    All deadlines are integer multiples of a source's interval after ``start_ns``: sources with the
    same interval share one wake-up, and a late source skips its missed deadlines.

    Args:
        sources: The sources to poll; the first poll is due one interval after the start.
        start_ns: Origin of the grid in nanoseconds, on a monotonic clock.
    """

    def __init__(self, sources: Iterable[Source], start_ns: int) -> None:
        self._origin = start_ns
        self._deadlines = [(source, self._next(source, start_ns)) for source in sources]

    def due(self, now_ns: int) -> list[Source]:
        """The sources whose deadline has passed; call ``advance`` after polling them."""
        return [source for source, deadline in self._deadlines if deadline <= now_ns]

    def advance(self, now_ns: int, alive: list[Source]) -> None:
        """Set the next deadline of each due source by its current interval; drop sources that aren't in ``alive``."""
        self._deadlines = [
            (source, deadline if deadline > now_ns else self._next(source, now_ns))
            for source, deadline in self._deadlines
            if source in alive
        ]

    def restart(self, now_ns: int) -> None:
        """Reset all deadlines after polls outside the schedule, which may have changed the intervals."""
        self._deadlines = [(source, self._next(source, now_ns)) for source, _ in self._deadlines]

    def wake_ns(self) -> int | None:
        """The earliest deadline; None if there is nothing to poll."""
        return min((deadline for _, deadline in self._deadlines), default=None)

    def _next(self, source: Source, now_ns: int) -> int:
        step = max(int(source.interval_s * 1e9), 1)
        return self._origin + ((now_ns - self._origin) // step + 1) * step


FLUSH_S = 1.0
_STDIN = 0


@dataclass
class Config:
    """The channels to record, and the place to write to.

    Attributes:
        specs: The devices' specs.
        spool: Folder of the stream.
        part: Part of the ``samples`` table.
        parent: Process id of the parent.
        factory: "module:function" that opens a device from its spec.
        power_s, kept_s: As in ``Collector``.
        errors: File descriptor of the parent's standard error, for a line after its death; None for no line.
    """

    specs: list[str]
    spool: str
    part: str
    parent: int
    factory: str = "jouletrace.devices.registry:open_device"
    power_s: float | None = None
    errors: int | None = None
    kept_s: float | None = None


@dataclass
class Control:
    """The parent's commands; waits without using the CPU.

    Attributes:
        parent: Process id of the parent. A fork of the parent may keep the pipe open after its death, so the
            end of input isn't a sufficient signal.
        ending: True once the parent has ended or requested the end, or this process received SIGTERM.
        asked: Whether the parent requested the end.
        terminated: Whether this process received SIGTERM.
    """

    parent: int
    ending: bool = False
    asked: bool = False
    terminated: bool = False

    def __post_init__(self) -> None:
        # Ctrl-C reaches every process at the terminal; the parent decides how to handle it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, _number: int, _frame: object) -> None:
        self.terminated = True

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a command; True if the power record is requested at once."""
        ready, _, _ = select.select([_STDIN], [], [], max(seconds, 0.0))
        wanted = False
        if ready:
            text = os.read(_STDIN, 4096)
            self.asked = self.asked or b"end" in text
            self.ending = self.ending or not text or self.asked
            wanted = b"poll" in text
        if self.terminated or os.getppid() != self.parent:
            self.ending = True
        return wanted


def run(config: Config) -> None:
    """Record until the parent ends the recording.

    Raises:
        JouletraceError: If a device can't be opened, or the spool can't be written.
    """
    control = Control(config.parent)
    module, _, function = config.factory.partition(":")
    opener: Callable[[str], Device] = getattr(importlib.import_module(module), function)
    devices: list[Device] = []
    try:
        for spec in config.specs:
            devices.append(opener(spec))
        collector = Collector(devices, Path(config.spool), config.part, config.power_s, config.kept_s)
        collector.poll_all()
        collector.flush()
        if collector.failures:
            raise RecorderDiedError("; ".join(collector.failures))
        cpu, start = time.process_time(), time.monotonic_ns()
        channels = [channel.to_dict() for channel in collector.channels]
        _say(event="ready", channels=channels, path=str(collector.path), since_ns=devices[0].clock.time_ns())
        _record(collector, control, start)
        collector.close()
        _say(
            event="done",
            cpu_s=time.process_time() - cpu,
            wall_s=(time.monotonic_ns() - start) / 1e9,
            samples=collector.samples,
            terminated=control.terminated,
        )
    finally:
        for device in devices:
            device.close()
        if os.getppid() != config.parent:  # the parent has died and can't remove its temporary folders
            remove_left_behind()
            if not control.asked:
                _say_where(config)


def _say_where(config: Config) -> None:
    """Write where the Run of a killed parent is, which can't write it itself."""
    folder = Path(config.spool).parent
    if config.errors is None or not (folder / RUN_JSON).exists():
        return
    path = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in quoted(folder))
    line = f"jouletrace: process {config.parent} was killed; what it had recorded: jouletrace show {path}\n"
    with contextlib.suppress(OSError):
        os.write(config.errors, line.encode(errors="backslashreplace"))


def _record(collector: Collector, control: Control, start_ns: int) -> None:
    schedule = Deadlines(collector.sources, start_ns)
    flush_ns = start_ns + int(FLUSH_S * 1e9)
    end_ns: int | None = None
    reported = 0
    while True:
        now = time.monotonic_ns()
        if control.ending and end_ns is None:
            end_ns = now + int(TAIL_S * 1e9)
            collector.poll_all()  # these readings lie before the end; the tail follows
            schedule.restart(now)
        due = schedule.due(now)
        for source in due:
            collector.poll(source)
        if due:
            schedule.advance(now, collector.sources)
        for failure in collector.failures[reported:]:
            _say(event="source_failed", message=failure)
        reported = len(collector.failures)
        if now >= flush_ns:
            collector.flush()
            flush_ns = now + int(FLUSH_S * 1e9)
        if end_ns is not None and now >= end_ns:
            collector.poll_all()
            return
        wake = min(t for t in (schedule.wake_ns(), flush_ns, end_ns) if t is not None)
        seconds = (wake - time.monotonic_ns()) / 1e9
        if end_ns is not None:
            time.sleep(max(seconds, 0.0))  # a select on the ended input would return at once
        elif control.wait(seconds):
            collector.poll_power()
            collector.flush()


def _say(**event: Any) -> None:
    with contextlib.suppress(OSError):  # the parent may have ended; the record is on the disk
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> int:
    """Entry point; the configuration is the first argument, as JSON."""
    hide_pandas()
    try:
        run(Config(**json.loads(sys.argv[1])))
    except JouletraceError as error:
        _say(event="failed", message=str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
