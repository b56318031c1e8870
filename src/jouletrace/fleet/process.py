"""Children as their parent sees them: started, told when to begin, listened to all at once."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jouletrace.fleet.plan import FleetGpu
from jouletrace.profiler.children import python_path

PATIENCE_S = 10.0
"""Given to a child to end by itself."""

Hear = Callable[[FleetGpu, dict[str, Any]], None]
"""Told what a child says of its progress."""


PROGRAM: tuple[str, ...] = ("-P", "-m", "jouletrace.fleet.child")
"""What a child runs, after Python's own name."""


class Child:
    """One ``jouletrace.fleet.child``.

    Args:
        gpu: The GPU that it is shown.
        order: What it is to do.
        environment: Variables to set besides.

    Attributes:
        gpu: As given.
        said: Its last message that isn't progress; {} until there is one.
    """

    def __init__(self, gpu: FleetGpu, order: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        self.gpu = gpu
        self.said: dict[str, Any] = {}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the child
        self._process = subprocess.Popen(
            [sys.executable, *PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_shown(gpu), **(environment or {}), "PYTHONPATH": python_path()},
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )
        self._buffer = b""
        self.tell(order)

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
    def over(self) -> bool:
        """Whether it has said its last word."""
        return self.said.get("is") in ("done", "failed")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def tell(self, order: Mapping[str, Any]) -> None:
        """Send a line; a child that is gone is noticed when it is listened to."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def hear(self) -> list[dict[str, Any]]:
        """What it has said since; reading may wait, so ask ``select`` first. The end is a message too."""
        data = os.read(self.output, 1 << 16)
        if not data:
            if not self.over:
                self.said = self._gone()
            return [self.said]
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError):  # half a line of a process that was killed
                message = json.loads(line)
                found.append(message)
                if message.get("is") != "phase":
                    self.said = message
        return found

    def fail(self, reason: str, text: str) -> None:
        """End it and note why."""
        self.said = {"is": "failed", "reason": reason, "text": text}
        self.close(now=True)

    def stop(self) -> None:
        """Close its input, by which noise ends."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def interrupt(self) -> None:
        """Let it end early by itself, as by Ctrl-C."""
        with suppress(ProcessLookupError):
            if self.alive:
                self._process.send_signal(signal.SIGINT)

    def close(self, now: bool = False) -> None:
        """End it, with what it has started. Safe to call twice."""
        self.stop()
        try:
            self._process.wait(0 if now else PATIENCE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _gone(self) -> dict[str, Any]:
        code = self._process.wait(PATIENCE_S)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines and code > 0 else ""
        return {"is": "failed", "reason": "vanished", "text": f"the process on {self.gpu} {how}{last}"}


def listen(children: Sequence[Child], until: tuple[str, ...], limit_s: float, hear: Hear) -> None:
    """Wait until every child has said one of ``until``, or is over; who doesn't in time has failed.

    Args:
        children: All of them are listened to at once.
        until: "ready" or "done"; "failed" always counts.
        limit_s: Seconds for all.
        hear: Told everything.
    """
    end = time.monotonic() + limit_s
    waiting = [child for child in children if not child.over and child.said.get("is") not in until]
    with selectors.DefaultSelector() as selector:
        for child in waiting:
            selector.register(child.output, selectors.EVENT_READ, child)
        while waiting:
            ready = selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                heard: Child = key.data
                for message in heard.hear():
                    hear(heard.gpu, message)
                if heard.over or heard.said.get("is") in until:
                    selector.unregister(heard.output)
                    waiting.remove(heard)
            if not ready and waiting:
                for late in waiting:
                    late.fail("timed_out", f"{late.gpu}: no result after {limit_s:g} s")
                    hear(late.gpu, late.said)
                return


def _shown(gpu: FleetGpu) -> dict[str, str]:
    """What CUDA is to show to it: this GPU, by UUID, whatever the order."""
    return {"CUDA_VISIBLE_DEVICES": gpu.id} if gpu.id.startswith("GPU-") else {}
