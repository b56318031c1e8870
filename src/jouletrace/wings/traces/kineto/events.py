"""The events of a Kineto trace as columns; unusual events are read singly from JSON text."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Ints

DEVICE_WORK = ("kernel", "memcpy")
"""Kinds of spans that run on a device."""

NO_ID, UNSTATED = -1, -2
LIMIT, _INT32 = 1 << 62, 1 << 31
NO_AXES = (NO_ID, NO_ID, NO_ID)

DETAILS = 9
"""Number of values per kernel or copy in ``Events.details``."""


class Args(msgspec.Struct, frozen=True, gc=False):
    """Details in an event's ``args``."""

    external: int = msgspec.field(name="External id", default=NO_ID)
    external_1_8: int = msgspec.field(name="external id", default=NO_ID)
    correlation: int = NO_ID
    device: int | None = None
    stream: int | str | None = None
    grid: tuple[int, int, int] = NO_AXES
    block: tuple[int, int, int] = NO_AXES
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
    """True if the process of a category's events is a device, and the thread a stream."""
    return _kind_of_category(category) in DEVICE_WORK or category.startswith("gpu_") or category == "cuda_sync"


class Events:
    """The events with a duration, by columns.

    Attributes:
        counts: Number of events of each ``ph`` and category.
        kind, name, lane: Codes of the texts in ``kinds``, ``names`` and ``lanes`` (pid, tid, stream).
        start, duration: Nanoseconds on the file's own clock.
        correlation, external: Ids, -1 where missing.
        device: Device number of what is on a device, ``UNSTATED`` where it states none, -1 for others.
        work: Row numbers of work on a device (kernels, copies), whose ``details`` are kept.
        details: Grid and block (6), registers, bytes, graph node; -1 where unknown.
        whole_us: Whether every stamp is a whole number of microseconds.
    """

    def __init__(self) -> None:
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

    def __len__(self) -> int:
        return len(self.start)

    def add(self, found: Sequence[Event], start: Ints, duration: Ints) -> None:
        """Add events of any kind, in order; raises before anything is added.

        ``start`` and ``duration`` are those of the events with a duration, in nanoseconds, shape (n,).

        Raises:
            OverflowError: If an id needs more than 64 bits.
        """
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
            self.counts[("flow", "") if ph in ("s", "t", "f") else (ph, category)] += count
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

    def _kind(self, kind: str) -> int:
        return self.kinds.setdefault(kind, len(self.kinds))

    def _lane(self, pid: int | str, tid: int | str, stream: str) -> int:
        """The code of a lane: a stream for work on a device, else a thread."""
        return self.lanes.setdefault((str(pid), "" if stream else str(tid), stream), len(self.lanes))


def integer(value: Any) -> int:
    """An id, or -1 where it is missing."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < LIMIT else NO_ID


def _places(spans: Sequence[Event], of_device: set[str]) -> tuple[Ints, list[str]]:
    """Device as it is stated, and stream, of each event of these categories; -1 and "" for all others."""
    device = np.full(len(spans), NO_ID)
    streams = [""] * len(spans)
    for k in [k for k, span in enumerate(spans) if span.cat in of_device] if of_device else ():
        span, one = spans[k], spans[k].args
        streams[k] = str(span.tid).removeprefix("stream ") if one.stream is None else str(one.stream)
        number = integer(one.device)
        if streams[k]:
            device[k] = number if NO_ID < number < _INT32 else UNSTATED
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
