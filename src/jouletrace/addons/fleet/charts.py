"""Charts of a fleet as plotly's JSON: box plots over GPUs and hosts, and curves over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.addons.fleet.dataset import Key
from jouletrace.addons.fleet.findings import Findings
from jouletrace.addons.fleet.spread import FIGURES, readings
from jouletrace.addons.fleet.words import NAMES
from jouletrace.report.drawing import PALETTE, Spec, plain, short
from jouletrace.report.plots import thinned
from jouletrace.report.scale import Unit, unit_for

MOST_LINES = 6
"""Number of GPUs whose power is drawn over time: the fastest and the slowest, if there are more."""

_MOST_POINTS = 1500


def box_plots(found: Findings, figure: str) -> Spec | None:
    """Readings of each GPU, the fastest first: quartiles, and whiskers to the minimum and maximum."""
    spread = found.spreads[figure]
    if spread.split is None:
        return None
    values, gpu, _, kind = readings(found.group, figure)
    unit = unit_for([float(np.median(values))], FIGURES[figure])
    order = [place.gpu for place in found.spreads["time_s"].places if (gpu == place.gpu).any()]
    names = [found.group.gpus[code].label for code in order]
    trace = _boxes(names, _quantiles(values, gpu, order) / unit.factor)
    axis = f"{NAMES[figure]}, {unit.name}"
    return _spec(f"{axis} ({'windows' if kind == 'windows' else 'runs'})", [trace], axis)


def host_plots(found: Findings) -> Spec | None:
    """Means of GPUs on each host; None for a single host."""
    nodes = sorted({gpu.node for gpu in found.group.gpus})
    spread = found.spreads["time_s"]
    if len(nodes) < 2 or spread.split is None:
        return None
    unit = unit_for([float(np.median(spread.split.means))], "s")
    home = np.array([nodes.index(found.group.gpus[code].node) for code in spread.split.gpu.tolist()])
    there = [n for n in range(len(nodes)) if (home == n).any()]
    trace = _boxes([nodes[n] for n in there], _quantiles(spread.split.means, home, there) / unit.factor)
    axis = f"time of an iteration, {unit.name}"
    return _spec(f"{axis} (GPUs)", [trace], axis)


def repeats(found: Findings) -> Spec | None:
    """Time of each run by repeat, with a line per GPU, as far as lines can be distinguished."""
    runs, unit = found.group.runs, _time_unit(found)
    traces = []
    for code in chosen(found):
        mine = np.flatnonzero((runs["gpu"] == code) & np.isfinite(runs["time_s"]))
        mine = mine[np.argsort(runs["repeat"][mine])]
        traces.append(_line(found, code, runs["repeat"][mine].tolist(), runs["time_s"][mine] / unit.factor))
    spec = _lines("time by repeat", traces, "repeat", f"time of an iteration, {unit.name}")
    if spec is not None:
        spec["layout"]["xaxis"]["dtick"] = 1 if runs["repeat"].max(initial=0) < 25 else None
    return spec


def heat(found: Findings) -> Spec | None:
    """Time against temperature, a point per run; None where the temperature is unknown."""
    runs, unit = found.group.runs, _time_unit(found)
    known = np.isfinite(runs["temperature_c"]) & np.isfinite(runs["time_s"])
    if not known.any():
        return None
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": short(runs["temperature_c"][known]),
        "y": short(runs["time_s"][known] / unit.factor),
        "text": [plain(found.group.gpus[code].label) for code in runs["gpu"][known].tolist()],
        "marker": {"color": PALETTE[0], "size": 6, "opacity": 0.7},
        "hovertemplate": f"%{{text}}<br>%{{x}} °C<br>%{{y}} {unit.name}<extra></extra>",
    }
    spec = _lines("temperature and time", [trace], "temperature of the die, °C", f"time of an iteration, {unit.name}")
    return spec and {**spec, "layout": {**spec["layout"], "showlegend": False}}


def over_time(found: Findings, samples: Mapping[Key, pa.Table], channel: str, words: str) -> Spec | None:
    """A reading over the last run of some GPUs, from its start.

    Args:
        found: Findings on the group.
        samples: As from ``Dataset.read``, for ``chosen`` GPUs.
        channel: Name of the channel.
        words: Title of the channel, with its unit.
    """
    runs, traces = found.group.runs, []
    for code in chosen(found):
        gpu = found.group.gpus[code]
        repeats = [repeat for node, id, repeat in samples if (node, id) == (gpu.node, gpu.id)]
        if not repeats:
            continue
        rows = samples[gpu.node, gpu.id, max(repeats)]
        rows = rows.filter(pc.equal(rows["channel"], channel)).sort_by("time_ns")
        if not len(rows):
            continue
        start = runs["start_ns"][(runs["gpu"] == code) & (runs["repeat"] == max(repeats))]
        stamps = rows["time_ns"].to_numpy()
        x, y = thinned(stamps, rows["value"].to_numpy(), _MOST_POINTS)
        traces.append(_line(found, code, short((x - (start[0] if len(start) else stamps[0])) / 1e9), y, "lines"))
    return _lines(words, traces, "time from the start of the measurement, s", words)


def _time_unit(found: Findings) -> Unit:
    return unit_for([float(np.nanmedian(found.group.runs["time_s"]))], "s")


def _line(
    found: Findings, code: int, x: list[float], y: NDArray[np.float64], mode: str = "lines+markers"
) -> dict[str, Any]:
    """A GPU's line, in its colour."""
    colour = PALETTE[chosen(found).index(code) % len(PALETTE)]
    name = plain(found.group.gpus[code].label)
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": short(y), "line": {"width": 1, "color": colour}}


def _lines(title: str, traces: list[dict[str, Any]], x: str, y: str) -> Spec | None:
    layout = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}, "showlegend": True}
    return {"title": title, "data": traces, "layout": layout} if traces else None


def chosen(found: Findings) -> list[int]:
    """The GPUs that are drawn individually: all, or of many the fastest and the slowest."""
    order = [place.gpu for place in found.spreads["time_s"].places]
    half = MOST_LINES // 2
    return order if len(order) <= MOST_LINES else [*order[:half], *order[-half:]]


def _boxes(names: list[str], q: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "type": "box",
        "x": [plain(name) for name in names],
        "lowerfence": short(q[0]),
        "q1": short(q[1]),
        "median": short(q[2]),
        "q3": short(q[3]),
        "upperfence": short(q[4]),
        "line": {"width": 1, "color": PALETTE[0]},
        "hoverinfo": "x+y",
    }


def _quantiles(values: NDArray[np.float64], codes: NDArray[Any], order: list[int]) -> NDArray[np.float64]:
    """Minimum, quartiles and maximum for each code, shape (5, codes)."""
    sorted_by = np.argsort(codes, kind="stable")
    names, starts = np.unique(codes[sorted_by], return_index=True)
    parts = dict(zip(names.tolist(), np.split(values[sorted_by], starts[1:]), strict=True))
    return np.array([np.quantile(parts[code], [0, 0.25, 0.5, 0.75, 1]) for code in order]).T


def _spec(title: str, data: list[dict[str, Any]], axis: str) -> Spec:
    many = len(data[0]["x"]) > 40
    layout = {
        "xaxis": {"type": "category", "showticklabels": not many},
        "yaxis": {"title": {"text": axis}},
        "showlegend": False,
    }
    return {"title": title, "data": data, "layout": layout}
