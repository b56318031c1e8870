"""One worker process, seen from its parent."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from contextlib import suppress
from typing import Any

from jouletrace.mig.bench import JobFailedError
from jouletrace.profiler.children import our_module, python_path

_ENDING_S = 10.0


class Child:
    """A worker with one slice in its ``CUDA_VISIBLE_DEVICES``.

    Args:
        name: What to call it in messages.
        visible: UUID of the slice; None leaves the variable as it is.
    """

    def __init__(self, name: str, visible: str | None) -> None:
        self._name = name
        environment = {**os.environ, "PYTHONPATH": python_path()}
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        self._process = subprocess.Popen(
            our_module("jouletrace.mig.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, order: dict[str, Any]) -> None:
        """Give an order.

        Raises:
            JobFailedError: If it is gone.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._gone() from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Its next answer.

        Raises:
            JobFailedError: If it reports an error, is gone, or doesn't answer in time (it is ended then).
        """
        line = self._line(timeout_s)
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise JobFailedError("failed", f"{self._name}: its answer can't be read") from None
        if "error" in answer:
            raise JobFailedError(answer["reason"], f"{self._name}: {answer['error']}")
        return answer

    def ask(self, order: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """``send`` and ``receive``."""
        self.send(order)
        return self.receive(timeout_s)

    def close(self) -> None:
        """End it. Safe to call twice."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.close()

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    self.kill()
                    raise JobFailedError("failed", f"{self._name}: no answer for {timeout_s:g} s")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise self._gone()
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _gone(self) -> JobFailedError:
        code = self._process.wait(_ENDING_S)
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return JobFailedError("vanished", f"{self._name}: the process on it ended {how}; the slice may be gone")
