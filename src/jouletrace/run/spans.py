"""Spans of a Run that have times, as arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.arrays import Floats, Indices, Ints, Mask
from jouletrace.run import tables
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import Run

_NUMBERS = ("id", "parent", "start_ns", "end_ns")
_TEXTS = ("kind", "name", "device", "lane")

_DEEPEST = 1000
"""Largest depth of nested spans; a longer chain of parents is a cycle."""


@dataclass(frozen=True)
class Spans:
    """Whatever has a start and an end: phases, ranges, iterations, operators, kernels, copies.

    Attributes:
        id, parent: Of each span and of that around it, shape (n,); -1 where unknown.
        start_ns, end_ns: Since the Unix epoch, shape (n,).
        kind, name, device, lane: Places in ``texts`` of these, shape (n,); -1 where unknown.
        texts: Distinct texts of "kind", "name", "device" and "lane".
    """

    id: Ints
    parent: Ints
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    name: Ints
    device: Ints
    lane: Ints
    texts: dict[str, list[str]]

    @classmethod
    def from_table(cls, table: pa.Table, kinds: Collection[str] = (), *, timed: bool = True) -> Spans:
        """Those of a ``spans`` table, in stored order, that have times; of these kinds alone, if some are given.

        Those without times are among them, if not ``timed``.
        """
        rows = table.select([*_NUMBERS, *_TEXTS])
        if kinds:
            rows = rows.filter(pc.is_in(rows["kind"], pa.array(list(kinds), pa.string())))
        if timed and (rows["start_ns"].null_count or rows["end_ns"].null_count):
            rows = rows.filter(pc.and_(pc.is_valid(rows["start_ns"]), pc.is_valid(rows["end_ns"])))
        numbers = {name: pc.fill_null(rows[name], -1).to_numpy().astype(np.int64) for name in _NUMBERS}
        coded = {name: tables.decoded(rows[name]) for name in _TEXTS}
        codes = {name: code for name, (code, _) in coded.items()}
        return cls(**numbers, **codes, texts={name: texts for name, (_, texts) in coded.items()})

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def seconds(self) -> Floats:
        """How long each took, shape (n,)."""
        return np.asarray((self.end_ns - self.start_ns) / 1e9, np.float64)

    @property
    def edges_ns(self) -> tuple[Ints, Ints]:
        """Starts and ends, shape (n,) each."""
        return self.start_ns, self.end_ns

    def those(self, column: str, texts: Collection[str]) -> Mask:
        """Mask of the spans whose kind, name, device or lane is one of these, shape (n,)."""
        codes = [code for code, text in enumerate(self.texts[column]) if text in texts]
        return np.isin(getattr(self, column), codes)

    @cached_property
    def above(self) -> Ints:
        """Row of the span around each, shape (n,); -1 where there is none."""
        order = np.argsort(self.id, kind="stable")
        row = order[np.minimum(np.searchsorted(self.id, self.parent, sorter=order), len(order) - 1)]
        return np.where((self.parent >= 0) & (self.id[row] == self.parent), row, -1)

    def around(self, row: Ints) -> Iterator[Ints]:
        """Rows of the spans around each row, those of one depth after the other, innermost first; -1 where none."""
        at = self.above[row]
        for _ in range(_DEEPEST):
            if not (at >= 0).any():
                return
            yield at
            at = np.where(at >= 0, self.above[at], -1)

    def innermost(self, row: Ints, wanted: Mask) -> Ints:
        """Row of the innermost span around each that is wanted; -1 where there is none."""
        around = np.full(len(row), -1, np.int64)
        for at in self.around(row):
            around = np.where((around < 0) & (at >= 0) & wanted[at], at, around)
        return around

    def text(self, column: str, row: int) -> str | None:
        """The kind, name, device or lane of a span; None where unknown."""
        code = int(getattr(self, column)[row])
        return self.texts[column][code] if code >= 0 else None

    def take(self, rows: Mask | Indices | Ints) -> Spans:
        """Some of them, by a mask or by their places."""
        return Spans(**{name: getattr(self, name)[rows] for name in (*_NUMBERS, *_TEXTS)}, texts=self.texts)

    def named(self, name: str) -> Spans:
        """Those of a name."""
        return self.take(self.those("name", (name,)))

    def on(self, device: str) -> Spans:
        """Those of a device, where it has some of its own; else all: ranks begin and end at their own times."""
        of_device = self.those("device", (device,))
        return self.take(of_device) if of_device.any() else self


Path = tuple[str, ...]
"""Names of ranges, from the outermost inwards."""


@dataclass(frozen=True)
class PathSpans(Spans):
    """All marked spans of one ``path``, in order of their start.

    Attributes:
        path: Theirs.
        steps: True if they are steps.
        crossed: True if some overlap the range around them, or one within them, without being nested.
    """

    path: Path
    steps: bool
    crossed: bool


def union(start: NDArray[Any], end: NDArray[Any]) -> NDArray[Any]:
    """Starts and ends of the time that at least one span covers, in order and apart, shape (k, 2)."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = start > np.append(start[:1] - 1, end[:-1])
    return np.column_stack([start[first], end[np.append(first[1:], True)[: len(first)]]])


def union_ns(start_ns: Ints, end_ns: Ints) -> int:
    """Time that at least one span covers, in ns."""
    return int(np.diff(union(start_ns, end_ns)).sum())


def spans_of(run: Run, *kinds: str) -> Spans:
    """The spans of a Run of these kinds that have times, looked for once; of any kind, if none is given."""
    return run.remember("spans", ("spans_of", kinds), lambda table: Spans.from_table(table, kinds))
