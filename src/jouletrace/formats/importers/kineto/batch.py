"""The fast way through a Kineto trace: chunks of whole events, decoded by their types and made columns at once.

Where a chunk ends is guessed, and can't be guessed wrong: what begins with an event and is a valid
list of events ends with one. The types are stricter than the slow way (``Events.take``): a
chunk with anything odd in it is tried smaller and then left to that whole, with nothing of it added.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.formats.importers.kineto.events import DEVICE_WORK, NO_ID, Events, integer, kind_of, on_device

_CHUNK, _SMALLEST = 256 << 10, 4 << 10
"""Bytes of a chunk: few enough that its events stay in the processor's cache; and of one that isn't tried smaller."""

_SPACE = re.compile(rb"[\s,]*").match
_BETWEEN = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*:)').finditer
_LAST = re.compile(rb"\}(?=\s*\])").finditer
_ENDS = 3
"""At how many places the end of the list is looked for, from the end of the file."""

_EXACT_US = 1 << 43
"""Below this a double of microseconds, its whole part taken off, is exact to half a nanosecond."""

_LIMIT, _INT32 = 1 << 62, 1 << 31
_NO_AXES = (NO_ID, NO_ID, NO_ID)

Ints = NDArray[np.int64]


class _Args(msgspec.Struct, frozen=True, gc=False):
    external: int = msgspec.field(name="External id", default=NO_ID)
    external_1_8: int = msgspec.field(name="external id", default=NO_ID)
    correlation: int = NO_ID
    device: int | None = None
    stream: int | str | None = None
    grid: tuple[int, int, int] = _NO_AXES
    block: tuple[int, int, int] = _NO_AXES
    registers: int = msgspec.field(name="registers per thread", default=NO_ID)
    bytes: int = NO_ID
    graph_node: int = msgspec.field(name="graph node id", default=NO_ID)


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    dur: int | float | None = None
    args: _Args = _Args()


class _Plain(_Event, gc=False):
    ts: int | float | None = None


class _Exact(_Event, gc=False):
    ts: Decimal | None = None


_plain = msgspec.json.Decoder(list[_Plain])
_exact = msgspec.json.Decoder(list[_Exact])


class _TooLateError(ValueError):
    """A time with a fraction is so late that a double doesn't hold its nanoseconds."""


def take_chunks(events: Events, data: bytes, at: int) -> tuple[int, int]:
    """Read the events from ``data[at]`` on, chunk by chunk.

    Returns:
        Where the first chunk starts that has to be read another way, and where about it ends.
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
    """Add the events of a chunk; False, and nothing added, if it can't be decoded."""
    text = b"[%b]" % chunk
    try:
        try:
            plain = _plain.decode(text)
            times = _plain_ns([event.ts for event in plain if event.ph == "X"])
            _add(events, plain, *times)
        except _TooLateError:
            exact = _exact.decode(text)
            _add(events, exact, _exact_ns([event.ts for event in exact if event.ph == "X"]), True)
        return True
    except (ValueError, OverflowError, RecursionError):  # msgspec's errors are ValueErrors
        return False


def _plain_ns(times: Sequence[int | float | None]) -> tuple[Ints, bool]:
    """Microseconds in nanoseconds, and whether some had a fraction.

    Raises:
        ValueError: If one is missing or beyond all bounds; ``_TooLateError`` if a double isn't exact enough.
    """
    if not times:
        return np.empty(0, np.int64), False
    us = np.array(times)
    if us.dtype == np.int64:
        if not -_LIMIT < int(us.min()) * 1000 <= int(us.max()) * 1000 < _LIMIT:
            raise ValueError("times that can't be")
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
        if time is None or not abs(time) < _LIMIT // 1000:
            raise ValueError("not all are times")
        ns.append(int((time * 1000).to_integral_value()))
    return np.array(ns, np.int64)


