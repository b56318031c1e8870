"""Child processes that run modules of jouletrace.

They import this jouletrace, nothing from the current folder, and end with their parent.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jouletrace.version import HOME

_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)(:|$)")
"""The line of a traceback that names the error."""

_LONGEST = 300
"""Characters of that line that are repeated."""

PATIENCE_S = 10.0
"""Seconds within which a child must end on request; then it is killed."""


def our_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of jouletrace; ``-P`` keeps modules of the current folder out."""
    return [sys.executable, "-P", "-m", name, *arguments]


def our_child(name: str, *arguments: str) -> list[str]:
    """The command for a direct child of this process, which ends when this process ends or is killed.

    The thread that starts it must wait for it: see ``with_parent``.
    """
    return our_module("jouletrace.processes.with_parent", str(os.getpid()), name, *arguments)


def python_path() -> str:
    """``PYTHONPATH`` with this jouletrace appended, so that a child imports it from any folder."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), HOME]))


class Child:
    """A module of jouletrace in a separate process; both sides exchange JSON objects, one per line.

    The module must end when its input ends. Ctrl-C doesn't reach it: the parent handles the signal and ends it.

    Args:
        module: Name of the module.
        environment: Additional environment variables.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the child
        self._process = subprocess.Popen(
            our_child(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {}), "PYTHONPATH": python_path()},
            start_new_session=True,
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def output(self) -> int:
        """File descriptor of the child's standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def tell(self, order: Mapping[str, Any]) -> None:
        """Send an object; ``hear`` reports a child that has ended, this method doesn't."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def speaks(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for output or the end of the child; True if either occurred."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, seconds)))

    def hear(self) -> list[dict[str, Any]] | None:
        """The complete objects received since the last call; None if the child has ended.

        Blocks until the child writes or ends.
        """
        data = os.read(self.output, 1 << 16)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        objects = []
        for line in lines:
            with suppress(ValueError):  # an incomplete line of a process that was killed
                objects.append(json.loads(line))
        return objects

    def how_it_ended(self) -> str:
        """How the child ended, with the last line of its standard error; for use after ``hear`` returned None."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        code = self._process.returncode
        if code is None:
            return "has closed its output but does not end"
        if code < 0:
            return f"was killed by signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if _ERROR.match(line)] or lines  # objects left open report after the error
        return f"ended with code {code}" + (f": {errors[-1][:_LONGEST]}" if errors and code else "")

    def stop(self) -> None:
        """Close the child's input."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def interrupt(self) -> None:
        """Request an early end by SIGINT, as Ctrl-C does."""
        with suppress(ProcessLookupError):
            if self.alive:
                self._process.send_signal(signal.SIGINT)

    def close(self, now: bool = False) -> None:
        """End the child and its own children. Safe to call twice.

        A process that hangs in the driver, as after a GPU fell off the bus, can't be killed and is left behind.
        """
        self.stop()
        try:
            self._process.wait(0 if now else PATIENCE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
