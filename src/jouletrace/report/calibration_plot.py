"""The calibration drawn: how each power sensor answered a load that went on and off, and what was fitted.

One HTML file that needs nothing else: plotly's JavaScript is inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.calibration import CHANNELS, fit_channel, pulse_edges
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.report.scale import NBSP, NONE, figure, number
from jouletrace.run import DeviceInfo, Estimate, Run
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.run.files import check_replaceable

if TYPE_CHECKING:
    from jouletrace.sensor.calibration.fit import Fit

Floats = NDArray[np.float64]

_TITLE = "calibration – jouletrace</title>"
WAYS = ("load goes on", "load goes off")
_READING, _MODEL, _RESIDUAL = "#2a6f97", "#c1121f", "#6c757d"
_MOST_POINTS = 4000
_CURVE_POINTS = 400
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .7rem; text-align: right; overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.note { color: #555; }
"""


@dataclass(frozen=True)
class Folded:
    """Readings laid over each other by the time since an edge of one kind.

    Attributes:
        delay_s: Time of each reading since the edge, shape (n,).
        share: What it shows of the step, the other edges' part taken off by the model, shape (n,).
        residual_w: Reading less model, shape (n,).
    """

    delay_s: Floats
    share: Floats
    residual_w: Floats


def write_plot(run: Run, path: Path | str) -> Path:
    """Draw the fit of every power channel of a calibration Run.

    Args:
        run: A Run of ``calibrate``, with the pulses in its spans.
        path: The HTML file to write; an older drawing that is there is replaced.

    Returns:
        The path.

    Raises:
        BadInputError: If the Run holds no pulses of a load, another file is there, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    if len(pulse_edges(run)) == 0:
        raise BadInputError("nothing to draw: the Run holds no pulses of a load, so it is no calibration")
    _need_plotly()
    target = Path(path)
    check_place(target)
    page = _page(run)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise BadInputError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from None
    return target


def check_place(path: Path) -> None:
    """Refuse a place where something else than an older drawing lies, before anything is measured.

    Raises:
        BadInputError: If it does.
    """
    check_replaceable(path, (_TITLE,), "a drawing of a calibration")


def folded(fit: Fit, way: int) -> Folded:
    """Lay the readings over each other by their delay after an edge.

    A reading counts at every edge that it still remembers. What the model says of all the other
    edges is taken off, so that pulses of any spacing lie on one curve, the residual around it.

    Args:
        fit: The fit; its edges are on, off, on, ...
        way: 0 for edges at which the load goes on, 1 for off.
    """
    edges = fit.edges_s[way::2]
    before, after = _reach(fit)
    first = np.searchsorted(fit.time_s, edges - before)
    count = np.searchsorted(fit.time_s, edges + after) - first
    reading = np.concatenate([np.arange(a, a + n) for a, n in zip(first, count, strict=True)]).astype(np.intp)
    delay = fit.time_s[reading] - np.repeat(edges, count)
    residual = (fit.power_w - fit.model_w)[reading]
    share = fit.response.step(delay) + (1 - 2 * way) * residual / step_w(fit)
    return Folded(delay, share, residual)


def step_w(fit: Fit) -> float:
    """Size of the load's step in watts: the slope of the model over what the response shows of the load."""
    delay = fit.time_s[:, None] - fit.edges_s
    shown = fit.response.step(delay) @ np.where(np.arange(len(fit.edges_s)) % 2, -1.0, 1.0)
    return float(np.polyfit(shown, fit.model_w, 1)[0])


def _reach(fit: Fit) -> tuple[float, float]:
    """How long before and after an edge is drawn."""
    memory = max(fit.response.memory_s, 2 * fit.response.period_s)
    return 0.15 * memory, 1.15 * memory


def _need_plotly() -> None:
    try:
        import plotly.graph_objects  # noqa: F401
    except ImportError:
        raise NotPossibleError("drawing needs plotly: pip install 'jouletrace[report]'") from None


def _page(run: Run) -> str:
    from plotly.offline import get_plotlyjs

    parts = [_section(run, device, number) for number, device in enumerate(run.devices)]
    simulated = "SIMULATED " if run.simulated else ""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{simulated}{_TITLE}',
            f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>",
            f"<h1>{simulated}Calibration of power sensors</h1>",
            f'<p class="note">{_when(run)}Load: {escape(str(run.workload.get("load") or "unknown"))}, '
            f"{len(pulse_edges(run)) // 2} pulses. ± is a standard error. What a board's sensor is off by in "
            "proportion (its gain, about ±5 %) can't be seen from within and is in none of these figures.</p>",
            *parts,
            "</body></html>",
        ]
    )


def _when(run: Run) -> str:
    if not run.created_ns:
        return ""
    return f"{datetime.fromtimestamp(run.created_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC. "


