"""The timeline of the report: readings as lines, spans as boxes on lanes, packed small.

All times are nanoseconds since ``origin_ns``. The browser thins them to its pixels at every zoom;
here they are thinned only where there are more than a file can hold, and a note states it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.report.charts import power
from jouletrace.report.html.assets import Packer
from jouletrace.run import Run, device_labels
from jouletrace.run.channels import CHANNEL_UNITS, THROTTLE_REASONS
from jouletrace.run.names import short_names
from jouletrace.run.parts import Part, Parts
from jouletrace.words import reasons
from jouletrace.words.scale import figure
from jouletrace.words.text import printable

Ints = NDArray[np.int64]

CHANNELS = {
    "power_w": "power",
    "power_memory_w": "power of the memory",
    "clock_sm_mhz": "clock",
    "temperature_c": "temperature",
    "throttle_bits": "clocks throttled",
    "utilization_gpu_pct": "some kernel ran",
}
"""Channels that are drawn, in this order, and what is written beside them; all others are in the Run."""

KINDS = ("run", "phase", "window", "iteration", "range", "layer", "op", "kernel", "memcpy", "launch")
MOST_READINGS = 150_000
"""Readings of a channel that are kept; of more, the least and the largest of each segment."""

MOST_SPANS = 1_200_000
"""Spans of a Run that are kept one by one; of more, neighbours on a lane are put together."""

_MOST_SHORT = 20_000
"""Names of kernels that are shortened; of more, hardly one is ever read."""

_MOST_LANES, _MOST_ROWS = 48, 12
_MOST_VALUE = 1e30


def timeline(run: Run, results: Parts) -> dict[str, Any] | None:
    """Everything on one axis of time; None if nothing in the Run has a time."""
    lanes = _lanes(run)
    series = _series(run)
    edges = [(lane.start.min(), lane.end.max()) for lane in lanes] + [(curve.at[0], curve.at[-1]) for curve in series]
    if not edges:
        return None
    origin, end = int(min(start for start, _ in edges)), int(max(end for _, end in edges))
    packer = Packer()
    names: dict[str, int] = {}
    notes: list[str] = []
    drawn = [_line(packer, curve, origin, notes) for curve in series]
    total = sum(len(lane.start) for lane in lanes)
    step = -(-total // MOST_SPANS) if total else 1
    if step > 1:
        notes.append(f"{total} spans: drawn with up to {step} neighbours of a lane together; the Run holds each.")
    if len(lanes) > _MOST_LANES:
        left = lanes[_MOST_LANES:]
        notes.append(f"{len(left)} more lanes with {sum(len(lane.start) for lane in left)} spans are not drawn.")
    boxes = [_boxes(packer, lane, origin, names, step) for lane in lanes[:_MOST_LANES]]
    units = {unit for lane in lanes if lane.units is not None for unit in np.unique(lane.units).tolist()}
    shown_units = [unit for unit in results.all() if unit.id in units]
    powers = {unit.id: power(unit.get("energy_total_j"), unit.get("time_s")) for unit in shown_units}
    return {
        "origin_ns": str(origin),
        "length_ns": max(end - origin, 1),
        "lines": drawn,
        "lanes": boxes,
        "names": [printable(name) for name in names],
        "short": _short(lanes, names),
        "units": {str(unit.id): _figures_of(unit) for unit in shown_units},
        "watts": {str(unit): float(f"{watts:.4g}") for unit, watts in powers.items() if watts is not None},
        "throttle": {str(bit): reasons.throttle(name) for bit, name in THROTTLE_REASONS.items()},
        "notes": notes,
        "data": packer.text(),
    }


def _short(lanes: Sequence[_Lane], names: dict[str, int]) -> dict[int, str]:
    """Labels on boxes of kernels, by place in ``names``; only where they aren't the name itself."""
    ran = {name for lane in lanes if lane.kind == "kernel" for name in lane.names if name in names}
    if len(ran) > _MOST_SHORT:
        return {}
    return {names[name]: printable(short) for name, short in short_names(sorted(ran)).items() if short != name}


