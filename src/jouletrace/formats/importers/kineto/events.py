"""The events of a Kineto trace as columns; unusual events are read singly from JSON text."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import chain
from json import JSONDecoder
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

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
LIMIT, _INT32 = 1 << 62, 1 << 31
_NO_AXES = (NO_ID, NO_ID, NO_ID)
_MOST_ODD = 4096

DETAILS = 9
"""Number of values per kernel or copy in ``Events.details``."""

Ints = NDArray[np.int64]


class Args(msgspec.Struct, frozen=True, gc=False):
    """Details in an event's ``args``."""

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


class Event(msgspec.Struct, gc=False):
    """An event without its start."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    dur: int | float | None = None
    args: Args = Args()


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
    """The kind of span for the events of a category, in all dialects."""
    if category == "user_annotation" and name.startswith("ProfilerStep#"):
        return "iteration"
    return _kind_of_category(category)


def on_device(category: str) -> bool:
    """Whether the process of a category's events is a device, and the thread a stream."""
    return _kind_of_category(category) in DEVICE_WORK or category.startswith("gpu_") or category == "cuda_sync"


class Events:
    """The events with a duration, by columns.

    Attributes:
        counts: Number of events of each ``ph`` and category.
        kind, name, lane: Codes of the texts in ``kinds``, ``names`` and ``lanes`` (pid, tid, stream).
        start, duration: Nanoseconds on the file's own clock.
        correlation, external: Ids, -1 where missing.
        device: Device number of work on a device, -1 for others.
        work: Row numbers of work on a device (kernels, copies), whose ``details`` are kept.
        details: Grid and block (6), registers, bytes, graph node; -1 where unknown.
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
        self._odd: list[tuple[Event, int, int]] = []
        self._left = left
        self._place = place

    def __len__(self) -> int:
        return len(self.start)

    def add(self, events: Sequence[Event], start: Ints, duration: Ints) -> None:
        """Add events, those with a duration as columns; raises before anything is added.

        Args:
            events: Events of any kind, in order.
            start: Start in nanoseconds of those with a duration, shape (n,).
            duration: Duration in nanoseconds of the same, shape (n,).

        Raises:
            OverflowError: If an id needs more than 64 bits.
        """
        self.flush()
        self._add(events, start, duration)

    def flush(self) -> None:
        """Add the queued unusual events."""
        if self._odd:
            found, start, duration = zip(*self._odd, strict=True)
            self._odd = []
            self._add(found, np.array(start, np.int64), np.array(duration, np.int64))

    def _add(self, found: Sequence[Event], start: Ints, duration: Ints) -> None:
        spans = [event for event in found if event.ph == "X"]
        args = [span.args for span in spans]
        external = _ids([one.external for one in args])
        if (external < 0).any():
            external = np.where(external < 0, _ids([one.external_1_8 for one in args]), external)
        correlation = _ids([one.correlation for one in args])
        categories = [span.cat for span in spans]
        kinds = {category: kind_of(category, "") for category in dict.fromkeys(categories)}
        work = [k for k, category in enumerate(categories) if kinds[category] in DEVICE_WORK]
        details = _details([args[k] for k in work])
        device, streams = _places(spans, {category for category in kinds if on_device(category)})

        for (ph, category), count in Counter([(event.ph, event.cat) for event in found]).items():
            self._count(ph, category, count)
        codes = {category: self._kind(kind) for category, kind in kinds.items()}
        kind = [codes[category] for category in categories]
        if "user_annotation" in kinds:
            for k, span in enumerate(spans):
                if (one_kind := kind_of(span.cat, span.name)) == "iteration":
                    kind[k] = self._kind(one_kind)
        ids = np.isin(kind, [self.kinds.get(k, NO_ID) for k in (*DEVICE_WORK, "launch")])
        places = list(zip([span.pid for span in spans], [span.tid for span in spans], streams, strict=True))
        lanes = {place: self._lane(*place) for place in dict.fromkeys(places)}
        names = self.names
        _extend(self.work, np.array(work, np.int64) + len(self))
        _extend(self.details, details)
        _extend(self.kind, kind)
        _extend(self.name, [names.setdefault(span.name, len(names)) for span in spans])
        _extend(self.lane, [lanes[place] for place in places])
        _extend(self.correlation, np.where(ids, correlation, NO_ID))
        _extend(self.external, external)
        _extend(self.device, device)
        _extend(self.start, start)
        _extend(self.duration, duration)

    def _count(self, ph: str, category: str, count: int) -> None:
        self.counts[("flow", "") if ph in ("s", "t", "f") else (ph, category)] += count

    def _kind(self, kind: str) -> int:
        return self.kinds.setdefault(kind, len(self.kinds))

    def _lane(self, pid: int | str, tid: int | str, stream: str) -> int:
        """The code of a lane: a stream for work on a device, else a thread."""
        return self.lanes.setdefault((str(pid), "" if stream else str(tid), stream), len(self.lanes))

    def take(self, text: str, at: int, offset: int = 0) -> int:
        """Read the event that starts at ``text[at]``; returns where it ends.

        ``offset`` is the place of ``text`` in the file, for messages.

        Raises:
            ValueError: If it isn't JSON.
            RecursionError: If it is nested too deeply.
        """
        event, end = _SCAN(text, at)
        self._any(event, offset + at)
        return int(end)

    def repair(self, text: str, at: int) -> int | None:
        """Continue after an event that isn't JSON: repair quotes in its name, or leave out its ``args``, or all of it.

        Returns:
            Where to continue; None if no other event follows.
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
            self._drop("unreadable_args", "events have arguments that aren't JSON; only these are lost", at)
        else:
            self._drop("unreadable_events", "events aren't JSON", at)
        return following.end()

    def _take_mended(self, text: str, place: int) -> int | None:
        """Read a repaired event; returns where it ends, None if it still isn't JSON."""
        try:
            return self.take(text, 0, place)
        except (ValueError, RecursionError):
            return None

    def _any(self, event: Any, place: int) -> None:
        """Add an event parsed as generic JSON."""
        if not isinstance(event, dict):
            self._drop("no_events", "entries aren't events", place)
            return
        ph, category, name, pid, tid = (str(event.get(key, "")) for key in ("ph", "cat", "name", "pid", "tid"))
        if ph != "X":
            self._count(ph, category, 1)
            return
        if event.get("dur") is None or event.get("ts") is None:
            self._drop("without_times", "events have no start or no duration", place)
            return
        try:
            start, duration = self.ns(event["ts"]), self.ns(event["dur"])
            if duration < 0 or not -LIMIT < start < LIMIT or duration > LIMIT:
                raise ValueError("impossible times")
        except ValueError:
            self._drop("bad_times", "events have impossible times", place)
            return
        args = event.get("args")
        known = _args(args if isinstance(args, dict) else {})
        self._odd.append((Event(ph, category, name, pid, tid, args=known), start, duration))
        if len(self._odd) >= _MOST_ODD:
            self.flush()

    def ns(self, text: Any) -> int:
        """Microseconds, as decimal text or an integer, in exact nanoseconds.

        Raises:
            ValueError: If it isn't a number.
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
    """An id, or -1 where it is missing."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < LIMIT else NO_ID


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
    x, y, z = value if isinstance(value, list) and len(value) == 3 else _NO_AXES
    return integer(x), integer(y), integer(z)


def _places(spans: Sequence[Event], of_device: set[str]) -> tuple[Ints, list[str]]:
    """Device and stream of each event of these categories; -1 and "" for all others."""
    device = np.full(len(spans), NO_ID)
    streams = [""] * len(spans)
    for k in [k for k, span in enumerate(spans) if span.cat in of_device] if of_device else ():
        span, one = spans[k], spans[k].args
        streams[k] = str(span.tid).removeprefix("stream ") if one.stream is None else str(one.stream)
        number = integer(span.pid if one.device is None else one.device) if streams[k] else NO_ID
        device[k] = number if number < _INT32 else NO_ID
    return device, streams


def _ids(values: Sequence[int]) -> Ints:
    """Ids, -1 where missing.

    Raises:
        OverflowError: If one needs more than 64 bits.
    """
    ids = np.array(values, np.int64)
    return np.where((ids >= 0) & (ids < LIMIT), ids, NO_ID)


def _details(args: Sequence[Args]) -> Ints:
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
