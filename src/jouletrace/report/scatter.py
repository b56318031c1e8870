"""Time against energy of each part, drawn: how far along it costs, and at which power."""

from __future__ import annotations

from collections.abc import Sequence
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


def scatter(results: Results) -> Spec | None:
    """A mark for each part that has both figures, and lines of equal power; None with fewer than two parts."""
    traces: list[Spec] = []
    ms: list[float] = []
    joules: list[float] = []
    left = 0
    least = _LEAST_DRAWN * max((results.get(ENERGY, unit["id"]).value or 0.0 for unit in results.all()), default=0.0)
    for number, (level, name) in enumerate(_LEVELS.items()):
        trace, missing = _marks(results, level, least)
        left += missing
        if trace["x"]:
            # A kernel that is all of its operator would lie on it.
            hidden = level == "kernel" and bool(traces) and traces[-1]["name"] == _LEVELS["op"]
            marker = {"color": PALETTE[number % len(PALETTE)], "symbol": number, "size": 8, "opacity": 0.8}
            traces.append({**trace, "marker": marker, "name": name, "visible": "legendonly" if hidden else True})
            ms, joules = ms + trace["x"], joules + trace["y"]
    if len(ms) < 2:
        return None
    span = (max(min(ms), max(ms) * _LEAST_DRAWN) / 1.5, max(ms) * 1.5)
    rise = (min(joules) / 2, max(joules) * 2)
    layout = {
        "xaxis": {"title": {"text": "time per iteration, ms"}, "type": "log", "range": [log10(x) for x in span]},
        "yaxis": {"title": {"text": "energy, J"}, "type": "log", "range": [log10(y) for y in rise]},
        "annotations": [_named(watts, span[1]) for watts in _ISO_POWER_W if rise[0] < watts * span[1] / 1e3 < rise[1]],
        "legend": {"orientation": "h", "y": 1.12},
    }
    note = f"{left} parts are not drawn: their energy or time is below zero or next to nothing." if left else ""
    lines = [_equal_power(watts, span) for watts in _ISO_POWER_W]
    return {"title": "time and energy of each part", "data": lines + traces, "layout": layout, "note": note}


def _marks(results: Results, level: str, least_j: float) -> tuple[Spec, int]:
    """The parts of a level that can be drawn, and how many with both figures can't."""
    times, energies, texts, missing = list[Estimate](), list[Estimate](), list[str](), 0
    for unit in results.units(level):
        energy, time = results.get(ENERGY, unit["id"]), results.get(TIME, unit["id"])
        if unit["level"] != level or energy.value is None or time.value is None:
            continue
        if energy.value <= least_j or time.value <= 0:
            missing += 1
            continue
        said = short_name(unit["name"] or "") if level == "kernel" else unit["name"]
        name = "<br>".join(plain(cut(str(text))) for text in (said, unit["module"]) if text)
        texts.append(f"<b>{name}</b><br>{figure(energy, 'J')}<br>{figure(time, 's')}")
        times.append(time.scaled(1e3))
        energies.append(energy)
    trace: Spec = {"type": "scatter", "mode": "markers", "text": texts, "hovertemplate": "%{text}<extra></extra>"}
    for axis, estimates in (("x", times), ("y", energies)):
        trace |= {axis: short([one.value for one in estimates]), f"error_{axis}": _bars(estimates)}
    return trace, missing


def _bars(estimates: Sequence[Estimate]) -> Spec:
    """Intervals; a bar down to zero would have no end on a logarithmic axis."""
    ends = [[one.value or 0.0 if end is None else end for end in (one.value, one.low, one.high)] for one in estimates]
    return {
        "type": "data",
        "array": short([max(0.0, high - value) for value, _, high in ends]),
        "arrayminus": short([max(0.0, min(value - low, 0.999 * value)) for value, low, _ in ends]),
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
