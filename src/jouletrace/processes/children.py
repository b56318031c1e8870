"""Processes of our own modules: they find this jouletrace and nothing that lies in the folder, and end when we do."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jouletrace.version import HOME

PATIENCE_S = 10.0
"""Given to a child to end by itself."""


def our_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours; ``-P`` keeps the modules of the folder that it is started in out."""
    return [sys.executable, "-P", "-m", name, *arguments]


def our_child(name: str, *arguments: str) -> list[str]:
    """The same for a process that this one starts itself: it ends when this one does, be it killed.

    The thread that starts it must wait for it: see ``with_parent``.
    """
    return our_module("jouletrace.processes.with_parent", str(os.getpid()), name, *arguments)


def python_path() -> str:
    """``PYTHONPATH`` under which it finds this jouletrace, from whatever folder, besides what is there already."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), HOME]))


class Child:
    """A module of ours in a process of its own, with which one talks in JSON objects, a line each, both ways.

    It must end when its input does. Ctrl-C doesn't reach it: that is for us, who end it.

    Args:
        module: Its name.
        environment: Variables to set besides.
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
        """Its process id."""
        return self._process.pid

    @property
    def output(self) -> int:
        """File descriptor of what it says."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def tell(self, order: Mapping[str, Any]) -> None:
        """Send an object; a child that is gone is noticed when it is listened to."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def speaks(self, seconds: float) -> bool:
        """Wait at most so long until it says something, or ends; whether it did."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, seconds)))

    def hear(self) -> list[dict[str, Any]] | None:
        """What it has said since, which may be nothing whole yet; None if it has ended. Waits, unless it speaks."""
        data = os.read(self.output, 1 << 16)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError):  # half a line of a process that was killed
                found.append(json.loads(line))
        return found

    def how_it_ended(self) -> str:
        """In words, with the last that it wrote to its standard error; to be asked when it says nothing more."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        code = self._process.returncode
        if code is None:
            return "says nothing more and does not end"
        if code < 0:
            return f"was killed by signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with code {code}" + (f": {lines[-1]}" if lines and code else "")

    def stop(self) -> None:
        """Close its input."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def interrupt(self) -> None:
        """Let it end early by itself, as by Ctrl-C."""
        with suppress(ProcessLookupError):
            if self.alive:
                self._process.send_signal(signal.SIGINT)

    def close(self, now: bool = False) -> None:
        """End it, with what it has started. Safe to call twice.

        One that a driver holds, as that of a GPU that has fallen off may, is left behind: others wait.
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
