"""The parent's end of the recording process: starts it, hears what it says, ends it."""

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
"""In the spool folder: what the worker wrote to its standard error."""


class WorkerLink:
    """A running worker.

    Args:
        config: What it is to record.

    Raises:
        RecorderDiedError: If it can't be started.
    """

    def __init__(self, config: Config) -> None:
        self._log = Path(config.spool) / LOG
        command = [sys.executable, "-P", "-m", "jouletrace.recording.worker", json.dumps(asdict(config))]
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                # A process group of its own: Ctrl-C, or a kill of the workload's group, doesn't reach it.
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
        """What it has said since the last time, without waiting."""
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
        """Wait until it says something or ends, at most so long."""
        select.select([self._output], [], [], seconds)

    def ask_for_power(self) -> None:
        """Have it poll the power record at once."""
        with contextlib.suppress(OSError):  # its death is found by ``death``
            os.write(self._input.fileno(), b"poll\n")

    def death(self) -> str | None:
        """How it ended, in words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return how + self._last_words()

    def end(self, patience_s: float) -> bool:
        """End its input, which tells it to stop, and wait; True if it ended well.

        One that doesn't end is killed.
        """
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._process.returncode == 0

    def kill(self) -> None:
        """Kill it and wait for its end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close what is left of the pipes."""
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
    """The worker finds the same modules as this process, and starts no pools of threads."""
    places = [os.path.abspath(place) for place in sys.path] + [HOME]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
