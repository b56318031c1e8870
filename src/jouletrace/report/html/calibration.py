"""What a calibration found, in the report: each sensor's answer to a load that goes on and off, and the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jouletrace.analysis.calibration import CHANNELS, fit_channel, pulse_edges
from jouletrace.errors import JouletraceError
from jouletrace.report.calibration_plot import WAYS, folded, response_time, step_w
from jouletrace.report.document import printable
from jouletrace.report.drawing import PALETTE, Spec, short
from jouletrace.report.html.tables import Cell, Heading, Table
from jouletrace.report.scale import NONE, number
from jouletrace.report.traced import device_names
from jouletrace.run import Run

if TYPE_CHECKING:
    from jouletrace.sensor.calibration.fit import Fit

_MOST_POINTS, _CURVE_POINTS = 2000, 300
_TIMES = {"period": "period_s", "window": "window_s", "rise": "rise_s", "lag": "lag_s", "mean delay": "delay_s"}
_FACTS = (*_TIMES, "gapless", "record / counter", "explained", "flags")


def calibration(run: Run) -> tuple[dict[str, Spec], Table | None]:
    """A figure for each power channel, and what the fits say; nothing where the Run holds no pulses."""
    drawn: dict[str, Spec] = {}
    table = Table(
        "calibration", "Response of the sensors", [Heading("sensor", "sensor"), *(Heading(f, f) for f in _FACTS)]
    )
    if run.kind != "calibrate" or len(pulse_edges(run)) == 0:
        return drawn, None
    names = device_names(run)
    for number_of, device in enumerate(run.devices):
        for channel in CHANNELS:
            title = printable(f"{channel} · {names[device.id]}")
            try:
                fit = fit_channel(run, device.id, channel)
            except JouletraceError as error:
                table.notes.append(printable(f"{title}: not calibrated: {error}"))
                continue
            if fit is not None:
                drawn[f"calibration-{number_of}-{channel}"] = _drawing(fit, title)
                table.rows.append([Cell(title), *map(Cell, _facts(fit))])
    table.notes.append("± is a standard error.")
    return drawn, table


def _facts(fit: Fit) -> list[str]:
    r = fit.response
    explained = NONE if r.explained is None or not np.isfinite(r.explained) else f"{100 * r.explained:.2f} %"
    counter = NONE if r.counter_ratio is None else f"{r.counter_ratio:.4f}"
    times = [response_time(fit, name) for name in _TIMES.values()]
    return [*times, "yes" if r.gapless else "no", counter, explained, ", ".join(r.flags) or "none"]


def _drawing(fit: Fit, title: str) -> Spec:
    """Both edges side by side: readings laid over each other by their delay, and the model."""
    data = []
    memory = max(fit.response.memory_s, 2 * fit.response.period_s)
    delay = np.linspace(-0.15 * memory, 1.15 * memory, _CURVE_POINTS)
    for way, words in enumerate(WAYS):
        points, curve = folded(fit, way), fit.response.step(delay)
        some = slice(None, None, len(points.delay_s) // _MOST_POINTS + 1)
        shown = points.share[some]
        if way == 1:
            shown, curve = 1 - shown, 1 - curve
        axes = {"xaxis": f"x{way + 1}" if way else "x", "yaxis": "y"}
        marks = {"mode": "markers", "marker": {"size": 4, "color": PALETTE[0]}, "name": "readings"}
        line = {"mode": "lines", "line": {"color": PALETTE[1], "width": 2}, "name": "model"}
        for at, share, look in ((points.delay_s[some], shown, marks), (delay, curve, line)):
            trace = {"type": "scatter", "x": short(1e3 * at), "y": short(100 * share), "showlegend": way == 0}
            data.append({**trace, **axes, **look, "hovertemplate": f"%{{x}} ms: %{{y}} %<extra>{words}</extra>"})
    layout = {
        "xaxis": {"title": {"text": f"{WAYS[0]}, ms"}, "domain": [0, 0.48]},
        "xaxis2": {"title": {"text": f"{WAYS[1]}, ms"}, "domain": [0.52, 1]},
        "yaxis": {"title": {"text": f"% of the step ({number(step_w(fit))} W)"}},
        "legend": {"orientation": "h", "y": 1.12},
    }
    return {"title": title, "data": data, "layout": layout}
