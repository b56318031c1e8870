"""Figures of the HTML report, as plotly's JSON: where energy and time go, and how long iterations took.

Building them needs no plotly; only showing them does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.latency import distribution, latencies_s
from jouletrace.report import reasons
from jouletrace.report.document import printable
from jouletrace.report.scale import NBSP, figure, number, quantity, unit_for
from jouletrace.report.tree import ROOT, Node, widths
from jouletrace.run import Run
from jouletrace.run.names import MOST, elided, short_name

Spec = dict[str, Any]
"""A figure or a part of one, as plotly's JSON has it."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""Okabe and Ito's colours, which most colour-blind readers distinguish (jfly.uni-koeln.de/color)."""

_PALE = ("#99ddff", "#eedd88", "#77aadd", "#ffaabb", "#bbcc33", "#dddddd")
"""Of Paul Tol's light colours, on which black text reads (personal.sron.nl/~pault)."""

_BLUES = [[0, "#eef4fa"], [0.5, "#a6cbe6"], [1, "#4f97cc"]]
"""Light to dark, in one hue: distinguished by everybody, also in grey."""

_LABEL, _LINE, _WHOLE = 60, 80, 800
"""Characters of a label, of a line, and of a name in full."""

_NARROW = 0.1
"""Share of the whole below which a box has no room for an interval."""

_CHARACTERS, _FEWEST = 150, 10
"""Characters on a box as wide as the whole, and the fewest with which a name is shown."""

_SEEN, _SPREAD = 0.01, 0.1
"""Share of the whole from which on a part is seen, and the least relative spread of the colours' scale."""

_ICICLE = {"margin": {"l": 4, "r": 4, "t": 26, "b": 4}, "uniformtext": {"minsize": 11, "mode": "hide"}}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it takes tags in any text for its own, and names come from anywhere."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str) -> str:
    """A name short enough for a label; tables have it whole."""
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _in_lines(text: str) -> str:
    """A name in full, as plotly shows it: broken into lines, since kernels have names of hundreds of characters."""
    shown = text if len(text) <= _WHOLE else f"{text[:_WHOLE]}…"
    lines = [shown[at : at + _LINE] for at in range(0, len(shown), _LINE)]
    return "<br>".join(map(plain, lines))


def short(values: Any, digits: int = 6) -> list[float]:
    """Short numbers keep the file small."""
    return [float(f"{value:.{digits}g}") for value in values]


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


def _bins(values: NDArray[np.float64]) -> int:
    """Bins of Freedman and Diaconis' width, as many as can be seen."""
    q25, q75 = np.quantile(values, [0.25, 0.75])
    width = 2 * (q75 - q25) / len(values) ** (1 / 3)
    span = float(values.max() - values.min())
    return int(np.clip(span / width if width > 0 else 10, 10, 120))


def icicle(nodes: list[Node], by: str) -> Spec | None:
    """Where energy or time goes; None where fewer than two parts have any.

    Widths are drawn so that each part holds its own; what is written on them is what was measured.
    """
    width = widths(nodes, by)
    if len(nodes) < 3 or sum(w > 0 for w in width) < 3:
        return None
    watts = [_power(node) for node in nodes]
    known = [w for w in watts if w is not None]
    levels = list(dict.fromkeys(node.level for node in nodes))
    marker: Spec = {"line": {"width": 1}}
    if len(known) > len(nodes) / 2:
        colours = [None if w is None else float(f"{w:.4g}") for w in watts]
        marker |= {"colors": colours, "colorscale": _BLUES, "showscale": True}
        # What is hardly seen must not set the scale: the power of next to nothing can be anything.
        seen = [w for w, wide in zip(watts, width, strict=True) if w is not None and wide > _SEEN * width[0]] or known
        low, high = min(seen), max(seen)
        room = max(0.0, _SPREAD * high - (high - low)) / 2  # else nearly equal powers look far apart
        marker |= {"cmin": low - room, "cmax": high + room}
        marker["colorbar"] = {"title": {"text": "mean power, W", "side": "right"}, "thickness": 10, "len": 0.9}
    else:
        marker["colors"] = [_PALE[levels.index(node.level) % len(_PALE)] for node in nodes]
    depths = _depths(nodes)
    # Cut to six digits so that children still fit into their parent: plotly draws nothing otherwise.
    values = [w * (1 + 1e-4 * (max(depths) - depth)) for w, depth in zip(width, depths, strict=True)]
    trace = {
        "type": "icicle",
        "ids": [node.key for node in nodes],
        "parents": [node.parent for node in nodes],
        "labels": [plain(_cut(_brief(node, wide / width[0]))) for node, wide in zip(nodes, width, strict=True)],
        "values": short(values),
        "text": [_written(node, by, wide / width[0]) for node, wide in zip(nodes, width, strict=True)],
        "hovertext": [_hover(node, nodes[0]) for node in nodes],
        "branchvalues": "total",
        "sort": False,
        "textinfo": "label+text",
        "textfont": {"color": "#1b1f24"},
        "leaf": {"opacity": 1},
        "hoverinfo": "text",
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": True, "thickness": 22},
        "marker": marker,
    }
    title = "where the energy goes" if by == "energy" else "where the time goes"
    return {"title": title, "data": [trace], "layout": _ICICLE, "rows": max(depths)}


def _depths(nodes: list[Node]) -> list[int]:
    """How deep each node lies, the root at 1."""
    depth = {"": 0}
    for node in nodes:
        depth[node.key] = depth[node.parent] + 1
    return [depth[node.key] for node in nodes]


def _power(node: Node) -> float | None:
    energy, seconds = node.energy.value, node.time.value
    return energy / seconds if energy is not None and seconds and energy > 0 and seconds > 0 else None


def _written(node: Node, by: str, share: float) -> str:
    """A figure, in a narrow box without its interval: what doesn't fit isn't drawn at all."""
    estimate, unit = (node.energy, "J") if by == "energy" else (node.time, "s")
    if share < _NARROW and estimate.value is not None:
        scale = unit_for([estimate.value], unit)
        return f"{number(estimate.value / scale.factor, 3)}{NBSP}{scale.name}"
    return figure(estimate, unit)


def _brief(node: Node, share: float) -> str:
    """A kernel's name without what it is a template of, cut to what fits onto a box on a screen."""
    if node.level != "kernel":
        return node.label
    base = short_name(node.label).partition("<")[0] or node.label
    return elided(base, min(max(int(_CHARACTERS * share), _FEWEST), MOST))


def _hover(node: Node, root: Node) -> str:
    lines = [f"<b>{_in_lines(node.label)}</b>", *(plain(_cut(text)) for text in node.detail.split("\n") if text)]
    for name, own, whole, unit in (("energy", node.energy, root.energy, "J"), ("time", node.time, root.time, "s")):
        if own.value is None:
            continue
        share = f" ({100 * own.value / whole.value:.2f} %)" if whole.value and node.key != ROOT else ""
        lines.append(f"{name} {figure(own, unit)}{share}")
    watts = _power(node)
    if watts is not None:
        lines.append(f"power {quantity(watts, 'W')}")
    if how := node.how or reasons.method(node.energy.method or node.time.method):
        lines.append(f"<i>{plain(how)}</i>")
    return "<br>".join([*lines, *(plain(reasons.flag(code)) for code in node.remarks)])
