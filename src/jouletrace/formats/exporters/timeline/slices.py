"""The content of a span: name and args with the figures of its unit and counters, and arrows from launches to work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.formats.exporters.timeline.tracks import FLAWS, Spans, Track, codes
from jouletrace.formats.importers.joins import AMBIGUOUS, match
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables

T = TypeVar("T")
Encode = Callable[[str, str, Mapping[str, object]], T]
"""Encodes name, kind and args of a span for a format."""

_BATCH = 1 << 15
_ENERGIES = ("energy_total_j", "energy_active_j", "energy_each_j")
_EACH = "energy_each_j"
_FIXED = (
    *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
    *("registers", "shared_static_bytes", "shared_dynamic_bytes", "bytes"),
)


_NO_UNIT = -1

_LEVELS = {"kernel": "kernel", "memcpy": "kernel", "op": "op", "layer": "layer", "range": "range", "iteration": "range"}
"""Level of the units that an import creates from the names of each kind of span."""


@dataclass(frozen=True)
class Batch(Generic[T]):
    """Consecutive spans of a track.

    Attributes:
        start_ns, end_ns: Their edges, shape (n,).
        body: Result of ``encode`` for each, length n.
        into: Number of the arrow that ends at each, 0 for none, shape (n,).
        out: Numbers of the arrows that begin at some of them, by position in the batch.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    body: list[T]
    into: NDArray[np.int64]
    out: dict[int, list[int]]


@dataclass(frozen=True)
class Arrows:
    """Arrows between spans, numbered from 1.

    Attributes:
        into: Number of the arrow that ends at each span; 0 for none, shape (n,).
        sources: Rows at which arrows begin, increasing, shape (m,).
        numbers: Number of the arrow that begins there, shape (m,).
        ambiguous: Spans whose correlation is that of several launches: no arrow is drawn to them.
    """

    into: NDArray[np.int64]
    sources: NDArray[np.int64]
    numbers: NDArray[np.int64]
    ambiguous: int

    def out_of(self, rows: NDArray[np.int64]) -> dict[int, list[int]]:
        """Numbers of the arrows that begin at some rows, by position in ``rows``."""
        first = np.searchsorted(self.sources, rows, "left")
        last = np.searchsorted(self.sources, rows, "right")
        return {int(i): self.numbers[first[i] : last[i]].tolist() for i in np.flatnonzero(last > first)}


