"""A counter of work in the output of a command: matching lines, or the numbers in them."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress

from jouletrace.devices.base import Clock
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.line_search import LIMIT_S, Searcher
from jouletrace.profiler.monitoring.work_counter import WorkReading

_CHUNK = 1 << 16
_LONGEST = 1 << 20
"""Bytes of a line that are searched."""

_JOIN_S = 2.0


class OutputCounter:
    r"""Passes a command's output on and counts matches in it; see ``work_counter.WorkCounter``.

    Args:
        pattern: Regular expression, searched in every line (``\n`` or ``\r`` ends a line). With a
            group, the captured number is added; otherwise each matching line counts one.

    Raises:
        BadInputError: If it isn't a regular expression, or has several groups.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise BadInputError(f"--per-command {pattern!r}: not a regular expression ({error})") from None
        if self._pattern.groups > 1:
            raise BadInputError(
                f"--per-command {pattern!r}: has {self._pattern.groups} groups; one may capture a number, "
                "(?:...) captures nothing"
            )
        self.source = f"output of the command, {pattern!r}"
        self.unit = "captured number" if self._pattern.groups else "line"
        self._clock: Clock | None = None
        self._searcher: Searcher | None = None
        self._done = 0.0
        self._matched = self._unread = 0
        self._lock = threading.Lock()
        self._begun: list[WorkReading] = []
        self._threads: list[threading.Thread] = []

    def start(self, clock: Clock) -> None:
        """Counting begins with ``watch``.

        Raises:
            NotPossibleError: If the search process doesn't start.
        """
        self._clock = clock
        self._searcher = Searcher(self._pattern.pattern, LIMIT_S)

    def watch(self, pipe: int, passed_to: int) -> None:
        """Copy the file descriptor ``pipe`` to ``passed_to`` until its end."""
        thread = threading.Thread(target=self._pass_on, args=(pipe, passed_to), name="output-counter", daemon=True)
        if self._clock is not None and not self._threads:
            # A zero reading before the first line: work and energy begin together.
            self._begun = [WorkReading(self._clock.time_ns(), 0.0, 0.0, 0)]
        self._threads.append(thread)
        thread.start()

    def take(self) -> list[WorkReading]:
        """The current count; no reading while lines wait for the search, since it would be too low."""
        if self._clock is None or self._searcher is None or self._searcher.behind:
            return []
        begun, self._begun = self._begun, []
        with self._lock:
            return [*begun, WorkReading(self._clock.time_ns(), 0.0, self._done, 0)]

    def problem(self) -> str | None:
        """A message if the pattern was too slow; a pipe can always be read."""
        why = self._searcher.gave_up if self._searcher is not None else None
        return None if why is None else f"the search for {self._pattern.pattern!r} {why}, and counting ended"

    def stop(self) -> list[WorkReading]:
        """The rest of the pipes, with a timeout: a surviving child of the command may hold them open."""
        for thread in self._threads:
            thread.join(_JOIN_S)
        last = self.take()
        if self._searcher is not None:
            self._searcher.close()
        self._clock = None
        return last

    def warnings(self) -> list[tuple[str, str]]:
        """Warnings: the pattern was too slow, nothing matched, or a captured text wasn't a number."""
        found = []
        problem = self.problem()
        if problem is not None:
            found.append(("work_search_ended", f"{problem}: figures of work cover only the time until then"))
        elif not self._matched:
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
                self._look(lines)
                rest = rest[:_LONGEST]
            self._look([rest])
        except OSError:
            pass  # the reader of the output has closed it: the command gets the same error, as without this process
        finally:
            with suppress(OSError):
                os.close(pipe)

    def _look(self, lines: list[bytes]) -> None:
        texts = [line.decode("utf-8", "replace") for line in lines if line]
        found = self._searcher.search(texts) if texts and self._searcher is not None else None
        if found is None:
            return
        with self._lock:
            self._matched += found.matched
            self._unread += found.unread
            self._done += found.done


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