def _add(events: Events, found: Sequence[_Event], start: Ints, fraction: bool) -> None:
    """Add the events of a chunk, those with a duration as columns; what can fail comes before anything is added."""
    spans = [event for event in found if event.ph == "X"]
    duration, fractions = _plain_ns([span.dur for span in spans])
    if len(duration) and duration.min() < 0:
        raise ValueError("times that can't be")
    args = [span.args for span in spans]
    external = _ids([one.external for one in args])
    if (external < 0).any():
        external = np.where(external < 0, _ids([one.external_1_8 for one in args]), external)
    correlation = _ids([one.correlation for one in args])
    categories = [span.cat for span in spans]
    kinds = {category: kind_of(category, "") for category in dict.fromkeys(categories)}
    work = [k for k, category in enumerate(categories) if kinds[category] in DEVICE_WORK]
    details = _details([args[k] for k in work])
    device = np.full(len(spans), NO_ID)
    streams = [""] * len(spans)
    of_device = {category for category in kinds if on_device(category)}
    for k in [k for k, category in enumerate(categories) if category in of_device] if of_device else ():
        span, one = spans[k], args[k]
        streams[k] = str(span.tid).removeprefix("stream ") if one.stream is None else str(one.stream)
        number = integer(span.pid if one.device is None else one.device) if streams[k] else NO_ID
        device[k] = number if number < _INT32 else NO_ID

    for (ph, category), count in Counter([(event.ph, event.cat) for event in found]).items():
        events.counts[("flow", "") if ph in ("s", "t", "f") else (ph, category)] += count
    events.whole_us &= not (fraction or fractions)
    codes = {category: events.kinds.setdefault(kind, len(events.kinds)) for category, kind in kinds.items()}
    kind = [codes[category] for category in categories]
    if "user_annotation" in kinds:
        for k, span in enumerate(spans):
            if (one_kind := kind_of(span.cat, span.name)) == "iteration":
                kind[k] = events.kinds.setdefault(one_kind, len(events.kinds))
    ids = np.isin(kind, [events.kinds.get(k, NO_ID) for k in (*DEVICE_WORK, "launch")])
    places = list(zip([span.pid for span in spans], [span.tid for span in spans], streams, strict=True))
    lanes = {place: events.lane_of(str(place[0]), str(place[1]), place[2]) for place in dict.fromkeys(places)}
    names = events.names
    _extend(events.work, np.array(work, np.int64) + len(events))
    _extend(events.details, details)
    _extend(events.kind, kind)
    _extend(events.name, [names.setdefault(span.name, len(names)) for span in spans])
    _extend(events.lane, [lanes[place] for place in places])
    _extend(events.correlation, np.where(ids, correlation, NO_ID))
    _extend(events.external, external)
    _extend(events.device, device)
    _extend(events.start, start)
    _extend(events.duration, duration)


def _ids(values: Sequence[int]) -> Ints:
    """Ids, -1 where there is none.

    Raises:
        OverflowError: If one needs more than 64 bits.
    """
    ids = np.array(values, np.int64)
    return np.where((ids >= 0) & (ids < _LIMIT), ids, NO_ID)


def _details(args: Sequence[_Args]) -> Ints:
    """Grid and block, registers, bytes and graph node of work on a device, flat."""
    columns = []
    for axes in ([one.grid for one in args], [one.block for one in args]):
        three = np.array(list(chain.from_iterable(axes)), np.int64).reshape(-1, 3)
        three[((three < 0) | (three >= _INT32)).any(axis=1)] = NO_ID
        columns.append(three)
    for numbers in ([one.registers for one in args], [one.bytes for one in args], [one.graph_node for one in args]):
        columns.append(_ids(numbers)[:, np.newaxis])
    return np.concatenate(columns, axis=1).ravel()


def _extend(column: array[Any], values: ArrayLike) -> None:
    column.frombytes(np.asarray(values).astype(column.typecode).tobytes())
