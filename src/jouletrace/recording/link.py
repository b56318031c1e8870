"""The parent's side of the recording process: starts it, reads its events, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.worker import Config
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
