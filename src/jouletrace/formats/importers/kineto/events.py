"""The events of a Kineto trace as columns, read from JSON text one after the other."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from json import JSONDecoder
from typing import Any

from jouletrace.formats.importers.base import Left

_SCAN = JSONDecoder(strict=False, parse_float=str).raw_decode
_NEXT_EVENT = re.compile(r'\}\s*,?\s*(?=\{\s*"\w+"\s*:)').search
_NAME_VALUE = re.compile(
    r'("name"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|id|args|s|bp)"\s*:)', re.DOTALL
).search
_ARGS = re.compile(r',\s*"args"\s*:\s*\{').search

DEVICE_WORK = ("kernel", "memcpy")
"""Kinds of spans that run on a device."""

NO_ID = -1
_LIMIT = 1 << 62


@lru_cache(maxsize=1024)
def _kind_of_category(category: str) -> str:
    plain = category.lower()
    if plain in ("kernel", "mtia_ccp_events", "mtia_workloadd"):
        return "kernel"
    if "memcpy" in plain or "memset" in plain:
        return "memcpy"
    if plain.endswith(("runtime", "driver")):
        return "launch"
    if plain in ("cpu_op", "operator"):
        return "op"
    return "run" if plain == "trace" else "range"


def kind_of(category: str, name: str) -> str:
    """The kind of span that events of a category are, in all dialects."""
    if category == "user_annotation" and name.startswith("ProfilerStep#"):
        return "iteration"
    return _kind_of_category(category)


def on_device(category: str) -> bool:
    """Whether events of a category have a device for a process, and a stream for a thread."""
    return _kind_of_category(category) in DEVICE_WORK or category.startswith("gpu_") or category == "cuda_sync"


class Events:
    """What the events with a duration say, column by column.

    Attributes:
        counts: How many events there are of each ``ph`` and category.
        kind, name, lane: Codes of the texts in ``kinds``, ``names`` and ``lanes`` (pid, tid, stream).
        start, duration: Nanoseconds on the file's own clock.
        correlation, external: Ids, -1 where there is none.
        device: Device number of work on a device, -1 of others.
        work: Row numbers of work on a device (kernels, copies) with ``details`` beside them.
        details: grid and block (6), registers, bytes, graph node; -1 where unknown.
        whole_us: Whether every stamp is a whole number of microseconds.
    """

    def __init__(self, left: Left, place: Callable[[int], str]) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.kinds: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.lanes: dict[tuple[str, str, str], int] = {}
        self.kind, self.name, self.lane = array("b"), array("i"), array("i")
        self.start, self.duration = array("q"), array("q")
        self.correlation, self.external = array("q"), array("q")
        self.device = array("i")
        self.work, self.details = array("q"), array("q")
        self.whole_us = True
        self._left = left
        self._place = place

    def __len__(self) -> int:
        return len(self.start)

    def take(self, text: str, at: int, offset: int) -> int:
        """Read the event that starts at ``text[at]``; returns where it ends.

        ``offset`` is the place of ``text`` in the file, for messages.

        Raises:
            ValueError: If it is no JSON.
            RecursionError: If it is nested without end.
        """
        event, end = _SCAN(text, at)
        self._any(event, offset + at)
        return end

    def repair(self, text: str, at: int, offset: int) -> int | None:
        """Go on after an event that is no JSON: mend quotes in its name, or leave out its ``args``, or all of it.

        Returns:
            Where to go on; None if no other event follows.
        """
        following = _NEXT_EVENT(text, at)
        fragment = text[at : following.start() + 1] if following else text[at:]
        name = _NAME_VALUE(fragment)
        if name is not None:
            value = re.sub(r'(?<!\\)"', r"\"", name[2])
            mended = f"{fragment[: name.start()]}{name[1]}{value}{name[3]}{fragment[name.end() :]}"
            end = self._take_mended(mended, offset + at)
            if end is not None:
                return at + end - (len(mended) - len(fragment))
        if following is None:
            return None
        args = _ARGS(fragment)
        if args and self._take_mended(fragment[: args.start()] + "}", offset + at) is not None:
            self._drop("unreadable_args", "events have arguments that are no JSON; they are kept without", offset + at)
        else:
            self._drop("unreadable_events", "events are no JSON", offset + at)
        return following.end()

    def _take_mended(self, text: str, place: int) -> int | None:
        """Take an event that was mended; returns where it ends, None if it still is no JSON."""
        try:
            event, end = _SCAN(text, 0)
        except (ValueError, RecursionError):
            return None
        self._any(event, place)
        return int(end)

    def add_span(
        self, kind: str, category: str, name: str, lane: tuple[str, str, str], ts: Any, dur: Any, place: int
    ) -> bool:
        """The first columns of an event; False, and counted, if its times can't be."""
        try:
            start, duration = self.ns(ts), self.ns(dur)
            if duration < 0 or not -_LIMIT < start < _LIMIT or duration > _LIMIT:
                raise ValueError("times that can't be")
        except ValueError:
            self._drop("bad_times", "events have times that can't be", place)
            return False
        self.kind.append(self.kinds.setdefault(kind, len(self.kinds)))
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.lane.append(self.lane_of(*lane))
        self.start.append(start)
        self.duration.append(duration)
        self.counts["X", category] += 1
        return True

    def lane_of(self, pid: str, tid: str, stream: str) -> int:
        """The code of a lane; work on a device has a stream, and all else a thread."""
        return self.lanes.setdefault((pid, "" if stream else tid, stream), len(self.lanes))

    def _any(self, event: Any, place: int) -> None:
        """An event as the JSON parser gives it."""
        if not isinstance(event, dict):
            self._drop("no_events", "entries are no events", place)
            return
        ph, category, name = (as_utf8(str(event.get(key, ""))) for key in ("ph", "cat", "name"))
        if ph != "X":
            self.counts[("flow", "") if ph in ("s", "t", "f") else (ph, category)] += 1
            return
        if event.get("dur") is None or event.get("ts") is None:
            self._drop("without_times", "events have no start or no duration", place)
            return
        args = event.get("args")
        pid, tid = as_utf8(str(event.get("pid", ""))), as_utf8(str(event.get("tid", "")))
        self._append(category, name, pid, tid, event["ts"], event["dur"], args if isinstance(args, dict) else {}, place)

    def _append(
        self, category: str, name: str, pid: str, tid: str, ts: Any, dur: Any, args: dict[str, Any], place: int
    ) -> None:
        kind = kind_of(category, name)
        work = kind in DEVICE_WORK
        stream = as_utf8(str(args.get("stream", tid.removeprefix("stream ")))) if on_device(category) else ""
        device = integer(args.get("device", pid)) if stream else NO_ID
        if not self.add_span(kind, category, name, (pid, tid, stream), ts, dur, place):
            return
        self.correlation.append(integer(args.get("correlation")) if work or kind == "launch" else NO_ID)
        self.external.append(integer(args.get("External id", args.get("external id"))))
        self.device.append(device if device < 1 << 31 else NO_ID)
        if work:
            self.work.append(len(self) - 1)
            self.details.extend(_details(args))

    def ns(self, text: Any) -> int:
        """Microseconds, a decimal text or an integer, as exact nanoseconds.

        Raises:
            ValueError: If it is no number.
        """
        if isinstance(text, str):
            if text[-4:-3] == ".":
                self.whole_us = False
                return int(text[:-4] + text[-3:])
            if "." in text or "e" in text or "E" in text:
                self.whole_us = False
                return _decimal_ns(text)
        elif not isinstance(text, int):
            raise ValueError("not a number")
        return int(text) * 1000

    def _drop(self, code: str, text: str, place: int) -> None:
        self._left.add(code, text, 1, lambda: self._place(place))


def _decimal_ns(text: str) -> int:
    try:
        value = Decimal(text) * 1000
        if not value.is_finite() or value.adjusted() > 20:
            raise ValueError("not a time")
        return int(value.to_integral_value())
    except InvalidOperation:
        raise ValueError("not a number") from None


def integer(value: Any) -> int:
    """An id, or -1 where there is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < _LIMIT else NO_ID


def as_utf8(text: str) -> str:
    """Text whose UTF-8 bytes stand as Latin-1 characters, put right; as it is where it is no UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:  # written with \u escapes, or not UTF-8
        return text


DETAILS = 9
"""How many numbers of each kernel or copy ``Events.details`` holds."""

_NO_AXES = (-1, -1, -1)


def _details(args: dict[str, Any]) -> tuple[int, ...]:
    grid, block = (_axes(args.get(key)) for key in ("grid", "block"))
    counts = (integer(args.get(k)) for k in ("registers per thread", "bytes", "graph node id"))
    return (*grid, *block, *counts)


def _axes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != 3:
        return _NO_AXES
    axes = tuple(integer(axis) for axis in value)
    return axes if all(0 <= axis < 1 << 31 for axis in axes) else _NO_AXES