class Slices:
    """The spans of a Run as tracks of batches; memory grows with the batch and the number of different spans."""

    def __init__(self, run: Run, spans: Spans) -> None:
        self._spans = spans
        self.arrows: Arrows = _arrows(spans)
        self._names = codes(spans.table["name"])[0]
        self._kinds = codes(spans.table["kind"])[0]
        self._figures = _figures(run)
        unit, by_name = _units(run, spans, [unit for unit, found in self._figures.items() if _EACH in found])
        units = pa.chunked_array([pa.array(unit, mask=unit == _NO_UNIT)])
        self._columns = [units, *(spans.table[name] for name in _FIXED)]
        self._units = {unit["id"]: _unit_name(unit, unit["id"] in by_name) for unit in run.units.to_pylist()}
        for number in by_name:  # the total of all is no figure of a single span
            self._figures[number] = {name: e for name, e in self._figures[number].items() if name == _EACH}
        self._counters = _Counters(run)

    def batches(self, track: Track, encode: Encode[T]) -> Iterator[Batch[T]]:
        """The spans of a track in its order; ``encode`` is called once for all equal spans."""
        made: dict[tuple[Any, ...], T] = {}
        for first in range(0, len(track.rows), _BATCH):
            rows = track.rows[first : first + _BATCH]
            counted = self._counters.of(self._spans.table["id"].chunk(0).take(pa.array(rows)))
            body = []
            for i, key in enumerate(self._keys(rows)):
                found = made.get(key)
                if found is None or i in counted:
                    name, kind, args = self._describe(key)
                    found = encode(name, kind, {**args, **counted.get(i, {})})
                    if i not in counted:
                        made[key] = found
                body.append(found)
            start, end = self._spans.start_ns[rows], self._spans.end_ns[rows]
            yield Batch(start, end, body, self.arrows.into[rows], self.arrows.out_of(rows))

    def _keys(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        """All properties that distinguish a span from others, for each row."""
        where = pa.array(rows)
        names, kinds = (self._spans.table[name].chunk(0).indices.take(where).to_pylist() for name in ("name", "kind"))
        values = [
            repeat(None) if column.null_count == len(column) else column.chunk(0).take(where).to_pylist()
            for column in self._columns
        ]
        return zip(names, kinds, self._spans.flaw[rows].tolist(), *values, strict=False)

    def _describe(self, key: tuple[Any, ...]) -> tuple[str, str, dict[str, object]]:
        name, kind, flaw, unit, *fixed = key
        registers, static, dynamic, moved = fixed[6:]
        args: dict[str, object] = {}
        for what, size in (("grid", fixed[:3]), ("block", fixed[3:6])):
            if any(n is not None for n in size):
                args[what] = tuple(size)
        if registers is not None:
            args["registers"] = registers
        if static is not None or dynamic is not None:
            args["shared_bytes"] = (static, dynamic)
        if moved is not None:
            args["bytes"] = moved
        if flaw:
            args["flaw"] = FLAWS[flaw]
        if unit is not None:
            args["unit"] = self._units.get(unit, str(unit))
            args |= self._figures.get(unit, {})
        word = "(no name)" if name is None else self._names[name]
        return word, "other" if kind is None else self._kinds[kind], args


class _Counters:
    """Hardware counters by span."""

    def __init__(self, run: Run) -> None:
        table = tables.conform(run.counters, "counters")
        table = table.filter(pc.is_valid(table["span"]))
        order = np.argsort(table["span"].to_numpy(), kind="stable")
        self._table = table.take(pa.array(order))
        self._span = self._table["span"].to_numpy()

    def of(self, spans: pa.Array) -> dict[int, dict[str, object]]:
        """Args for those of some spans that have counters, by position; "Duration (s)" is a name of a counter."""
        if not len(self._span):
            return {}
        known = np.flatnonzero(np.asarray(spans.is_valid()))
        ids = spans.fill_null(0).to_numpy()[known]
        first, last = (np.searchsorted(self._span, ids, side) for side in ("left", "right"))
        return {
            int(known[i]): self._args(self._table.slice(first[i], last[i] - first[i]).to_pylist())
            for i in np.flatnonzero(last > first)
        }

    @staticmethod
    def _args(rows: list[dict[str, Any]]) -> dict[str, object]:
        args: dict[str, object] = {}
        for row in rows:
            unit = f" ({row['value_unit']})" if row["value_unit"] not in (None, "", "1") else ""
            name = f"{row['metric']}{unit}"
            if args.get(name, row["value"]) != row["value"]:  # two headings of a tool, or two files, may share a name
                name = f"{row['section']}: {name}" if row["section"] else name
            number, plain = 1, name
            while args.get(name, row["value"]) != row["value"]:
                number += 1
                name = f"{plain}, {number}"
            args[name] = row["value"]
        return args


def _figures(run: Run) -> dict[int, dict[str, object]]:
    """Energies of every unit, by metric."""
    found: dict[int, dict[str, object]] = {}
    results = tables.conform(run.results, "results")
    wanted = pc.is_in(results["metric"].cast(pa.string()), pa.array(_ENERGIES))
    for row in results.filter(wanted).to_pylist():
        found.setdefault(row["unit"], {}).setdefault(row["metric"], Estimate.from_dict(row))
    return found


def _unit_name(unit: Mapping[str, Any], by_name: bool) -> str:
    """Operator and module, which are more informative than the unit's name; else that name."""
    if by_name:
        return f"all {unit['count']} of this name"
    return " in ".join(filter(None, [unit["op"], unit["module"]])) if unit["op"] else str(unit["name"])


def _arrows(spans: Spans) -> Arrows:
    """Join launches to kernels and copies by correlation.

    Where several launches share a number (as those of several processes do), the one that names the
    same device is taken; one launch of a graph may start many kernels.
    """
    n = len(spans.start_ns)
    into = np.zeros(n, np.int64)
    none = np.empty(0, np.int64)
    column = spans.table["correlation"]
    if column.null_count == n:
        return Arrows(into, none, none, 0)
    known = np.asarray(column.is_valid()) & spans.drawn
    number = column.fill_null(0).to_numpy()
    kinds, kind = codes(spans.table["kind"])
    device = codes(spans.table["device"])[1]
    launches, launched = (
        np.flatnonzero(known & np.isin(kind, [i for i, name in enumerate(kinds) if name in wanted]))
        for wanted in (("launch",), ("kernel", "memcpy"))
    )
    source = match(number[launched], number[launches])
    several = source == AMBIGUOUS
    if several.any():
        by_device = np.unique(np.stack([number, device]), axis=1, return_inverse=True)[1].ravel()
        source[several] = match(by_device[launched[several]], by_device[launches])
        several &= source < 0
    found = np.flatnonzero(source >= 0)
    target, origin = launched[found], launches[source[found]]
    # A launch precedes its work; a pair that violates this by more than clocks differ is rejected.
    sound = spans.start_ns[origin] <= spans.start_ns[target]
    target, origin = target[sound], origin[sound]
    order = np.argsort(origin, kind="stable")
    into[target[order]] = np.arange(1, len(order) + 1)
    return Arrows(into, origin[order], np.arange(1, len(order) + 1), int(several.sum()))


def _units(run: Run, spans: Spans, known: Collection[int]) -> tuple[NDArray[np.int64], frozenset[int]]:
    """The unit of each span, shape (n,), ``_NO_UNIT`` where it is missing; and the units that represent a name.

    In an import, a unit represents all spans of its name. Units that are not ``known`` to have figures are ignored.
    """
    own = spans.table["unit"].fill_null(_NO_UNIT).to_numpy().astype(np.int64)
    if run.kind != "import":
        return own, frozenset()
    units = {
        (unit["level"], unit["name"], unit["module"]): unit["id"]
        for unit in run.units.to_pylist()
        if unit["id"] in known and unit["op"] is None
    }
    if not units:
        return own, frozenset()
    kinds, kind = codes(spans.table["kind"])
    names, name = codes(spans.table["name"])
    devices, device = codes(spans.table["device"])
    free = np.flatnonzero((own == _NO_UNIT) | (own == MODEL_UNIT))
    key = (
        ((kind[free] + 1).astype(np.int64) * (len(names) + 1) + name[free] + 1) * (len(devices) + 1) + device[free] + 1
    )
    distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    found = np.full(len(distinct), _NO_UNIT, np.int64)
    for place, row in enumerate(free[first].tolist()):
        level = _LEVELS.get([*kinds, ""][kind[row]])
        called, where = [*names, ""][name[row]], [*devices, None][device[row]]
        # Units name their device only where a Run has several.
        found[place] = units.get((level, called, where), units.get((level, called, None), _NO_UNIT))
    by_name = found[inverse.reshape(-1)]
    own[free] = np.where(by_name != _NO_UNIT, by_name, own[free])
    return own, frozenset(found[found != _NO_UNIT].tolist())
