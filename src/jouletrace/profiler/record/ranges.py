"""Marks of a program as spans: the state of each thread, open ranges, ended spans."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_SPANS = 2_000_000
"""Largest number of spans: more than figures need, and few enough for memory at the end."""

STEP = "step"
_NAMED = 3
"""Number of ranges, or pairs of ranges, that a warning names."""


class Span(NamedTuple):
    """An ended range or step; ``path`` holds the names from the outermost range inwards."""

    id: int
    parent: int | None
    kind: str
    name: str
    lane: str
    start_ns: int
    end_ns: int
    path: tuple[str, ...]


@dataclass(slots=True)
class Opened:
    """An open range."""

    id: int
    parent: int | None
    name: str
    start_ns: int
    path: tuple[str, ...]
    thread: ThreadMarks


@dataclass(slots=True)
class ThreadMarks:
    """The state of one thread: its open ranges and its current step.

    Attributes:
        lane: Its name.
        open: Open ranges, the innermost last.
        step_ns: Start of its step; None before the first mark of a thread that didn't start the recording.
        depth: Number of open ranges at that time.
    """

    lane: str
    open: list[Opened] = field(default_factory=list)
    step_ns: int | None = None
    depth: int = 0


class Marks:
    """The marks of all threads of a program.

    Args:
        time_ns: Returns the current time in nanoseconds since the Unix epoch.
    """

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self._time_ns = time_ns
        self._ids = itertools.count(2)  # 0 and 1 are the phases of the recording and of its trace
        self._ended: deque[Span] = deque()
        self._open: dict[int, Opened] = {}
        self._kept = self._left_out = self._crossings = 0
        self._crossed: dict[tuple[str, str], int] = {}
        self._unopened: dict[str, int] = {}
        self._threads = threading.local()
        self.not_synchronised: set[str] = set()
        """Names of ranges, and "step", whose ends did not synchronise with a GPU in use."""

    def start(self, time_ns: int) -> None:
        """Begin this thread's first step."""
        self._thread().step_ns = time_ns

    def begin(self, name: str) -> Opened:
        """Open a range in this thread."""
        mine = self._thread()
        around = mine.open[-1] if mine.open else None
        parent, path = (None, (name,)) if around is None else (around.id, (*around.path, name))
        opened = Opened(next(self._ids), parent, name, self._time_ns(), path, mine)
        mine.open.append(opened)
        self._open[opened.id] = opened
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """Close a range of any thread; ranges opened after it in its thread and still open cross it."""
        now = self._time_ns()
        if self._open.pop(opened.id, None) is None:
            return  # already closed
        mine = opened.thread
        self._add(Span(opened.id, opened.parent, "range", opened.name, mine.lane, opened.start_ns, now, opened.path))
        if mine.open and mine.open[-1] is opened:
            mine.open.pop()
        else:
            self._cross(opened, mine.open[-1])
            mine.open.remove(opened)
        if len(mine.open) < mine.depth:  # the range around the steps has ended, and the steps with it
            mine.depth, mine.step_ns = len(mine.open), now
        if not sync and opened.name not in self.not_synchronised and uses_cuda():
            self.not_synchronised.add(opened.name)

    def unopened(self, name: str) -> bool:
        """Record the end of a range that wasn't open; returns whether it is the first such end."""
        self._unopened[name] = self._unopened.get(name, 0) + 1
        return sum(self._unopened.values()) == 1

    def step(self, sync: bool = False) -> None:
        """Mark the end of an iteration of this thread's loop and the start of the next."""
        mine = self._thread()
        now = self._time_ns()
        start: int | None = mine.step_ns
        parent: int | None = None
        path: tuple[str, ...] = (STEP,)
        if mine.open:
            around = mine.open[-1]
            parent, path = around.id, (*around.path, STEP)
            if len(mine.open) > mine.depth:  # the range around the loop was opened after the last step
                start = around.start_ns
        if start is not None:
            self._add(Span(next(self._ids), parent, "iteration", STEP, mine.lane, start, now, path))
        mine.step_ns, mine.depth = now, len(mine.open)
        if not sync and STEP not in self.not_synchronised and uses_cuda():
            self.not_synchronised.add(STEP)

    def skip(self) -> None:
        """Exclude the time since this thread's last step (an evaluation, say) from all steps."""
        mine = self._thread()
        mine.step_ns, mine.depth = self._time_ns(), len(mine.open)

    def take(self) -> list[Span]:
        """The spans that ended since the last call; spans appended meanwhile follow with the next call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def still_open(self) -> list[Opened]:
        """The open ranges."""
        return list(self._open.values())

    def warnings(self) -> list[tuple[str, str]]:
        """Problems of the marks after the end: codes and messages."""
        found = []
        if self._left_out:
            text = f"{self._left_out} spans after the first {MOST_SPANS} were left out of the figures"
            found.append(("spans_left_out", text))
        if self._crossings:
            pairs = [f"{outer!r} and {inner!r} ({_times(n)})" for (outer, inner), n in self._crossed.items()]
            rest = self._crossings - sum(self._crossed.values())
            named = ", ".join(pairs) + (f", and {rest} more" if rest else "")
            text = f"ranges overlap without nesting: {named}. In each pair the second range is listed inside the "
            text += "first, in which it began; it ended later, so its figures extend beyond the first"
            found.append(("ranges_crossed", text))
        if self._unopened:
            named = _named(f"{name!r} ({_times(n)})" for name, n in self._unopened.items())
            found.append(
                ("ranges_not_begun", f"ranges ended without having begun, or twice; these ends were ignored: {named}")
            )
        if self._open:
            named = _named(repr(name) for name in dict.fromkeys(opened.name for opened in self.still_open()))
            found.append(("ranges_not_ended", f"left out, since open when the recording ended: {named}"))
        return found

    def _cross(self, opened: Opened, inner: Opened) -> None:
        self._crossings += 1
        pair = "/".join(opened.path), "/".join(inner.path[len(opened.path) :])
        if pair in self._crossed or len(self._crossed) < _NAMED:
            self._crossed[pair] = self._crossed.get(pair, 0) + 1

    def _thread(self) -> ThreadMarks:
        found: ThreadMarks | None = getattr(self._threads, "state", None)
        if found is None:
            thread = threading.current_thread()
            found = self._threads.state = ThreadMarks(f"{thread.name} ({threading.get_native_id()})")
        return found

    def _add(self, span: Span) -> None:
        if self._kept >= MOST_SPANS:
            self._left_out += 1
            return
        self._kept += 1
        self._ended.append(span)


def _named(names: Iterable[str]) -> str:
    first, more = list(itertools.islice(names := iter(names), _NAMED)), next(names, None)
    return ", ".join(first) + (", ..." if more is not None else "")


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def uses_cuda() -> bool:
    """True if this process uses a GPU through torch."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # another thread may be importing torch
    return cuda is not None and bool(cuda.is_initialized())