@dataclass(frozen=True)
class _Series:
    """Readings of a channel of a device, in order: what they are, nanoseconds and values of shape (n,)."""

    name: str
    title: str
    at: Ints
    values: NDArray[np.float64]


def _series(run: Run) -> list[_Series]:
    curves = []
    names = device_labels(run.devices)
    for channel, what in CHANNELS.items():
        for device in run.devices:
            stamps, values = run.series(device.id, channel)
            keep = np.abs(values) < _MOST_VALUE  # not NaN, and a number for whoever draws it
            if keep.sum() < 2:
                continue
            info = run.channel(device.id, channel)
            stamps, values = stamps[keep], values[keep] if info is None else info.drawn_w(values[keep])
            order = np.argsort(stamps, kind="stable")
            title = f"{what} · {names[device.id]}" if len(run.devices) > 1 else what
            curves.append(_Series(channel, title, stamps[order], values[order]))
    return curves


def _thinned(x: NDArray[Any], y: NDArray[np.float64], most: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """At most about ``most`` points of a series in order: the least and the most of each bucket, in theirs."""
    if len(x) <= most:
        return x, y
    size = -(-2 * len(x) // most)
    starts = np.arange(0, len(x), size)
    padded = np.concatenate([y, np.full(len(starts) * size - len(y), np.nan)]).reshape(len(starts), size)
    low, high = (np.where(np.isnan(padded), fill, padded) for fill in (np.inf, -np.inf))
    places = np.sort(np.column_stack([low.argmin(axis=1), high.argmax(axis=1)]) + starts[:, None], axis=1).ravel()
    places = np.unique(np.minimum(places, len(x) - 1))
    return x[places], y[places]


def _line(packer: Packer, curve: _Series, origin: int, notes: list[str]) -> dict[str, Any]:
    at, values = _thinned(curve.at - origin, curve.values, MOST_READINGS)
    n = len(curve.values)
    if len(values) < n:
        notes.append(f"{curve.title}: {n} readings, of which the least and the largest of each segment are drawn.")
    unit = CHANNEL_UNITS[curve.name][0]
    return {
        "name": curve.name,
        "title": printable(curve.title),
        "unit": {"Cel": "°C", "1": ""}.get(unit, unit),
        "n": n,
        "low": float(curve.values.min()),
        "high": float(curve.values.max()),
        "hole_ns": 8 * float(np.median(np.diff(at))),
        "t": packer.rising(at),
        "v": packer.real(values),
    }


@dataclass(frozen=True)
class _Lane:
    """Spans of a kind on a lane, by their starts.

    ``title`` is written beside them. Of shape (n,) are: ``start`` and ``end`` in nanoseconds; ``name``, the place of
    each one's name in ``names``; ``units``, the id of each one's unit, -1 for none. None if no span has a unit.
    """

    kind: str
    title: str
    names: list[str]
    start: Ints
    end: Ints
    name: Ints
    units: Ints | None


def _lanes(run: Run) -> list[_Lane]:
    """Spans by kind and lane, those of a kind with the most spans first; the windows of experiments among them."""
    made = []
    several = len(run.devices) > 1
    names = device_labels(run.devices)
    spans = _timed(run.spans)
    if run.kind == "ab":  # timed iterations on a lane for each side, not for each side and block
        lanes = pc.replace_substring_regex(spans["lane"].cast(pa.string()), r"^(latency [ab]) \d+$", r"\1")
        spans = spans.set_column(spans.schema.get_field_index("lane"), "lane", lanes.dictionary_encode())
    codes = np.zeros(len(spans), dtype=np.int64)
    for key in ("kind", "device", "lane"):
        codes = codes * 100_003 + _indices(spans[key])
    order_of = np.argsort(codes, kind="stable")
    for part in np.split(order_of, np.flatnonzero(np.diff(codes[order_of])) + 1):
        if not len(part):
            continue
        rows = spans.take(pa.array(part))
        kind, device, lane = (rows[key][0].as_py() for key in ("kind", "device", "lane"))
        words = [kind or "span", lane or "", names.get(device, device or "") if several else ""]
        units = rows["unit"].fill_null(-1).to_numpy() if rows["unit"].null_count < len(rows) else None
        made.append(_lane(str(kind), " · ".join(filter(None, words)), rows, "name", units))
    windows = _timed(run.windows)
    if len(windows):
        made.append(_lane("window", "energy window", windows, "variant", None))
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(made, key=lambda lane: (order.get(lane.kind, len(KINDS)), -len(lane.start)))


def _timed(rows: pa.Table) -> pa.Table:
    """Rows with a place in time: averages that another tool states have none."""
    return rows.filter(pc.and_(pc.is_valid(rows["start_ns"]), pc.is_valid(rows["end_ns"])))


def _lane(kind: str, title: str, rows: pa.Table, key: str, units: Ints | None) -> _Lane:
    start, end = (rows[name].to_numpy().astype(np.int64) for name in ("start_ns", "end_ns"))
    order = np.lexsort((-end, start))
    column = rows[key].combine_chunks()
    names = [str(name) for name in column.dictionary.to_pylist()] + ["?"]
    name = _indices(rows[key])[order]
    end = np.maximum(end, start)[order]
    return _Lane(kind, title, names, start[order], end, name, None if units is None else units[order])


def _indices(column: pa.ChunkedArray) -> Ints:
    """Places in the dictionary; one behind its end for null."""
    chunk = column.combine_chunks()
    codes: Ints = chunk.indices.fill_null(len(chunk.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _boxes(packer: Packer, lane: _Lane, origin: int, names: dict[str, int], step: int) -> dict[str, Any]:
    start, end, names_of_lane, name, units = lane.start, lane.end, lane.names, lane.name, lane.units
    row = _rows(start, end)
    if step > 1 and len(start) > step:
        first = np.arange(0, len(start), step)
        end, row = np.maximum.reduceat(end, first), np.zeros(len(first), dtype=np.int64)
        start, names_of_lane, name, units = (
            start[first],
            [f"up to {step} together"],
            np.zeros(len(first), dtype=np.int64),
            None,
        )
    places = np.array([names.setdefault(text, len(names)) for text in names_of_lane])
    return {
        "kind": lane.kind,
        "title": printable(lane.title),
        "n": len(start),
        "rows": int(row.max()) + 1,
        "start": packer.rising(start - origin),
        "length": packer.whole(end - start),
        "name": packer.whole(places[name]),
        "row": packer.whole(row) if row.any() else None,
        "unit": None if units is None else packer.whole(units + 1),
    }


def _rows(start: Ints, end: Ints) -> Ints:
    """A row for each span, so that those of a row don't overlap: the ones around above those within."""
    rows = np.zeros(len(start), dtype=np.int64)
    if len(start) < 2 or bool(np.all(start[1:] >= np.maximum.accumulate(end)[:-1])):
        return rows
    free = [0] * _MOST_ROWS
    for number, (since, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        row = next((r for r in range(_MOST_ROWS) if free[r] <= since), _MOST_ROWS - 1)
        rows[number], free[row] = row, max(free[row], until)
    return rows


def _figures_of(unit: Part) -> str:
    """The cost of a span's unit per iteration."""
    energy, time = (unit.get(name) for name in ("energy_total_j", "time_s"))
    figures = [figure(e, u) for e, u in ((energy, "J"), (time, "s")) if e.value is not None]
    count = f" in {unit.count} launches" if unit.count else ""
    said = [f"per iteration{count}: {', '.join(figures)}"] if figures else []
    return " · ".join([*([printable(str(unit.module))] if unit.module else []), *said])
