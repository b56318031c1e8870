"""The events of spans: names, figures of their units and counters as args, and arrows from launches to work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, count, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Ints
from jouletrace.formats.exporters.timeline.counters import counted_rows
from jouletrace.formats.exporters.timeline.tracks import DrawnSpans, Track
from jouletrace.formats.importers.joins import AMBIGUOUS, match
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.header import jsonable

_BATCH = 1 << 15
_ENERGIES = ("energy_total_j", "energy_active_j", "energy_each_j")
_EACH = "energy_each_j"
_PROPERTIES = (
    *("name", "kind", "flaw", "unit"),
    *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
    *("registers", "shared_static_bytes", "shared_dynamic_bytes", "bytes"),
)
"""Columns that distinguish a span from others."""

_Key = tuple[Any, ...]
_Args = dict[str, object]


class Slices:
    """The spans of a Run as events; memory grows with the batch and the number of different spans.

    Attributes:
        ambiguous: Spans whose correlation is that of several launches: no arrow is drawn to them.
    """

    def __init__(self, run: Run, spans: DrawnSpans, base_ns: int) -> None:
        self._spans, self._base_ns = spans, base_ns
        self._into, self._sources, self.ambiguous = _arrows(spans)
        known = [name for name in spans.table.column_names if spans.table[name].null_count < len(spans.table)]
        self._columns = {name: spans.table[name].chunk(0) for name in _PROPERTIES if name in known}
        self._texts: dict[str, list[str]] = {}
        for name, column in self._columns.items():
            if pa.types.is_dictionary(column.type):
                self._columns[name], self._texts[name] = column.indices, column.dictionary.to_pylist()
        self._of_unit, self._of_name = _figures(run)
        counters = tables.conform(run.counters, "counters")
        row = counted_rows(counters, spans)
        order = np.argsort(row, kind="stable")
        self._counted, self._counters = row[order], counters.take(pa.array(order))

    def events(self, tid: int, track: Track) -> Iterator[str]:
        """Events of the spans of a track in its order, each as JSON; the args of equal spans are made once."""
        where = f'"pid":{track.process.id},"tid":{tid}'
        arrow = f'{where},"cat":"arrow","name":"launch","id":'
        made: dict[_Key, str] = {}
        for first in range(0, len(track.rows), _BATCH):
            rows = track.rows[first : first + _BATCH]
            counted, into = self._counters_of(rows), self._into[rows]
            before, after = (np.searchsorted(self._sources, rows, side) for side in ("left", "right"))
            start = self._spans.start_ns[rows]
            numbers = (start - self._base_ns, self._spans.end_ns[rows] - start, into, before, after)
            properties = [column.take(pa.array(rows)).to_pylist() for column in self._columns.values()]
            keys = zip(*properties, strict=True) if properties else repeat((), len(rows))
            each = zip(keys, *(column.tolist() for column in numbers), strict=True)
            for i, (key, at, lasted, arrived, sent, last) in enumerate(each):
                body = self._described(key, track.process.device, counted[i]) if i in counted else made.get(key)
                if body is None:
                    body = made[key] = self._described(key, track.process.device, {})
                stamp = f"{at // 1000}.{at % 1000:03d}"
                yield f'{{"ph":"X","ts":{stamp},"dur":{lasted // 1000}.{lasted % 1000:03d},{where},{body}}}'
                for number in range(sent, last):
                    yield f'{{"ph":"s","ts":{stamp},{arrow}{number + 1}}}'
                if arrived:
                    yield f'{{"ph":"f","bp":"e","ts":{stamp},{arrow}{arrived}}}'

    def _described(self, key: _Key, device: str | None, counters: _Args) -> str:
        """Name, category and args of a span as members of its event."""
        own: dict[str, Any] = dict.fromkeys(_PROPERTIES)
        for name, value in zip(self._columns, key, strict=True):
            own[name] = self._texts[name][value] if name in self._texts and value is not None else value
        args: dict[str, Any] = {what: [own[f"{what}_{axis}"] for axis in "xyz"] for what in ("grid", "block")}
        shared = [own["shared_static_bytes"], own["shared_dynamic_bytes"]]
        args |= {"registers": own["registers"], "shared_bytes": shared, "bytes": own["bytes"], "flaw": own["flaw"]}
        args = {name: value for name, value in args.items() if value not in (None, [None] * 2, [None] * 3)}
        unit, named = own["unit"], (tables.LEVEL_OF_SPANS.get(own["kind"]), own["name"] or "")
        found = None
        if unit in (None, MODEL_UNIT):  # units name their device only where a Run has several
            found = self._of_name.get((*named, device)) or self._of_name.get((*named, None))
        args |= found or self._of_unit.get(unit, {"unit": str(unit)})
        name = "(no name)" if own["name"] is None else own["name"]
        kind = "other" if own["kind"] is None else own["kind"]
        return f'"name":{as_json(name)},"cat":{as_json(kind)},"args":{as_json(jsonable(args | counters))}'

    def _counters_of(self, rows: Ints) -> dict[int, _Args]:
        """Args for the hardware counters of some rows, by position; "Duration (s)" is a name of a counter."""
        first, last = (np.searchsorted(self._counted, rows, side) for side in ("left", "right"))
        found: dict[int, _Args] = {}
        for i in np.flatnonzero(last > first).tolist():
            args = found[i] = {}
            for row in self._counters.slice(first[i], last[i] - first[i]).to_pylist():
                unit = f" ({row['value_unit']})" if row["value_unit"] not in (None, "", "1") else ""
                name, value = f"{row['metric']}{unit}", row["value"]
                if name in args and args[name] != value:  # two headings of a tool, or two files, may share a name
                    long = f"{row['section']}: {name}" if row["section"] else name
                    names = chain((long,), (f"{long}, {number}" for number in count(2)))
                    name = next(one for one in names if one not in args or args[one] == value)
                args[name] = value
        return found


def _figures(run: Run) -> tuple[dict[int | None, _Args], dict[tuple[str | None, str, str | None], _Args]]:
    """Args for the name and the energies of each unit; in an import, also for all spans of a level, name and device.

    A unit of an import may represent all spans of its name: the total of all is no figure of a single span.
    """
    energies: dict[int, _Args] = {}
    results = tables.conform(run.results, "results")
    for row in results.filter(pc.is_in(results["metric"].cast(pa.string()), pa.array(_ENERGIES))).to_pylist():
        energy = Estimate.from_dict(row)
        energies.setdefault(row["unit"], {}).setdefault(row["metric"], {**energy.to_dict(), "flags": energy.flags})
    of_unit: dict[int | None, _Args] = {id: {"unit": str(id), **found} for id, found in energies.items()}
    of_unit[None] = {}
    of_name: dict[tuple[str | None, str, str | None], _Args] = {}
    for unit in run.units.to_pylist():
        found = energies.get(unit["id"], {})
        name = " in ".join(filter(None, [unit["op"], unit["module"]])) if unit["op"] else str(unit["name"])
        of_unit[unit["id"]] = {"unit": name, **found}
        if run.kind == "import" and unit["op"] is None and _EACH in found:
            all_of_name = {"unit": f"all {unit['count']} of this name", _EACH: found[_EACH]}
            of_name[unit["level"], unit["name"], unit["module"]] = all_of_name
    return of_unit, of_name


def _arrows(spans: DrawnSpans) -> tuple[Ints, Ints, int]:
    """Join launches to kernels and copies by correlation.

    Where several launches share a number (as those of several processes do), the one that names the
    same device is taken; one launch of a graph may start many kernels.

    Returns:
        The number of the arrow that ends at each span, 0 for none, shape (n,); the rows at which arrows begin, numbered
        from 1 in this increasing order; and the number of spans whose launch is ambiguous.
    """
    into = np.zeros(len(spans.table), np.int64)
    column = spans.table["correlation"]
    if column.null_count == len(column):
        return into, into[:0], 0
    known, number = column.is_valid().to_numpy(), column.fill_null(0).to_numpy()
    kind, kinds = tables.decoded(spans.table["kind"])
    launches, launched = (
        np.flatnonzero(known & np.isin(kind, [i for i, name in enumerate(kinds) if name in wanted]))
        for wanted in (("launch",), ("kernel", "memcpy"))
    )
    source = match(number[launched], number[launches])
    several = source == AMBIGUOUS
    if several.any():
        device = tables.decoded(spans.table["device"])[0]
        by_device = np.unique(np.stack([number, device]), axis=1, return_inverse=True)[1].ravel()
        source[several] = match(by_device[launched[several]], by_device[launches])
        several &= source < 0
    found = np.flatnonzero(source >= 0)
    target, origin = launched[found], launches[source[found]]
    # A launch precedes its work; a pair that violates this is rejected.
    sound = spans.start_ns[origin] <= spans.start_ns[target]
    target, origin = target[sound], origin[sound]
    order = np.argsort(origin, kind="stable")
    into[target[order]] = np.arange(1, len(order) + 1)
    return into, origin[order], int(several.sum())


def as_json(value: object) -> str:
    """JSON in ASCII without any character that would end a script or a string."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
