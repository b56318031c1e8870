"""The recorder in real time: a separate process polls the sensors and writes the stream that this side reads."""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.base import Recorder, RecorderCost
from jouletrace.recording.collector import TAIL_S, fresh_part
from jouletrace.recording.worker import Config
from jouletrace.run import ChannelInfo
from jouletrace.run.steady import OFFSET
from jouletrace.version import HOME

LOG = "recorder.log"
"""File in the spool folder with the standard error of the worker."""


_START_S = 60.0
_END_S = 10.0
_STDERR = 2
_ASK_EVERY_S = 0.05


class ProcessRecorder(Recorder):
    """Starts the worker, reads its stream, and raises an error when the worker has died.

    Args:
        specs: The devices that the worker opens (``Device.spec``).
        spool: Folder of the ``samples`` stream.
        factory: "module:function" that opens a spec in the worker.
        power_s: As in ``Collector``.
        offset_ns: Of the devices' clock, as in ``run.steady``; None for one of the worker's own.
    """

    def __init__(
        self,
        specs: Sequence[str],
        spool: Path,
        factory: str = Config.factory,
        power_s: float | None = None,
        offset_ns: int | None = None,
        kept_s: float | None = None,
    ) -> None:
        super().__init__(spool, kept_s)
        self._specs = list(specs)
        self._factory = factory
        self._power_s = power_s
        self._shared = {} if offset_ns is None else {OFFSET: str(offset_ns)}
        self._process: subprocess.Popen[bytes] | None = None
        self._partial = b""
        self._lock = threading.Lock()
        self._problems: list[str] = []
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None before the start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the worker; see ``Recorder``."""
        process = self._process = self._opened()
        try:
            ready = self._await_ready(process)
        except BaseException:
            self._stopped = True
            process.kill()
            process.wait()
            self._close_pipes(process)
            raise
        self.since_ns = int(ready["since_ns"])
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
            if self._stopped or self._process is None:
                return False
            # The end of the record lies in the driver; without a request it arrives up to a second later.
            _write(self._process, b"poll\n")
            if time.monotonic() >= deadline:
                return False
            time.sleep(_ASK_EVERY_S)

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the worker has died or a sensor has failed; the data stays on disk."""
        if self._process is None:
            return
        with self._lock:
            if not self._stopped:
                death = self._death(self._process)
                self._listen(self._process)
                if death is not None:
                    self._note_death(death)
            self._raise_problems()

    def stop(self) -> RecorderCost:
        """Let the worker record the sensor's tail and end; see ``Recorder``.

        A worker that doesn't end in time is killed.
        """
        with self._lock:
            process = self._process
            if self._stopped or process is None:
                return self._cost or RecorderCost()
            self._stopped = True
            death = self._death(process)
            # A process that the program has forked may hold the input open, so that closing it isn't enough.
            _write(process, b"end\n", last=True)
            try:
                process.wait(_END_S + TAIL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._listen(process)
            if death is not None or process.returncode != 0 or self._cost is None:
                self._note_death(death or self._death(process) or "it sent no final report")
            self._close_pipes(process)
            self._raise_problems()
            return self._cost or RecorderCost()

    def _opened(self) -> subprocess.Popen[bytes]:
        part = fresh_part(self._spool)
        errors = _kept_errors()
        config = Config(
            self._specs, str(self._spool), part, os.getpid(), self._factory, self._power_s, errors, self._kept_s
        )
        command = [sys.executable, "-P", "-m", "jouletrace.recording.worker", json.dumps(asdict(config))]
        try:
            self._spool.mkdir(parents=True, exist_ok=True)
            with (self._spool / LOG).open("ab") as log:
                # A session of its own: neither keys of the terminal nor a kill of the workload's group reach it.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env=_environment() | self._shared,
                    start_new_session=True,
                    pass_fds=() if errors is None else (errors,),
                )
        except (OSError, ValueError) as error:
            raise RecorderDiedError(f"the recorder can't be started: {error}") from None
        finally:
            if errors is not None:
                os.close(errors)
        os.set_blocking(_output(process), False)
        return process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            select.select([_output(process)], [], [], 0.5)
            death = self._death(process)  # checked before the events are read, so that no last event is missed
            for event in self._listen(process):
                if event["event"] == "ready":
                    return event
            if death is not None:
                raise RecorderDiedError("the recorder can't start: " + ("; ".join(self._problems) or death))
        raise RecorderDiedError(f"the recorder can't start: it was not ready in {_START_S:g} s")

    def _listen(self, process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
        """The worker's events since the last call, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while text := os.read(_output(process), 65536):
                self._partial += text
        *lines, self._partial = self._partial.split(b"\n")
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for event in events:
            if event["event"] in ("failed", "source_failed"):
                self._problems.append(event["message"])
            elif event["event"] == "done":
                self._cost = RecorderCost(event["cpu_s"], event["wall_s"], event["samples"])
                if event["terminated"]:
                    self._note_death("it received SIGTERM")
        return events

    def _death(self, process: subprocess.Popen[bytes]) -> str | None:
        """How the worker ended, with the last line of its log; None while it runs."""
        code = process.poll()
        if code is None:
            return None
        try:
            last = (self._spool / LOG).read_text(errors="replace").strip().splitlines()[-1:]
        except OSError:
            last = []
        return ": ".join([f"killed by signal {-code}" if code < 0 else f"exit code {code}", *last])

    def _note_death(self, how: str) -> None:
        if not self._problems:
            kept = f"the data written so far is kept in {self._spool}"
            self._problems.append(f"the recorder ended before the recording did ({how}); {kept}")

    def _raise_problems(self) -> None:
        if self._problems:
            raise RecorderDiedError("; ".join(self._problems))

    @staticmethod
    def _close_pipes(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _output(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None, "Popen was given PIPE"
    return process.stdout.fileno()


def _kept_errors() -> int | None:
    """A copy of our standard error for the worker; None for a pipe, whose reader would wait for the worker's end."""
    try:
        if stat.S_ISREG(os.fstat(_STDERR).st_mode) or os.isatty(_STDERR):
            return os.dup(_STDERR)
    except OSError:  # it is closed
        pass
    return None


def _write(process: subprocess.Popen[bytes], command: bytes, last: bool = False) -> None:
    """Send a command; ``_death`` reports the end of a worker that can't take it."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            os.write(process.stdin.fileno(), command)
        if last:
            process.stdin.close()


def _environment() -> dict[str, str]:
    """Environment in which the worker imports the same modules as this process and starts no thread pools."""
    places = [os.path.abspath(entry) for entry in sys.path] + [HOME]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
