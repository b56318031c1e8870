"""Marks of a program as spans: open ranges of each thread and asyncio task, ended spans."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class Opened:
    """An open range; one that has ended has an ``end_ns``."""

    marks: Marks
    id: int
    around: Opened | None
    name: str
    start_ns: int
    path: tuple[str, ...]
    lane: str
    end_ns: int | None = None

    @property
    def chain(self) -> list[Opened]:
        """All ranges in which it began, the outermost first, and itself."""
        inwards: deque[Opened] = deque()
        opened: Opened | None = self
        while opened is not None:
            inwards.appendleft(opened)
            opened = opened.around
        return list(inwards)


@dataclass(frozen=True, slots=True)
class LoopMark:
    """The last mark of a loop: when, and in which range."""

    marks: Marks
    time_ns: int
    within: Opened | None


_INNERMOST: ContextVar[Opened | None] = ContextVar("jouletrace_range", default=None)
_STEP: ContextVar[LoopMark | None] = ContextVar("jouletrace_step", default=None)
"""Of each thread, and each task of asyncio, which begins with those of the task that makes it."""


class Marks:
    """The marks of all threads and tasks of a program.

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
        self._lanes = threading.local()
        self.not_synchronised: set[str] = set()
        """Names of ranges, and "step", whose ends did not synchronise with a GPU in use."""

    def start(self, time_ns: int) -> None:
        """Begin this task's first step."""
        _STEP.set(LoopMark(self, time_ns, None))

    def innermost(self) -> Opened | None:
        """The innermost open range of this task."""
        opened = _INNERMOST.get()
        while opened is not None and (opened.end_ns is not None or opened.marks is not self):
            opened = opened.around
        return opened

    def begin(self, name: str) -> Opened:
        """Open a range in this task."""
        around = self.innermost()
        path = (name,) if around is None else (*around.path, name)
        opened = Opened(self, next(self._ids), around, name, self._time_ns(), path, self._lane())
        _INNERMOST.set(opened)
        self._open[opened.id] = opened
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """Close a range of any task; it crosses the range in which it began if that has ended before."""
        now = self._time_ns()
        if self._open.pop(opened.id, None) is None:
            return  # already closed
        opened.end_ns, around = now, opened.around
        parent = around.id if around is not None else None
        self._add(Span(opened.id, parent, "range", opened.name, opened.lane, opened.start_ns, now, opened.path))
        if around is not None and around.end_ns is not None:
            self._cross(around, opened)
        if not sync and opened.name not in self.not_synchronised and uses_cuda():
            self.not_synchronised.add(opened.name)

    def unopened(self, name: str) -> bool:
        """Record the end of a range that wasn't open; returns whether it is the first such end."""
        self._unopened[name] = self._unopened.get(name, 0) + 1
        return sum(self._unopened.values()) == 1

    def step(self, sync: bool = False) -> None:
        """Mark the end of an iteration of this task's loop and the start of the next."""
        now, around = self._time_ns(), self.innermost()
        start, parent = self._step_start(around), None
        path: tuple[str, ...] = (STEP,)
        if around is not None:
            parent, path = around.id, (*around.path, STEP)
        if start is not None:
            self._add(Span(next(self._ids), parent, "iteration", STEP, self._lane(), start, now, path))
        _STEP.set(LoopMark(self, now, around))
        if not sync and STEP not in self.not_synchronised and uses_cuda():
            self.not_synchronised.add(STEP)

    def skip(self) -> None:
        """Exclude the time since this task's last step (an evaluation, say) from all steps."""
        _STEP.set(LoopMark(self, self._time_ns(), self.innermost()))

    def _step_start(self, around: Opened | None) -> int | None:
        """Start of a step that ends now; None before the first mark of a task, unless it is in a range."""
        last = _STEP.get()
        if last is None or last.marks is not self:
            return around.start_ns if around is not None else None
        start, within = last.time_ns, last.within
        while within is not None and within.end_ns is not None:  # the range around the steps, which ended with it
            start, within = max(start, within.end_ns), within.around
        return start if around is None or around is within else around.start_ns  # opened after the last step

    def take(self) -> list[Span]:
        """The spans that ended since the last call; spans appended meanwhile follow with the next call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def still_open(self) -> list[Opened]:
        """The open ranges."""
        return list(self._open.values())

    def warnings(self) -> list[tuple[str, str]]:
        """Problems of the marks after the end: codes and messages."""
        warnings = []
        if self._left_out:
            text = f"{self._left_out} spans after the first {MOST_SPANS} were left out of the figures"
            warnings.append(("spans_left_out", text))
        if self._crossings:
            pairs = [f"{outer!r} and {inner!r} ({_times(n)})" for (outer, inner), n in self._crossed.items()]
            rest = self._crossings - sum(self._crossed.values())
            named = ", ".join(pairs) + (f", and {rest} more" if rest else "")
            text = f"ranges overlap without nesting: {named}. In each pair the second range is listed inside the "
            text += "first, in which it began; it ended later, so its figures extend beyond the first"
            warnings.append(("ranges_crossed", text))
        if self._unopened:
            named = _named(f"{name!r} ({_times(n)})" for name, n in self._unopened.items())
            warnings.append(
                ("ranges_not_begun", f"ranges ended without having begun, or twice; these ends were ignored: {named}")
            )
        if self._open:
            named = _named(repr(name) for name in dict.fromkeys(opened.name for opened in self.still_open()))
            warnings.append(("ranges_not_ended", f"left out, since open when the recording ended: {named}"))
        return warnings

    def _cross(self, opened: Opened, inner: Opened) -> None:
        self._crossings += 1
        pair = "/".join(opened.path), "/".join(inner.path[len(opened.path) :])
        if pair in self._crossed or len(self._crossed) < _NAMED:
            self._crossed[pair] = self._crossed.get(pair, 0) + 1

    def _lane(self) -> str:
        """The name of this thread."""
        lane: str | None = getattr(self._lanes, "name", None)
        if lane is None:
            lane = self._lanes.name = f"{threading.current_thread().name} ({threading.get_native_id()})"
        return lane

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
