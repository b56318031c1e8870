"""The JSON of a Kineto trace: decoded by its types as a whole or, if it is damaged or unusual, event by event."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from json import JSONDecodeError, JSONDecoder
from typing import Any

import msgspec
import numpy as np

from jouletrace.arrays import Ints
from jouletrace.formats.importers.base import Left
from jouletrace.wings.traces.kineto.events import LIMIT, NO_AXES, Args, Event, Events, integer

_SCAN = JSONDecoder(strict=False, parse_float=str).raw_decode
_SPACE = re.compile(r"[\s,]*").match
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*').match
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[').search
_NEXT_EVENT = re.compile(r'\}\s*,?\s*(?=\{\s*"\w+"\s*:)').search
_NAME_VALUE = re.compile(
    r'("name"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|id|args|s|bp)"\s*:)', re.DOTALL
).search
_ARGS = re.compile(r',\s*"args"\s*:\s*\{').search

_PATIENCE = 20
"""Multiple of its own length up to which a file may be read in vain before it counts as damaged."""

_EXACT_US = 1 << 43
"""Below this the fraction of a double of microseconds is exact to half a nanosecond."""


_BATCH = 1 << 11
"""Events that become columns at once, which then fit into the processor's cache."""


class _Plain(Event, gc=False):
    ts: int | float | None = None


class _Exact(Event, gc=False):
    ts: Decimal | None = None


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_plain = msgspec.json.Decoder(list[_Plain])
_exact = msgspec.json.Decoder(list[_Exact])


class _TooLateError(ValueError):
    """A fractional time so late that a double can't hold its nanoseconds."""


def read_trace(data: bytes, left: Left) -> tuple[dict[str, Any], Events]:
    """The members beside the events of a trace, and its events; what can't be read is counted in ``left``."""
    try:
        return _typed(data.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, OverflowError, RecursionError):  # msgspec's errors are ValueErrors
        return _Text(data.decode("utf-8-sig", "replace"), left).read()


def _typed(data: bytes) -> tuple[dict[str, Any], Events]:
    """Decode a sound trace.

    Raises:
        ValueError, OverflowError, RecursionError: If anything in it is damaged or has an unusual type.
    """
    header: dict[str, Any] = {}
    listed: bytes | msgspec.Raw = data
    if data.lstrip()[:1] != b"[":
        members = _members.decode(data)
        listed = members.pop("traceEvents", b"[]")
        header = {key: _SCAN(bytes(value).decode(), 0)[0] for key, value in members.items()}
    try:
        return header, _columns(_plain.decode(listed), _plain_ns)
    except _TooLateError:
        return header, _columns(_exact.decode(listed), _exact_ns)


def _columns(found: Sequence[Any], ns: Callable[[Sequence[Any]], tuple[Ints, bool]]) -> Events:
    events = Events()
    for first in range(0, len(found), _BATCH):
        some = found[first : first + _BATCH]
        start, fraction = ns([event.ts for event in some if event.ph == "X"])
        duration, fractions = _plain_ns([event.dur for event in some if event.ph == "X"])
        if len(duration) and duration.min() < 0:
            raise ValueError("impossible times")
        events.add(some, start, duration)
        events.whole_us &= not (fraction or fractions)
    return events


def _plain_ns(times: Sequence[int | float | None]) -> tuple[Ints, bool]:
    """Microseconds in nanoseconds, and whether any has a fraction.

    Raises:
        ValueError: If one is missing or out of bounds; ``_TooLateError`` if a double isn't exact enough.
    """
    if not times:
        return np.empty(0, np.int64), False
    us = np.array(times)
    if us.dtype == np.int64:
        if not -LIMIT < int(us.min()) * 1000 <= int(us.max()) * 1000 < LIMIT:
            raise ValueError("impossible times")
        return us * 1000, False
    if us.dtype != np.float64:
        raise ValueError("not all are times")
    if not np.all(np.abs(us) < _EXACT_US):
        raise _TooLateError
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64), True


def _exact_ns(times: Sequence[Decimal | None]) -> tuple[Ints, bool]:
    ns = []
    for time in times:
        if time is None or not abs(time) < LIMIT // 1000:
            raise ValueError("not all are times")
        ns.append(int((time * 1000).to_integral_value()))
    return np.array(ns, np.int64), True


