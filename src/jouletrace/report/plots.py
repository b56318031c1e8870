"""Figures of a Run: plain dictionaries of plotly's JSON, which the HTML report draws and ``plot`` wraps.

Building them needs no plotly; only showing them does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.latency import distribution, latencies_s
from jouletrace.report.drawing import PALETTE, Spec, short
from jouletrace.report.scale import unit_for
from jouletrace.run import Run

_MOST_CURVE, _MOST_POWER = 600, 4000


def histogram(run: Run) -> Spec | None:
    """How many iterations took how long; None without single iterations."""
    values = latencies_s(run)
    if len(values) < 2:
        return None
    unit = unit_for([float(np.median(values))], "s")
    shown = values / unit.factor
    counts, edges = np.histogram(shown, bins=_bins(shown))
    trace = {
        "type": "bar",
        "x": short((edges[:-1] + edges[1:]) / 2),
        "y": counts.tolist(),
        "width": short(np.diff(edges)),
        "marker": {"color": PALETTE[0]},
        "hovertemplate": f"%{{x}} {unit.name}<br>%{{y}} iterations<extra></extra>",
    }
    marks = distribution(run)
    lines = [(name, marks[name]) for name in ("median", "p95", "p99")]
    at = [(name, v / 1e3 / unit.factor) for name, v in lines if v is not None]
    layout = {
        "xaxis": {"title": {"text": f"latency, {unit.name}"}},
        "yaxis": {"title": {"text": "iterations"}, "rangemode": "tozero"},
        "shapes": [
            {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot", "width": 1}}
            for _, x in at
        ],
        "annotations": [
            {"x": x, "yref": "paper", "y": 1 - 0.09 * k, "text": name, "showarrow": False, "xanchor": "left"}
            for k, (name, x) in enumerate(at)
        ],
        "bargap": 0,
    }
    return {"title": "latency", "data": [trace], "layout": layout}


def thinned(x: NDArray[Any], y: NDArray[np.float64], most: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
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


def _bins(values: NDArray[np.float64]) -> int:
    """Bins of Freedman and Diaconis' width, as many as can be seen."""
    q25, q75 = np.quantile(values, [0.25, 0.75])
    width = 2 * (q75 - q25) / len(values) ** (1 / 3)
    span = float(values.max() - values.min())
    return int(np.clip(span / width if width > 0 else 10, 10, 120))
