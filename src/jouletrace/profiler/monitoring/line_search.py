"""Searches lines for a regular expression in a separate process, which can be ended.

Some patterns take exponential time on some lines (``(a+)+$``). A search in this process would hold the interpreter
lock meanwhile and block everything else, the recording and Ctrl-C included.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from jouletrace.errors import NotPossibleError
from jouletrace.processes.children import Child
from jouletrace.run.channels import MOST_WORK

LIMIT_S = 3.0
"""Time limit in seconds of one search, of 64 KiB or one long line."""

_START_S = 30.0
_BEHIND_S = 0.2


@dataclass
class Found:
    """The result of a search.

    Attributes:
        matched: Number of matching lines.
        unread: Number of those whose group captured no non-negative number.
        done: Sum of the captured numbers, or number of matches for a pattern without a group.
    """

    matched: int = 0
    unread: int = 0
    done: float = 0.0


def search(pattern: re.Pattern[str], lines: Iterable[str]) -> Found:
    """Search each line for a pattern of at most one group."""
    found = Found()
    for line in lines:
        match = pattern.search(line)
        if match is None:
            continue
        amount = 1.0
        if pattern.groups:
            try:
                amount = float((match[1] or "").replace(",", ""))
            except ValueError:
                amount = math.nan
        found.matched += 1
        if 0 <= amount <= MOST_WORK:
            found.done += amount
        else:
            found.unread += 1
    return found


class Searcher:
    """Searches in a separate process until one search exceeds the limit, which ends it permanently.

    The thread that creates it must outlive it. Threads may share it.

    Args:
        pattern: A regular expression.
        limit_s: Time limit of one search in seconds.

    Raises:
        NotPossibleError: If the process doesn't start.
    """

    def __init__(self, pattern: str, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._asked_s: float | None = None
        self.gave_up: str | None = None
        """Why the search has ended; None while it runs or after a regular ``close``."""
        self._closed = False
        self._child = Child("jouletrace.profiler.monitoring.line_search")
        self._child.tell({"pattern": pattern})
        if self._answer(_START_S) is None:
            self._end()
            raise NotPossibleError("--per-command: the process for searching the command's output did not start")

    @property
    def behind(self) -> bool:
        """Whether lines wait for the search or can't be searched any more: the count is then too low."""
        asked_s = self._asked_s
        return self.gave_up is not None or (asked_s is not None and time.monotonic() - asked_s > _BEHIND_S)

    def search(self, lines: list[str]) -> Found | None:
        """The result for these lines; None if this search or an earlier one exceeded the limit."""
        with self._lock:
            if self._closed:
                return None
            self._asked_s = time.monotonic()
            self._child.tell({"lines": lines})
            answer = self._answer(self._limit_s)
            if answer is not None:
                self._asked_s = None
                return answer
            if time.monotonic() - self._asked_s >= self._limit_s:
                self.gave_up = f"took more than {self._limit_s:g} s"
            else:
                self.gave_up = f"failed ({self._child.how_it_ended()})"
            self._end()
            return None

    def close(self) -> None:
        """End the process after its answer or the time limit. Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._end()

    def _end(self) -> None:
        self._closed = True
        self._child.close(now=True)

    def _answer(self, within_s: float) -> Found | None:
        until = time.monotonic() + within_s
        while (left := until - time.monotonic()) > 0 and self._child.speaks(left):
            heard = self._child.hear()
            if heard is None:
                return None
            if heard:
                return Found(**heard[0])
        return None


def main() -> None:
    """The search process: answers each JSON object on stdin, one per line, until the input ends."""
    pattern = re.compile("")
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "pattern" in asked:
            pattern = re.compile(asked["pattern"])
        print(json.dumps(asdict(search(pattern, asked.get("lines", ())))), flush=True)


if __name__ == "__main__":
    main()
