"""Figures of a Run: plain dictionaries of plotly's JSON, which the HTML report draws and ``plot`` wraps.

Building them needs no plotly; only showing them does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.latency import distribution, latencies_s
from jouletrace.errors import NotPossibleError
from jouletrace.report.content import document
from jouletrace.report.drawing import PALETTE, Spec, plain, short
from jouletrace.report.icicle import icicle
from jouletrace.report.results import Results
from jouletrace.report.scale import unit_for
from jouletrace.report.scatter import scatter
from jouletrace.report.traced import device_names
from jouletrace.report.tree import tree
from jouletrace.run import Run
from jouletrace.run.channels import POWER

_MOST_CURVE, _MOST_POWER = 600, 4000


def plot(run: Run) -> dict[str, Any]:
    """The figures that a Run has, by name, as plotly figures: each shows itself in a notebook.

    Args:
        run: Any Run.

    Returns:
        Of "energy" and "time" (where they go), "power" (over time), "latency" (histogram), "cdf" (of
        latency) and "scatter" (time against energy of each part) those that there is something to draw in.

    Raises:
        NotPossibleError: If plotly isn't installed.
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError:
        raise NotPossibleError("drawing needs plotly: pip install 'jouletrace[report]'") from None
    results = Results(run)
    nodes = tree(run, results)
    specs = {by: icicle(nodes, by) for by in ("energy", "time")}
    specs |= {"power": power(run), "latency": histogram(run), "cdf": cdf(run), "scatter": scatter(results)}
    title = document(run).title
    found = {}
    for name, spec in specs.items():
        if spec is not None:
            layout = {
                "title": {"text": plain(f"{title}: {spec['title']}")},
                "template": "plotly_white",
                **spec["layout"],
            }
            layout["annotations"] = [*layout.get("annotations", []), *(_watermark() if run.simulated else [])]
            found[name] = Figure(data=spec["data"], layout=layout)
    return found


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


def cdf(run: Run) -> Spec | None:
    """Which share of iterations took at most how long; None without single iterations."""
    values = np.sort(latencies_s(run))
    if len(values) < 2:
        return None
    unit = unit_for([float(np.median(values))], "s")
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_CURVE)).astype(int))
    trace = {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": PALETTE[0]},
        "x": short(values[places] / unit.factor),
        "y": short(100 * (places + 1) / len(values)),
        "hovertemplate": f"%{{y:.1f}} % took at most %{{x}} {unit.name}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": f"latency, {unit.name}"}},
        "yaxis": {"title": {"text": "iterations, %"}, "range": [0, 101]},
    }
    return {"title": "latency, cumulative", "data": [trace], "layout": layout}


def power(run: Run) -> Spec | None:
    """Power over time, thinned to the least and the largest in each segment; None without a record."""
    traces: list[Spec] = []
    names = device_names(run)
    for number, device in enumerate(run.devices):
        stamps, watts = run.series(device.id, POWER)
        if not len(stamps):
            continue
        order = np.argsort(stamps, kind="stable")
        at, shown = thinned(stamps[order], watts[order], _MOST_POWER)
        if not traces:
            origin = at[0]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(names[device.id]),
                "x": short((at - origin) / 1e9, 9),
                "y": short(shown),
                "line": {"width": 1, "color": PALETTE[number % len(PALETTE)]},
            }
        )
    if not traces:
        return None
    layout = {
        "xaxis": {"title": {"text": "time, s"}},
        "yaxis": {"title": {"text": "power, W"}, "rangemode": "tozero"},
        "showlegend": len(traces) > 1,
    }
    return {"title": "power", "data": traces, "layout": layout}


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


def _watermark() -> list[Spec]:
    return [
        {
            "text": "SIMULATED",
            "xref": "paper",
            "yref": "paper",
            "x": 0.5,
            "y": 0.5,
            "showarrow": False,
            "opacity": 0.18,
            "textangle": -18,
            "font": {"size": 64, "color": "#b00020"},
        }
    ]
