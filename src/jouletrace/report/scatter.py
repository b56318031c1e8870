"""Time against energy of each part, drawn: how far along it costs, and at which power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10

from jouletrace.report.drawing import PALETTE, Spec, cut, plain, short
from jouletrace.report.results import Results
from jouletrace.report.scale import figure
from jouletrace.report.tree import ENERGY, TIME
from jouletrace.run import Estimate
from jouletrace.run.names import short_name

_LEVELS = {
    "device": "device",
    "range": "range",
    "phase": "phase",
    "layer": "layer",
    "op": "operator",
    "kernel": "kernel",
}
_ISO_POWER_W = (50, 100, 200, 400, 800)
_LEAST_DRAWN = 1e-5
"""Share of the largest energy below which a part is not drawn on logarithmic axes: noise has no end there."""


@dataclass(frozen=True)
class _Point:
    """A part: milliseconds, joules, and how far each interval reaches below and above."""

    ms: float
    joules: float
    reach_ms: tuple[float, float]
    reach_j: tuple[float, float]
    text: str


def scatter(results: Results) -> Spec | None:
    """A mark for each part that has both figures, and lines of equal power; None with fewer than two parts."""
    traces: list[Spec] = []
    seen: list[_Point] = []
    left = 0
    most = max((results.get(ENERGY, unit["id"]).value or 0.0 for unit in results.all()), default=0.0)
    for number, level in enumerate(_LEVELS):
        found, missing = _points(results, level, most * _LEAST_DRAWN)
        left += missing
        if found:
            seen += found
            # A kernel that is all of its operator would lie on it.
            hidden = level == "kernel" and bool(traces) and traces[-1]["name"] == _LEVELS["op"]
            traces.append(
                {**_marks(found, number), "name": _LEVELS[level], "visible": "legendonly" if hidden else True}
            )
    if len(seen) < 2:
        return None
    last = max(point.ms for point in seen)
    span = (max(min(point.ms for point in seen), last * _LEAST_DRAWN) / 1.5, last * 1.5)
    rise = (min(point.joules for point in seen) / 2, max(point.joules for point in seen) * 2)
    layout = {
        "xaxis": {"title": {"text": "time per iteration, ms"}, "type": "log", "range": [log10(x) for x in span]},
        "yaxis": {"title": {"text": "energy, J"}, "type": "log", "range": [log10(y) for y in rise]},
        "annotations": [_named(watts, span[1]) for watts in _ISO_POWER_W if rise[0] < watts * span[1] / 1e3 < rise[1]],
        "legend": {"orientation": "h", "y": 1.12},
    }
    note = f"{left} parts are not drawn: their energy or time is below zero or next to nothing." if left else ""
    lines = [_equal_power(watts, span) for watts in _ISO_POWER_W]
    return {"title": "time and energy of each part", "data": lines + traces, "layout": layout, "note": note}


def _points(results: Results, level: str, least_j: float) -> tuple[list[_Point], int]:
    """The parts of a level that can be drawn, and how many with both figures can't."""
    found, missing = [], 0
    for unit in results.units(level):
        energy, time = results.get(ENERGY, unit["id"]), results.get(TIME, unit["id"])
        if unit["level"] != level or energy.value is None or time.value is None:
            continue
        if energy.value <= least_j or time.value <= 0:
            missing += 1
            continue
        said = short_name(unit["name"] or "") if level == "kernel" else unit["name"]
        name = "<br>".join(plain(cut(str(text))) for text in (said, unit["module"]) if text)
        text = f"<b>{name}</b><br>{figure(energy, 'J')}<br>{figure(time, 's')}"
        found.append(_Point(1e3 * time.value, energy.value, _reach(time, 1e3), _reach(energy, 1.0), text))
    return found, missing


def _reach(estimate: Estimate, factor: float) -> tuple[float, float]:
    """How far the interval reaches below and above; a bar down to zero would have no end on a logarithmic axis."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return 0.0, 0.0
    below = min(estimate.value - estimate.low, 0.999 * estimate.value)
    return factor * max(0.0, below), factor * max(0.0, estimate.high - estimate.value)


def _marks(points: Sequence[_Point], number: int) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": short([point.ms for point in points]),
        "y": short([point.joules for point in points]),
        "error_x": _bars(points, lambda point: point.reach_ms),
        "error_y": _bars(points, lambda point: point.reach_j),
        "text": [point.text for point in points],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": PALETTE[number % len(PALETTE)], "symbol": number, "size": 8, "opacity": 0.8},
    }


def _bars(points: Sequence[_Point], reach: Callable[[_Point], tuple[float, float]]) -> Spec:
    below, above = zip(*map(reach, points), strict=True)
    return {
        "type": "data",
        "array": short(above),
        "arrayminus": short(below),
        "symmetric": False,
        "thickness": 1,
        "width": 2,
    }


def _equal_power(watts: int, span: tuple[float, float]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": short(span),
        "y": short([watts * ms / 1e3 for ms in span]),
        "name": f"{watts} W",
        "line": {"dash": "dot", "width": 1, "color": PALETTE[-1]},
        "hovertemplate": f"{watts} W<extra></extra>",
        "showlegend": False,
    }


def _named(watts: int, at_ms: float) -> Spec:
    place = {"x": log10(at_ms), "y": log10(watts * at_ms / 1e3), "xanchor": "right", "showarrow": False}
    return {**place, "text": f"{watts} W"}
