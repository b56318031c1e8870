"""A counter of work in what a command prints: matching lines, or the numbers in them."""

from __future__ import annotations

import math
import os
import re
import threading
from contextlib import suppress

from jouletrace.devices.base import Clock
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.work_counter import WorkReading

_CHUNK = 1 << 16
_LONGEST = 1 << 20
"""Bytes of a line that are looked at."""

_JOIN_S = 2.0


class OutputCounter:
    r"""Passes a command's output on as it comes and counts in it; see ``work_counter.WorkCounter``.

    Args:
        pattern: Regular expression, searched for in every line (``\n`` or ``\r`` ends one). With a
            group, the number that it captured is added; else each matching line counts one.

    Raises:
        BadInputError: If it is no regular expression, or has several groups.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise BadInputError(f"--per-command {pattern!r}: no regular expression ({error})") from None
        if self._pattern.groups > 1:
            raise BadInputError(
                f"--per-command {pattern!r}: has {self._pattern.groups} groups; one may capture a number, "
                "(?:...) captures nothing"
            )
        self.source = f"output of the command, {pattern!r}"
        self.unit = "captured number" if self._pattern.groups else "line"
        self._clock: Clock | None = None
        self._done = 0.0
        self._matched = self._unread = 0
        self._lock = threading.Lock()
        self._begun: list[WorkReading] = []
        self._threads: list[threading.Thread] = []

    def start(self, clock: Clock) -> None:
        """Counting begins with ``watch``."""
        self._clock = clock

    def watch(self, pipe: int, passed_to: int) -> None:
        """Read the file descriptor ``pipe`` to its end, and write what comes to ``passed_to``."""
        thread = threading.Thread(target=self._pass_on, args=(pipe, passed_to), name="output-counter", daemon=True)
        if self._clock is not None and not self._threads:
            # Before its first line: work and energy begin together.
            self._begun = [WorkReading(self._clock.time_ns(), 0.0, 0.0, 0)]
        self._threads.append(thread)
        thread.start()

    def take(self) -> list[WorkReading]:
        """The count now."""
        if self._clock is None:
            return []
        begun, self._begun = self._begun, []
        with self._lock:
            return [*begun, WorkReading(self._clock.time_ns(), 0.0, self._done, 0)]

    def problem(self) -> str | None:
        """None: a pipe can always be read."""
        return None

    def stop(self) -> list[WorkReading]:
        """What was still in the pipes; a program that the command left behind may hold them open for ever."""
        for thread in self._threads:
            thread.join(_JOIN_S)
        last = self.take()
        self._clock = None
        return last

    def warnings(self) -> list[tuple[str, str]]:
        """Nothing matched, or what was captured was no number."""
        found = []
        if not self._matched:
            found.append(("work_never_counted", f"no line of the command's output matched {self._pattern.pattern!r}"))
        if self._unread:
            message = f"{self._unread} of {self._matched} matches captured no number above zero; they count nothing"
            found.append(("work_no_number", message))
        return found

    def _pass_on(self, pipe: int, passed_to: int) -> None:
        rest = b""
        try:
            while chunk := os.read(pipe, _CHUNK):
                _write(passed_to, chunk)
                *lines, rest = re.split(rb"[\r\n]", rest + chunk)
                for line in lines:
                    self._look(line)
                rest = rest[:_LONGEST]
            self._look(rest)
        except OSError:
            pass  # nobody reads the output any more: the command is to hear of it, as it would without us
        finally:
            with suppress(OSError):
                os.close(pipe)

    def _look(self, line: bytes) -> None:
        match = self._pattern.search(line.decode("utf-8", "replace")) if line else None
        if match is None:
            return
        amount = 1.0
        if self._pattern.groups:
            try:
                amount = float((match[1] or "").replace(",", ""))
            except ValueError:
                amount = math.nan
        with self._lock:
            self._matched += 1
            if amount >= 0 and math.isfinite(amount):
                self._done += amount
            else:
                self._unread += 1


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
