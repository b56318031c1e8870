"""The fast way through a Kineto trace: events in the profiler's own layout, many at a time.

One pattern takes an event apart several times faster than a JSON parser builds objects, and a
batch becomes columns with a handful of loops. The pattern is stricter than JSON: whatever it
doesn't fit, down to one event, is left to the parser. It can't take a part of an event for a
whole one: it stops before a backslash, so quotes pair up, and arguments that were cut inside a text
have an odd number of them; and arguments that hold an object don't count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from jouletrace.importers.kineto.events import DEVICE_WORK, NO_ID, Events, kind_of, on_device

# Possessive repeats ("*+") never give back what they took, which spares the matcher its notes on where it could.
_TEXT = r'"[^"]*+"'
_ID = rf"(?:{_TEXT}|-?\d++)"
_TIME = r"(\d{1,17}+(?:\.\d{3})?)(?=[,\s}])"
_LANE = rf'"pid":\s*+{_ID},\s*+"tid":\s*+{_ID}'
_ARROW = (
    rf'\{{\s*+"ph":\s*+"[sf]",\s*+"id":\s*+\d++,\s*+{_LANE},\s*+"ts":\s*+[\d.]++,'
    rf'\s*+"cat":\s*+{_TEXT},\s*+"name":\s*+{_TEXT}(?:,\s*+"bp":\s*+"e")?\s*+\}}'
)
_NEXT = r"\s*+(?:,\s*+|(?=\]))"
_EVENT = re.compile(
    rf'\{{\s*+"ph":\s*+"X",\s*+"cat":\s*+"([^"]*+)",\s*+"name":\s*+"([^"]*+)",\s*+({_LANE}),'
    rf'\s*+"ts":\s*+{_TIME},\s*+"dur":\s*+{_TIME}(?:,\s*+"args":\s*+\{{([^}}]*+)\}})?\s*+\}}{_NEXT}((?:{_ARROW}{_NEXT})*+)'
).match
_LANE_PARTS = re.compile(rf'"pid":\s*({_ID}),\s*"tid":\s*({_ID})').match
_ARROWS = re.compile(rf"(?:{_ARROW}{_NEXT})+").match

_EXTERNAL = re.compile(r'xternal id":\s*(\d{1,18})\b').search  # a text in front is searched for fast; a set isn't
_CORRELATION = re.compile(r'"correlation":\s*(\d{1,18})\b').search
_AXES = r"\[(\d{1,9}),\s*(\d{1,9}),\s*(\d{1,9})\]"
_REAL = r"[\d.e+-]++"
_WORK = re.compile(
    r'\s*+(?:"External id":\s*+(\d{1,18}),\s*+)?(?:"queued":\s*+\d++,\s*+)?"device":\s*+(\d{1,9}),'
    r'\s*+"context":\s*+\d++,\s*+"stream":\s*+(\d++),\s*+"correlation":\s*+(\d{1,18}),'
    r'\s*+(?:"registers per thread":\s*+(\d{1,9}),'
    rf'\s*+"shared memory":\s*+\d++,\s*+"blocks per SM":\s*+{_REAL},\s*+"warps per SM":\s*+{_REAL},'
    rf'\s*+"grid":\s*+{_AXES},\s*+"block":\s*+{_AXES},\s*+"est. achieved occupancy %":\s*+{_REAL}'
    rf'|"bytes":\s*+(\d{{1,18}}),\s*+"memory bandwidth \(GB/s\)":\s*+{_REAL})\s*+$'
).match
"""The usual arguments of kernels, and of copies."""

_BATCH = 1000
"""Events in a batch: few enough to stay in the processor's cache."""

_Row = tuple[str, str, str, str, str, str | None, str]
"""Category, name, lane, start, duration, arguments, and the arrows that follow, as they are written."""


def take_batch(events: Events, text: str, at: int, offset: int) -> int:
    """Read the events from ``text[at]`` on that are in the usual layout; returns where the first other one starts."""
    arrows = _ARROWS(text, at)
    if arrows is not None and "\\" not in arrows[0]:
        events.counts["flow", ""] += arrows[0].count("{")
        at = arrows.end()
    rows, end = _match(text, at, len(text))
    escape = text.find("\\", at, end)
    if escape >= 0:
        rows, end = _match(text, at, escape)
    if rows:
        _add(events, rows, offset + at)
    return end


