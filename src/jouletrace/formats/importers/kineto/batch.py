"""The fast path through a Kineto trace: chunks of whole events, decoded by their types into columns at once.

The end of a chunk is a guess that is always checked: text that begins with an event and is a valid
list of events ends with one. The types are stricter than the slow path (``Events.take``): a
chunk with anything unusual is tried at a smaller size and then left to the slow path as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np

from jouletrace.formats.importers.kineto.events import LIMIT, Event, Events, Ints

_CHUNK, _SMALLEST = 256 << 10, 4 << 10
"""Bytes of a chunk, whose events then fit into the processor's cache, and the least size that is tried."""

_SPACE = re.compile(rb"[\s,]*").match
_BETWEEN = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*:)').finditer
_LAST = re.compile(rb"\}(?=\s*\])").finditer
_ENDS = 3
"""Number of places at which the end of the list is searched, from the end of the file."""

_EXACT_US = 1 << 43
"""Below this the fraction of a double of microseconds is exact to half a nanosecond."""


class _Plain(Event, gc=False):
    ts: int | float | None = None


class _Exact(Event, gc=False):
    ts: Decimal | None = None


_plain = msgspec.json.Decoder(list[_Plain])
_exact = msgspec.json.Decoder(list[_Exact])


class _TooLateError(ValueError):
    """A fractional time so late that a double can't hold its nanoseconds."""


def take_chunks(events: Events, data: bytes, at: int) -> tuple[int, int]:
    """Read the events from ``data[at]`` on, chunk by chunk.

    Returns:
        Start of the first chunk that must be read by the slow path, and its approximate end.
    """
    size = _CHUNK
    while True:
        at = _end(_SPACE(data, at), at)
        stop = at + size
        end = next((end for end in _chunk_ends(data, at, stop) if _take(events, data[at:end])), None)
        if end is not None:
            at = end
            size = min(2 * size, _CHUNK)
        elif size <= _SMALLEST:
            return at, stop
        else:
            size //= 4


def _end(found: re.Match[bytes] | None, at: int) -> int:
    return found.end() if found else at


def _chunk_ends(data: bytes, at: int, stop: int) -> list[int]:
    """Places between ``at`` and ``stop`` where an event may end, in the order in which to try them."""
    ends: list[int] = []
    if stop >= len(data):
        ends = [found.end() for found in _LAST(data, at)][: -_ENDS - 1 : -1]
    length = 4096
    while True:  # nearly always in the last few kilobytes
        start = max(at, stop - length)
        between = [found.end() for found in _BETWEEN(data, start, stop)]
        if between or start == at:
            return ends + between[-1:]
        length *= 4


def _take(events: Events, chunk: bytes) -> bool:
    """Add the events of a chunk; False, with nothing added, if it can't be decoded."""
    text = b"[%b]" % chunk
    found: Sequence[_Plain | _Exact]
    try:
        try:
            found = _plain.decode(text)
            start, fraction = _plain_ns([event.ts for event in found if event.ph == "X"])
        except _TooLateError:
            found = exact = _exact.decode(text)
            start, fraction = _exact_ns([event.ts for event in exact if event.ph == "X"]), True
        duration, fractions = _plain_ns([event.dur for event in found if event.ph == "X"])
        if len(duration) and duration.min() < 0:
            raise ValueError("impossible times")
        events.add(found, start, duration)
        events.whole_us &= not (fraction or fractions)
        return True
    except (ValueError, OverflowError, RecursionError):  # msgspec's errors are ValueErrors
        return False


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


def _exact_ns(times: Sequence[Decimal | None]) -> Ints:
    ns = []
    for time in times:
        if time is None or not abs(time) < LIMIT // 1000:
            raise ValueError("not all are times")
        ns.append(int((time * 1000).to_integral_value()))
    return np.array(ns, np.int64)