def _section(run: Run, device: DeviceInfo, number: int) -> str:
    columns, drawings = [], []
    for channel in CHANNELS:
        info = run.channel(device.id, channel)
        if info is None:
            continue
        drawings.append(f"<h3>{channel}: {CHANNEL_UNITS[channel][1]}</h3>")
        try:
            fit = fit_channel(run, device.id, channel)
        except JouletraceError as error:
            fit = None
            drawings.append(f"<p>Not calibrated: {escape(str(error))}</p>")
        columns.append([channel, info.source, *_facts(fit)])
        if fit is not None:
            drawings.append(_drawing(fit, f"{channel}-{number}"))
    name = f"{escape(device.name)} <small>{escape(device.id)}, driver {escape(device.driver or '?')}</small>"
    table = _table(columns) if columns else "<p>It has no power channel.</p>"
    return "\n".join([f"<h2>{name}</h2>", table, *drawings])


_TIMES = {"period": "period_s", "window": "window_s", "rise": "rise_s", "lag": "lag_s", "mean delay": "delay_s"}
_OTHERS = ("time error", "noise", "fluctuation under load", "gapless", "record / counter", "explained", "flags")


def _facts(fit: Fit | None) -> list[str]:
    """What the fit says, in the order of ``_TIMES`` and ``_OTHERS``."""
    if fit is None:
        return [NONE] * (len(_TIMES) + len(_OTHERS) - 1) + ["not calibrated"]
    r = fit.response
    return [
        *(response_time(fit, name) for name in _TIMES.values()),
        figure(Estimate(r.jitter_s), "s"),
        f"{number(r.noise_w)}{NBSP}W and {100 * r.noise_relative:.2g}{NBSP}%",
        f"{100 * r.wander_relative:.2g}{NBSP}% over {figure(Estimate(r.noise_tau_s), 's')}",
        "yes" if r.gapless else "no",
        NONE if r.counter_ratio is None else f"{r.counter_ratio:.4f}",
        NONE if r.explained is None or not np.isfinite(r.explained) else f"{100 * r.explained:.2f}{NBSP}%",
        ", ".join(r.flags) or "none",
    ]


def _table(columns: list[list[str]]) -> str:
    """One column a channel, one row a fact."""
    names = ["", "source", *_TIMES, *_OTHERS]
    rows = [
        "".join(f"<td>{escape(cell)}</td>" for cell in (name, *cells))
        for name, *cells in zip(names, *columns, strict=True)
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{rows[0]}</tr></thead><tbody>{body}</tbody></table>"


def response_time(fit: Fit, name: str) -> str:
    """A time of the response with its standard error."""
    value, error = float(getattr(fit.response, name)), fit.response.uncertainty.get(name)
    if error is None or not np.isfinite(error):
        return figure(Estimate(value), "s")
    return figure(Estimate(value, value - error, value + error), "s")


def _drawing(fit: Fit, name: str) -> str:
    """Both edges: readings and model above, residuals below."""
    from plotly.graph_objects import Scatter
    from plotly.io import to_html
    from plotly.subplots import make_subplots

    drawing = make_subplots(
        rows=2,
        cols=2,
        shared_xaxes=True,
        shared_yaxes=True,
        row_heights=[0.68, 0.32],
        vertical_spacing=0.06,
        horizontal_spacing=0.04,
        column_titles=list(WAYS),
    )
    before, after = _reach(fit)
    delay = np.linspace(-before, after, _CURVE_POINTS)
    for way in (0, 1):
        points = folded(fit, way)
        some = slice(None, None, len(points.delay_s) // _MOST_POINTS + 1)
        at = _rounded(1e3 * points.delay_s[some])
        marks: dict[str, Any] = {"mode": "markers", "legendgroup": "readings", "showlegend": way == 0}
        shown, curve = points.share[some], fit.response.step(delay)
        if way == 1:
            shown, curve = 1 - shown, 1 - curve
        drawing.add_trace(
            Scatter(
                x=at,
                y=_rounded(100 * shown),
                name="readings",
                marker={"size": 4, "color": _READING},
                **marks,
            ),
            1,
            way + 1,
        )
        drawing.add_trace(
            Scatter(
                x=_rounded(1e3 * delay),
                y=_rounded(100 * curve),
                mode="lines",
                name="model",
                line={"color": _MODEL, "width": 2},
                legendgroup="model",
                showlegend=way == 0,
            ),
            1,
            way + 1,
        )
        drawing.add_trace(
            Scatter(
                x=at,
                y=_rounded(points.residual_w[some]),
                name="reading − model",
                marker={"size": 3, "color": _RESIDUAL},
                **{**marks, "legendgroup": "residuals"},
            ),
            2,
            way + 1,
        )
        drawing.update_xaxes(title_text="ms since the edge", row=2, col=way + 1)
    drawing.update_yaxes(title_text=f"% of the step ({number(step_w(fit))} W)", row=1, col=1)
    drawing.update_yaxes(title_text="residual, W", row=2, col=1)
    drawing.update_layout(height=520, margin={"l": 60, "r": 20, "t": 40, "b": 50}, template="plotly_white")
    html: str = to_html(drawing, include_plotlyjs=False, full_html=False, div_id=name)
    return html


def _rounded(values: Floats) -> list[float]:
    """Short numbers keep the file small; nobody sees the fifth digit of a point."""
    return [float(f"{value:.5g}") for value in values]
