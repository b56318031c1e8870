"""The recorder in real time: a separate process polls the sensors and writes the stream that this side reads."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.base import Recorder, RecorderCost
from jouletrace.recording.collector import TAIL_S, fresh_part
from jouletrace.recording.worker import Config
from jouletrace.run import ChannelInfo
from jouletrace.version import HOME

LOG = "recorder.log"
"""File in the spool folder with the standard error of the worker."""


class WorkerLink:
    """A running worker.

    Args:
        config: What to record, and where.

    Raises:
        RecorderDiedError: If it can't be started.
    """

    def __init__(self, config: Config) -> None:
        self._log = Path(config.spool) / LOG
        command = [sys.executable, "-P", "-m", "jouletrace.recording.worker", json.dumps(asdict(config))]
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                # A separate process group: Ctrl-C, or a kill of the workload's group, doesn't reach it.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_environment(),
                    process_group=0,
                )
        except (OSError, ValueError) as error:
            raise RecorderDiedError(f"the recorder can't be started: {error}") from None
        self.pid = self._process.pid
        self._input = _pipe(self._process.stdin)
        self._output = _pipe(self._process.stdout)
        os.set_blocking(self._output.fileno(), False)
        self._partial = b""

    def events(self) -> list[dict[str, Any]]:
        """The events since the last call, without waiting."""
        while not self._output.closed:
            try:
                text = os.read(self._output.fileno(), 65536)
            except BlockingIOError:
                break
            if not text:
                break
            self._partial += text
        *lines, self._partial = self._partial.split(b"\n")
        return [json.loads(line) for line in lines]

    def await_event(self, seconds: float) -> None:
        """Wait at most ``seconds`` for an event or the end of the worker."""
        select.select([self._output], [], [], seconds)

    def ask_for_power(self) -> None:
        """Request a poll of the power record at once."""
        with contextlib.suppress(OSError):  # ``death`` reports the end of the worker
            os.write(self._input.fileno(), b"poll\n")

    def death(self) -> str | None:
        """How the worker ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return how + self._last_words()

    def end(self, patience_s: float) -> bool:
        """Request the end of the recording, and wait; True if the worker ended with code 0.

        A process that the program has forked may hold the input open, so that closing it isn't enough. A worker that
        doesn't end within ``patience_s`` is killed.
        """
        with contextlib.suppress(OSError):
            os.write(self._input.fileno(), b"end\n")
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._process.returncode == 0

    def kill(self) -> None:
        """Kill the worker and wait for its end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._output.close()

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1]}" if lines else ""


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None, "Popen was given PIPE"
    return end


def _environment() -> dict[str, str]:
    """Environment in which the worker imports the same modules as this process and starts no thread pools."""
    places = [os.path.abspath(place) for place in sys.path] + [HOME]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


_START_S = 60.0
_END_S = 10.0
_ASK_EVERY_S = 0.05


class ProcessRecorder(Recorder):
    """Starts the worker, reads its stream, and raises an error when the worker has died.

    Args:
        specs: The devices that the worker opens (``Device.spec``).
        spool: Folder of the ``samples`` stream.
        factory: "module:function" that opens a spec in the worker.
        power_s: As in ``Collector``.
    """

    def __init__(
        self, specs: Sequence[str], spool: Path, factory: str = Config.factory, power_s: float | None = None
    ) -> None:
        super().__init__(spool)
        self._specs = list(specs)
        self._factory = factory
        self._power_s = power_s
        self._link: WorkerLink | None = None
        self._lock = threading.Lock()
        self._problems: list[str] = []
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None before the start."""
        return self._link.pid if self._link is not None else None

    def start(self) -> None:
        """Start the worker; see ``Recorder``."""
        part = fresh_part(self._spool)
        config = Config(self._specs, str(self._spool), part, os.getpid(), self._factory, self._power_s)
        self._link = link = WorkerLink(config)
        try:
            ready = self._await_ready(link)
        except BaseException:
            self._stopped = True
            link.kill()
            link.close()
            raise
        self._read(Path(ready["path"]), [ChannelInfo.from_dict(channel) for channel in ready["channels"]])

    def samples(self) -> pa.Table:
        """All readings that the worker has written; see ``Recorder``."""
        with self._lock:
            return super().samples()

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Wait until the power record has passed ``time_ns``; see ``Recorder``."""
        stream = self._started()
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                reached = stream.power_until()
            if reached is None or reached >= time_ns:
                return reached is not None
            self.check()
            if self._stopped or self._link is None or time.monotonic() >= deadline:
                return False
            # The end of the record lies in the driver; without a request it arrives up to a second later.
            self._link.ask_for_power()
            time.sleep(_ASK_EVERY_S)

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the worker has died or a sensor has failed; the data stays on disk."""
        if self._link is None:
            return
        with self._lock:
            if not self._stopped:
                death = self._link.death()
                self._listen(self._link)
                if death is not None:
                    self._note_death(death)
            self._raise_problems()

    def stop(self) -> RecorderCost:
        """Let the worker record the sensor's tail and end; see ``Recorder``."""
        with self._lock:
            link = self._link
            if self._stopped or link is None:
                return self._cost or RecorderCost()
            self._stopped = True
            death = link.death()
            ended_well = link.end(_END_S + TAIL_S)
            self._listen(link)
            if death is not None or not ended_well or self._cost is None:
                self._note_death(death or link.death() or "it sent no final report")
            link.close()
            self._raise_problems()
            return self._cost or RecorderCost()

    def _await_ready(self, link: WorkerLink) -> dict[str, Any]:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            link.await_event(0.5)
            death = link.death()  # checked before the events are read, so that no last event is missed
            for event in self._listen(link):
                if event["event"] == "ready":
                    return event
            if death is not None:
                raise RecorderDiedError("the recorder can't start: " + ("; ".join(self._problems) or death))
        raise RecorderDiedError(f"the recorder can't start: it was not ready in {_START_S:g} s")

    def _listen(self, link: WorkerLink) -> list[dict[str, Any]]:
        events = link.events()
        for event in events:
            if event["event"] in ("failed", "source_failed"):
                self._problems.append(event["message"])
            elif event["event"] == "done":
                self._cost = RecorderCost(event["cpu_s"], event["wall_s"], event["samples"])
                if event["terminated"]:
                    self._note_death("it received SIGTERM")
        return events

    def _note_death(self, how: str) -> None:
        if not self._problems:
            kept = f"the data written so far is kept in {self._spool}"
            self._problems.append(f"the recorder ended before the recording did ({how}); {kept}")

    def _raise_problems(self) -> None:
        if self._problems:
            raise RecorderDiedError("; ".join(self._problems))
