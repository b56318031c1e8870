"""Charts of a fleet as plotly's JSON: box plots over GPUs and hosts, and what happened over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.addons.fleet.findings import Findings
from jouletrace.addons.fleet.spread import FIGURES, readings
from jouletrace.addons.fleet.words import NAMES
from jouletrace.report.drawing import PALETTE, Spec, plain, short
from jouletrace.report.plots import thinned
from jouletrace.report.scale import unit_for

MOST_LINES = 6
"""GPUs whose power is drawn over time: the fastest and the slowest of more."""

_MOST_POINTS = 1500


def box_plots(found: Findings, figure: str) -> Spec | None:
    """Readings of each GPU, the fastest first: quartiles, and whiskers to the least and the most."""
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
    """Means of GPUs on each host; None where there is one."""
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
    """Time of each run, repeat by repeat: a GPU a line, as far as they can be told apart."""
    group, unit = found.group, unit_for([float(np.nanmedian(found.group.runs["time_s"]))], "s")
    traces = []
    for number, code in enumerate(chosen(found)):
        mine = (group.runs["gpu"] == code) & np.isfinite(group.runs["time_s"])
        order = np.argsort(group.runs["repeat"][mine])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(group.gpus[code].label),
                "x": group.runs["repeat"][mine][order].tolist(),
                "y": short(group.runs["time_s"][mine][order] / unit.factor),
                "line": {"width": 1, "color": PALETTE[number % len(PALETTE)]},
            }
        )
    layout = {
        "xaxis": {"title": {"text": "repeat"}, "dtick": 1 if group.runs["repeat"].max(initial=0) < 25 else None},
        "yaxis": {"title": {"text": f"time of an iteration, {unit.name}"}},
        "showlegend": True,
    }
    return {"title": "time by repeat", "data": traces, "layout": layout} if traces else None


def heat(found: Findings) -> Spec | None:
    """Temperature against time, a point a run; None where the temperature isn't known."""
    runs, unit = found.group.runs, unit_for([float(np.nanmedian(found.group.runs["time_s"]))], "s")
    known = np.isfinite(runs["temperature_c"]) & np.isfinite(runs["time_s"])
    if not known.any():
        return None
    labels = [plain(found.group.gpus[code].label) for code in runs["gpu"][known].tolist()]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": short(runs["temperature_c"][known]),
        "y": short(runs["time_s"][known] / unit.factor),
        "text": labels,
        "marker": {"color": PALETTE[0], "size": 6, "opacity": 0.7},
        "hovertemplate": f"%{{text}}<br>%{{x}} °C<br>%{{y}} {unit.name}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "temperature of the die, °C"}},
        "yaxis": {"title": {"text": f"time of an iteration, {unit.name}"}},
    }
    return {"title": "temperature and time", "data": [trace], "layout": layout}


def over_time(found: Findings, samples: pa.Table, channel: str, words: str) -> Spec | None:
    """A reading over one run of some GPUs, from its start.

    Args:
        found: The group.
        samples: As ``Dataset.read`` gives them, of ``chosen`` GPUs.
        channel: Name of the channel.
        words: What it is, with its unit.
    """
    rows = samples.filter(pc.equal(samples["channel"], channel))
    traces = []
    for number, code in enumerate(chosen(found)):
        gpu = found.group.gpus[code]
        mine = rows.filter(pc.and_(pc.equal(rows["gpu"], gpu.id), pc.equal(rows["node"], gpu.node)))
        if not len(mine):
            continue
        repeat = pc.max(mine["repeat"]).as_py()
        mine = mine.filter(pc.equal(mine["repeat"], repeat)).sort_by("time_ns")
        start = found.group.runs["start_ns"][(found.group.runs["gpu"] == code) & (found.group.runs["repeat"] == repeat)]
        stamps = mine["time_ns"].to_numpy()
        x, y = thinned(stamps, mine["value"].to_numpy(), _MOST_POINTS)
        origin = start[0] if len(start) else stamps[0]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(gpu.label),
                "x": short((x - origin) / 1e9),
                "y": short(y),
                "line": {"width": 1, "color": PALETTE[number % len(PALETTE)]},
            }
        )
    if not traces:
        return None
    layout = {
        "xaxis": {"title": {"text": "time from the start of the measurement, s"}},
        "yaxis": {"title": {"text": words}},
        "showlegend": True,
    }
    return {"title": words, "data": traces, "layout": layout}


def chosen(found: Findings) -> list[int]:
    """The GPUs that are drawn one by one: all of few; of many the fastest and the slowest."""
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
    """Least, quartiles and most of each code, shape (5, codes)."""
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