def _match(text: str, at: int, stop: int) -> tuple[list[_Row], int]:
    """The events in the usual layout from ``text[at]`` to ``text[stop]``, and where they end."""
    rows: list[_Row] = []
    found = _EVENT(text, at, stop)
    while found is not None and len(rows) < _BATCH:
        row: _Row = found.groups()  # type: ignore[assignment]  # seven of them
        arguments = row[5]
        if arguments is not None and ("{" in arguments or arguments.count('"') % 2):
            break
        rows.append(row)
        at = found.end()
        found = _EVENT(text, at, stop)
    return rows, at


def _add(events: Events, rows: list[_Row], first: int) -> None:
    flows = sum([row[6].count("{") for row in rows if row[6]])
    if flows:
        events.counts["flow", ""] += flows
    kind_by_category = {category: kind_of(category, "") for category in {row[0] for row in rows}}
    of_device = {category for category in kind_by_category if on_device(category)}
    if of_device:
        _add_device_work(events, [row for row in rows if row[0] in of_device], first)
        rows = [row for row in rows if row[0] not in of_device]
    if not rows:
        return
    code_of = {c: events.kinds.setdefault(kind_by_category[c], len(events.kinds)) for c in kind_by_category}
    kinds = [code_of[row[0]] for row in rows]
    if "user_annotation" in code_of:
        step = events.kinds.setdefault("iteration", len(events.kinds))
        for k, row in enumerate(rows):
            if row[0] == "user_annotation" and kind_of(row[0], row[1]) == "iteration":
                kinds[k] = step
    launch = events.kinds.get("launch", NO_ID)
    external = [_EXTERNAL(row[5]) if row[5] else None for row in rows]
    correlation = [
        _CORRELATION(row[5]) if kind == launch and row[5] else None for kind, row in zip(kinds, rows, strict=True)
    ]
    events.external.extend([int(m[1]) if m else NO_ID for m in external])
    events.correlation.extend([int(m[1]) if m else NO_ID for m in correlation])
    events.device.extend([NO_ID] * len(rows))
    _add_common(events, rows, kinds, [""] * len(rows))


def _add_common(events: Events, rows: list[_Row], kinds: list[int], streams: Sequence[str]) -> None:
    """The columns that every event has; ``streams`` are "" for those of the host."""
    categories, names, places, starts, durations, _, _ = zip(*rows, strict=True)
    for category in set(categories):
        events.counts["X", category] += categories.count(category)
    known = events.names
    keys = list(zip(places, streams, strict=True))
    lanes = {key: events.lane_of(*_lane(key[0]), key[1]) for key in set(keys)}
    events.kind.extend(kinds)
    events.name.extend([known.setdefault(name, len(known)) for name in names])
    events.lane.extend([lanes[key] for key in keys])
    events.start.extend(_all_ns(events, starts))
    events.duration.extend(_all_ns(events, durations))


def _all_ns(events: Events, texts: Sequence[str]) -> list[int]:
    """Microseconds, with three decimals or none, in nanoseconds."""
    points = "".join(texts).count(".")
    if points == 0:
        return [int(text) * 1000 for text in texts]
    if points == len(texts):
        events.whole_us = False
        return [int(text.replace(".", "")) for text in texts]
    return [events.ns(text) for text in texts]


def _lane(text: str) -> tuple[str, str]:
    """Process and thread of ``"pid": 1, "tid": "stream 7"``."""
    found = _LANE_PARTS(text)
    assert found is not None  # it is a part of what _EVENT matched
    return found[1].strip('"'), found[2].strip('"')


def _add_device_work(events: Events, rows: list[_Row], first: int) -> None:
    """Work whose arguments are the usual ones as columns; other one by one. ``first`` is where the batch starts."""
    work: list[_Row] = []
    kinds: list[str] = []
    usual: list[tuple[str, ...]] = []
    for row in rows:
        kind = kind_of(row[0], "")
        found = _WORK(row[5]) if row[5] and kind in DEVICE_WORK else None
        if found is not None:
            work.append(row)
            kinds.append(kind)
            usual.append(found.groups("-1"))
            continue
        category, name, lane, start, duration, arguments, _ = row
        events.add_parsed(category, name, *_lane(lane), start, duration, arguments or "", first)
    if not work:
        return
    events.work.extend(range(len(events), len(events) + len(work)))
    external, device, streams, correlation, registers, *axes, size = zip(*usual, strict=True)
    details = [list(map(int, column)) for column in (*axes, registers, size)]
    events.details.extend(chain.from_iterable(zip(*details, [NO_ID] * len(work), strict=True)))
    events.external.extend(list(map(int, external)))
    events.correlation.extend(list(map(int, correlation)))
    events.device.extend(list(map(int, device)))
    _add_common(events, work, [events.kinds.setdefault(kind, len(events.kinds)) for kind in kinds], streams)