class _Text:
    """A damaged or unusual trace as text, from which single events are read."""

    def __init__(self, text: str, left: Left) -> None:
        self._text = text
        self._left = left
        self._header: dict[str, Any] = {}
        self._events = Events()
        self._found: list[Event] = []
        self._start: list[int] = []
        self._duration: list[int] = []

    def read(self) -> tuple[dict[str, Any], Events]:
        """As ``read_trace``."""
        start = _skip(self._text, 0)
        at: int | None = start + 1
        if self._text[start : start + 1] == "[":
            self._read_events(start + 1)
            at = None
        while at is not None:
            at = self._read_member(at)
        self._flush()
        return self._header, self._events

    def _read_member(self, at: int) -> int | None:
        """Read one key with its value; returns where it ends, None at the end of the object."""
        key = _KEY(self._text, at)
        if key is None:
            if self._text[at : at + 4096].strip(" \t\r\n,")[:1] != "}":
                self._cut_off(at)
            return None
        at = key.end()
        if key[1] == "traceEvents" and self._text[at : at + 1] == "[":
            return self._read_events(at + 1)
        try:
            self._header[key[1]], end = _SCAN(self._text, at)
            return int(end)
        except (ValueError, RecursionError):  # continue at the events, if they are still to come
            found = _EVENTS(self._text, at)
            self._count("unreadable_header", "values beside the events aren't JSON", at)
            return self._read_events(found.end()) if found else None

    def _read_events(self, at: int) -> int | None:
        """Read all events of the list; returns where it ends, None if the file ends before."""
        budget = _PATIENCE * (len(self._text) + 1)
        while (at := _skip(self._text, at)) < len(self._text):
            if self._text[at] == "]":
                return at + 1
            if len(self._found) >= _BATCH:
                self._flush()
            try:
                at = self._take(self._text, at)
                continue
            except (ValueError, RecursionError) as error:
                budget -= max(1, (error.pos if isinstance(error, JSONDecodeError) else 0) - at)
            following = self._repair(self._text, at)
            if budget < 0 or following is None:
                break
            at = following
        self._cut_off(at)
        return None

    def _take(self, text: str, at: int, offset: int = 0) -> int:
        """Read the event that starts at ``text[at]``, which begins in the file at ``offset``; returns where it ends.

        Raises:
            ValueError: If it isn't JSON.
            RecursionError: If it is nested too deeply.
        """
        event, end = _SCAN(text, at)
        self._any(event, offset + at)
        return int(end)

    def _repair(self, text: str, at: int) -> int | None:
        """Repair quotes in the name of an event that isn't JSON, or leave out its ``args``, or all of it.

        Returns where to continue; None if no other event follows.
        """
        following = _NEXT_EVENT(text, at)
        fragment = text[at : following.start() + 1] if following else text[at:]
        if name := _NAME_VALUE(fragment):
            value = re.sub(r'(?<!\\)"', r"\"", name[2])
            mended = f"{fragment[: name.start()]}{name[1]}{value}{name[3]}{fragment[name.end() :]}"
            end = self._take_mended(mended, at)
            if end is not None:
                return at + end - (len(mended) - len(fragment))
        if following is None:
            return None
        args = _ARGS(fragment)
        if args and self._take_mended(fragment[: args.start()] + "}", at) is not None:
            self._count("unreadable_args", "events have arguments that aren't JSON; only these are lost", at)
        else:
            self._count("unreadable_events", "events aren't JSON", at)
        return following.end()

    def _take_mended(self, text: str, place: int) -> int | None:
        """Read a repaired event; returns where it ends, None if it still isn't JSON."""
        try:
            return self._take(text, 0, place)
        except (ValueError, RecursionError):
            return None

    def _any(self, event: Any, place: int) -> None:
        """Add an event parsed as generic JSON."""
        if not isinstance(event, dict):
            self._count("no_events", "entries aren't events", place)
            return
        ph, category, name, pid, tid = (str(event.get(key, "")) for key in ("ph", "cat", "name", "pid", "tid"))
        if ph != "X":
            self._found.append(Event(ph, category))
            return
        if event.get("dur") is None or event.get("ts") is None:
            self._count("without_times", "events have no start or no duration", place)
            return
        try:
            start, duration = self._ns(event["ts"]), self._ns(event["dur"])
            if duration < 0 or not -LIMIT < start < LIMIT or duration > LIMIT:
                raise ValueError("impossible times")
        except ValueError:
            self._count("bad_times", "events have impossible times", place)
            return
        args = event.get("args")
        known = _args(args if isinstance(args, dict) else {})
        self._found.append(Event(ph, category, name, pid, tid, args=known))
        self._start.append(start)
        self._duration.append(duration)

    def _flush(self) -> None:
        """Turn the events so far into columns."""
        self._events.add(self._found, np.array(self._start, np.int64), np.array(self._duration, np.int64))
        self._found, self._start, self._duration = [], [], []

    def _ns(self, us: Any) -> int:
        """Microseconds, as decimal text or an integer, in exact nanoseconds.

        Raises:
            ValueError: If it isn't a number.
        """
        if not isinstance(us, int | str):
            raise ValueError("not a number")
        if isinstance(us, str) and set(us) & set(".eE"):
            self._events.whole_us = False
        try:
            ns = Decimal(us) * 1000
        except InvalidOperation:
            raise ValueError("not a number") from None
        if not ns.is_finite() or ns.adjusted() > 20:
            raise ValueError("not a time")
        return int(ns.to_integral_value())

    def _cut_off(self, at: int) -> None:
        self._count("cut_off", "place where the file breaks off; the rest is lost", at)

    def _count(self, code: str, text: str, at: int) -> None:
        """Count something left out; only the first place of its kind is turned into a line."""
        self._left.add(code, text, 1, lambda: f"line {self._text.count(chr(10), 0, at) + 1}")


def _skip(text: str, at: int) -> int:
    """Start of the next element after spaces and commas."""
    found = _SPACE(text, at)
    return found.end() if found else at


def _args(args: dict[str, Any]) -> Args:
    """Arguments of any types."""
    stream = args.get("stream")
    return Args(
        external=integer(args.get("External id", args.get("external id"))),
        correlation=integer(args.get("correlation")),
        device=integer(args["device"]) if "device" in args else None,
        stream=None if stream is None else str(stream),
        grid=_axes(args.get("grid")),
        block=_axes(args.get("block")),
        registers=integer(args.get("registers per thread")),
        bytes=integer(args.get("bytes")),
        graph_node=integer(args.get("graph node id")),
    )


def _axes(value: Any) -> tuple[int, int, int]:
    x, y, z = value if isinstance(value, list) and len(value) == 3 else NO_AXES
    return integer(x), integer(y), integer(z)
