"""The result of a calibration in the report: each sensor's response to a load that goes on and off, and the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.calibration import CHANNELS, fit_channel, pulse_edges
from jouletrace.errors import JouletraceError
from jouletrace.report.document import Cell, printable
from jouletrace.report.drawing import PALETTE, Spec, short
from jouletrace.report.html.tables import Heading, Table
from jouletrace.report.scale import NBSP, NONE, figure, number
from jouletrace.report.traced import device_names
from jouletrace.run import Estimate, Run

if TYPE_CHECKING:
    from jouletrace.sensor.calibration.fit import Fit

Floats = NDArray[np.float64]

_WAYS = ("load goes on", "load goes off")
_MOST_POINTS, _CURVE_POINTS = 2000, 300
_TIMES = {"period": "period_s", "window": "window_s", "rise": "rise_s", "lag": "lag_s", "mean delay": "delay_s"}
_OTHERS = ("time error", "noise", "fluctuation under load", "gapless", "record / counter", "explained", "flags")


def calibration(run: Run) -> tuple[dict[str, Spec], Table | None]:
    """A figure for each power channel, and what the fits say; nothing where the Run holds no pulses."""
    drawn: dict[str, Spec] = {}
    headings = [Heading(name, name) for name in ("sensor", *_TIMES, *_OTHERS)]
    table = Table("calibration", "Response of the sensors", headings)
    if run.kind != "calibrate" or len(pulse_edges(run)) == 0:
        return drawn, None
    names = device_names(run)
    for place, device in enumerate(run.devices):
        for channel in CHANNELS:
            title = printable(f"{channel} · {names[device.id]}")
            try:
                fit = fit_channel(run, device.id, channel)
            except JouletraceError as error:
                table.notes.append(printable(f"{title}: not calibrated: {error}"))
                continue
            if fit is not None:
                drawn[f"calibration-{place}-{channel}"] = _drawing(fit, title)
                table.rows.append([Cell(title), *map(Cell, _facts(fit))])
    table.notes.append("± is a standard error.")
    return drawn, table


def folded(fit: Fit, way: int) -> tuple[Floats, Floats, Floats]:
    """Lay the readings over each other by their delay after an edge.

    A reading counts at every edge that it still remembers. What the model says of all the other
    edges is taken off, so that pulses of any spacing lie on one curve, the residual around it.

    Args:
        fit: The fit; its edges are on, off, on, ...
        way: 0 for edges at which the load goes on, 1 for off.

    Returns:
        Seconds since the edge, the share of the step that is shown, and reading less model in watts, shapes (n,).
    """
    edges = fit.edges_s[way::2]
    before, after = _reach(fit)
    first = np.searchsorted(fit.time_s, edges - before)
    count = np.searchsorted(fit.time_s, edges + after) - first
    reading = np.concatenate([np.arange(a, a + n) for a, n in zip(first, count, strict=True)]).astype(np.intp)
    delay = fit.time_s[reading] - np.repeat(edges, count)
    residual = (fit.power_w - fit.model_w)[reading]
    return delay, fit.response.step(delay) + (1 - 2 * way) * residual / step_w(fit), residual


def step_w(fit: Fit) -> float:
    """Size of the load's step in watts: the slope of the model over what the response shows of the load."""
    delay = fit.time_s[:, None] - fit.edges_s
    shown = fit.response.step(delay) @ np.where(np.arange(len(fit.edges_s)) % 2, -1.0, 1.0)
    return float(np.polyfit(shown, fit.model_w, 1)[0])


def _reach(fit: Fit) -> tuple[float, float]:
    """Seconds before and after an edge that are drawn."""
    memory = max(fit.response.memory_s, 2 * fit.response.period_s)
    return 0.15 * memory, 1.15 * memory


def _facts(fit: Fit) -> list[str]:
    """What the fit says, in the order of ``_TIMES`` and ``_OTHERS``."""
    r = fit.response
    return [
        *(_time(fit, name) for name in _TIMES.values()),
        figure(Estimate(r.jitter_s), "s"),
        f"{number(r.noise_w)}{NBSP}W and {100 * r.noise_relative:.2g}{NBSP}%",
        f"{100 * r.wander_relative:.2g}{NBSP}% over {figure(Estimate(r.noise_tau_s), 's')}",
        "yes" if r.gapless else "no",
        NONE if r.counter_ratio is None else f"{r.counter_ratio:.4f}",
        NONE if r.explained is None or not np.isfinite(r.explained) else f"{100 * r.explained:.2f}{NBSP}%",
        ", ".join(r.flags) or "none",
    ]


def _time(fit: Fit, name: str) -> str:
    """A time of the response with its standard error."""
    value, error = float(getattr(fit.response, name)), fit.response.uncertainty.get(name)
    if error is None or not np.isfinite(error):
        return figure(Estimate(value), "s")
    return figure(Estimate(value, value - error, value + error), "s")


def _drawing(fit: Fit, title: str) -> Spec:
    """Both edges side by side: readings laid over each other by their delay, the model, and residuals below."""
    data = []
    before, after = _reach(fit)
    delay = np.linspace(-before, after, _CURVE_POINTS)
    for way, words in enumerate(_WAYS):
        since, shown, residual = (x[:: len(x) // _MOST_POINTS + 1] for x in folded(fit, way))
        curve = fit.response.step(delay)
        if way == 1:
            shown, curve = 1 - shown, 1 - curve
        marks = {"mode": "markers", "marker": {"size": 4, "color": PALETTE[0]}, "name": "readings"}
        line = {"mode": "lines", "line": {"color": PALETTE[1], "width": 2}, "name": "model"}
        left = {
            "mode": "markers",
            "marker": {"size": 3, "color": PALETTE[-1]},
            "name": "reading − model",
            "yaxis": "y2",
        }
        for at, values, unit, look in (
            (since, 100 * shown, "%", marks),
            (delay, 100 * curve, "%", line),
            (since, residual, "W", left),
        ):
            trace = {"type": "scatter", "x": short(1e3 * at), "y": short(values), "showlegend": way == 0}
            trace |= {"xaxis": f"x{way + 1}" if way else "x", "yaxis": "y", **look}
            data.append({**trace, "hovertemplate": f"%{{x}} ms: %{{y}} {unit}<extra>{words}</extra>"})
    layout = {
        "xaxis": {"title": {"text": f"{_WAYS[0]}, ms"}, "domain": [0, 0.48], "anchor": "y2"},
        "xaxis2": {"title": {"text": f"{_WAYS[1]}, ms"}, "domain": [0.52, 1], "anchor": "y2"},
        "yaxis": {"title": {"text": f"% of the step ({number(step_w(fit))} W)"}, "domain": [0.36, 1]},
        "yaxis2": {"title": {"text": "residual, W"}, "domain": [0, 0.3]},
        "legend": {"orientation": "h", "y": 1.12},
    }
    return {"title": title, "data": data, "layout": layout}
