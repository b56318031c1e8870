"""Figures of the HTML report: where energy and time go, and as plotly's JSON how long iterations took.

Building them needs no plotly; only showing the latter does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.facts import Facts
from jouletrace.comparing.pairs import Comparison
from jouletrace.report import why
from jouletrace.report.tree import TreeNode, depths, widths
from jouletrace.run import Estimate
from jouletrace.run.names import short_name
from jouletrace.words import reasons
from jouletrace.words.scale import figure, quantity, unit_for
from jouletrace.words.text import printable

Spec = dict[str, Any]
"""A figure, as ``flame.js`` or plotly take it."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""Okabe and Ito's colours, which most colour-blind readers distinguish (jfly.uni-koeln.de/color)."""

_WHOLE = 800
"""Most characters of a name in full."""

_SEEN, _SPREAD = 0.01, 0.1
"""Share of the whole from which on a part is seen, and the least relative spread of the colours' scale."""

_STEPS, _ROUNDING = 8, 1e-9
"""Causes that a waterfall shows, and the share of A below which what they leave is the rounding of sums."""

_PALE = 0.35
"""Opacity of a bar whose cause isn't certain."""


def plain(text: str) -> str:
    """Text that plotly shows as it is: it takes tags in any text for its own, and names come from anywhere."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(values: Any, digits: int = 6) -> list[float]:
    """Short numbers keep the file small."""
    return [float(f"{value:.{digits}g}") for value in values]


def histogram(percentiles: Facts) -> Spec | None:
    """How many iterations took how long; None without single iterations."""
    values = percentiles.seconds
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
    lines = [(name, percentiles.latency[name]) for name in ("median", "p95", "p99")]
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


def icicle(nodes: list[TreeNode], by: str) -> Spec | None:
    """Where energy or time goes, for ``flame.js``; None where fewer than two parts have any.

    Widths are drawn so that each part holds its own; what is written on them is what was measured.
    """
    width = widths(nodes, by)
    if len(nodes) < 3 or sum(w > 0 for w in width) < 3:
        return None
    watts = [power(node.energy, node.time) for node in nodes]
    powers = [w for w in watts if w is not None]
    scale = None
    if len(powers) > len(nodes) / 2:
        # What is hardly seen must not set the scale: the power of next to nothing can be anything.
        seen = [w for w, wide in zip(watts, width, strict=True) if w is not None and wide > _SEEN * width[0]] or powers
        low, high = min(seen), max(seen)
        room = max(0.0, _SPREAD * high - (high - low)) / 2  # else nearly equal powers look far apart
        scale = short([low - room, high + room])
    figures = [figure(node.energy if by == "energy" else node.time, "J" if by == "energy" else "s") for node in nodes]
    drawn = _drawn(nodes, width, figures, [_tip(node, nodes[0]) for node in nodes], watts)
    return {"title": by.capitalize(), "nodes": drawn, "watts": scale, "rows": max(depths(nodes).values())}


def difference(comparison: Comparison) -> Spec | None:
    """The causes of a difference for ``flame.js``, each as wide as its joules; None where none is stated.

    A cause has the colour of its change from A where that is certain.
    """
    if comparison.why is None or not comparison.why.stated:
        return None
    seen = [row for row in comparison.why.rows if abs(row.value) > _SEEN * abs(comparison.why.whole.value or 0.0)]
    wide = sum(abs(row.value) for row in seen)
    nodes: list[list[Any]] = [[-1, "difference", figure(comparison.why.whole, "J"), "B − A", wide, None, 0]]
    side_of: dict[str, int] = {}
    for row in seen:
        above = 0
        if row.module:
            if (above := side_of.setdefault(row.module, len(nodes))) == len(nodes):
                nodes.append([0, printable(row.module), "", printable(row.module), 0.0, None, 1])
            nodes[above][4] += abs(row.value)
        before = row.energy[0].value or 0.0
        change = 1.0 if before <= 0 else min(row.value / before, 1.0)
        nodes.append([above, *why.texts(row), abs(row.value), change if row.certain else None, 2 if above else 1])
    if len(nodes) < 2:
        return None
    drawn = [[*node[:4], float(f"{node[4]:.6g}"), *node[5:]] for node in nodes]
    return {"title": "Difference", "nodes": drawn, "watts": None, "reach": 1.0, "rows": 2 + any(side_of)}


def waterfall(comparison: Comparison) -> Spec | None:
    """From the energy of A to that of B by the largest causes, as bars of plotly; None where none is stated."""
    if comparison.why is None or not comparison.why.stated:
        return None
    listed = [row for row in comparison.why.rows if row.value][:_STEPS]
    rest = (comparison.why.whole.value or 0.0) - sum(row.value for row in listed)
    unit = why.unit_of(comparison.why)
    steps = [(why.texts(row)[0], row.value / unit.factor, row.certain) for row in listed]
    steps += [("all else", rest / unit.factor, False)] if abs(rest) > _ROUNDING * comparison.why.of_a else []
    start = comparison.why.of_a / unit.factor
    names, base, height, colours, opacity = ["A"], [0.0], [start], [PALETTE[6]], [1.0]
    for name, value, certain in steps:
        names.append(f"{len(names)}. {name}")
        base.append(start)
        height.append(value)
        colours.append(PALETTE[1] if value > 0 else PALETTE[0])
        opacity.append(1.0 if certain else _PALE)
        start += value
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [plain(name) for name in (*names, "B")],
        "x": short((*height, start)),
        "base": short((*base, 0.0)),
        "marker": {"color": [*colours, PALETTE[6]], "opacity": [*opacity, 1.0]},
        "hovertemplate": f"%{{y}}<br>%{{x}} {unit.name}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": f"energy, {unit.name}"}},
        "yaxis": {"autorange": "reversed"},
        "bargap": 0.25,
    }
    return {"title": "From A to B", "data": [trace], "layout": layout}


def _drawn(
    nodes: Sequence[TreeNode],
    width: Sequence[float],
    figures: Sequence[str],
    tips: Sequence[str],
    colours: Sequence[float | None],
) -> list[list[Any]]:
    """What ``flame.js`` takes of each node."""
    levels = list(dict.fromkeys(node.level for node in nodes))
    number_of = {node.path: number for number, node in enumerate(nodes)}
    return [
        [
            number_of.get(node.parent, -1),
            printable(_brief(node)),
            said,
            tip,
            float(f"{wide:.6g}"),
            None if colour is None else float(f"{colour:.4g}"),
            levels.index(node.level),
        ]
        for node, wide, said, tip, colour in zip(nodes, width, figures, tips, colours, strict=True)
    ]


def power(energy: Estimate, time: Estimate) -> float | None:
    """Mean power of what takes an energy in a time, W, if it is one."""
    joules, seconds = energy.value, time.value
    return joules / seconds if joules is not None and seconds and joules > 0 and seconds > 0 else None


def _brief(node: TreeNode) -> str:
    """A kernel's name without what it is a template of."""
    return short_name(node.label).partition("<")[0] or node.label if node.level == "kernel" else node.label


def _tip(node: TreeNode, root: TreeNode) -> str:
    """The text under a pointer, in lines: the name in full where it was cut, properties, figures, their methods."""
    name = node.label if len(node.label) <= _WHOLE else f"{node.label[:_WHOLE]}…"
    lines = [*([name] if _brief(node) != node.label else []), *node.details]
    for name, of_node, whole, unit in (("energy", node.energy, root.energy, "J"), ("time", node.time, root.time, "s")):
        if of_node.value is None:
            continue
        share = f" ({100 * of_node.value / whole.value:.2f} %)" if whole.value and node.parent else ""
        lines.append(f"{name} {figure(of_node, unit)}{share}")
    watts = power(node.energy, node.time)
    if watts is not None:
        lines.append(f"power {quantity(watts, 'W')}")
    if how := node.how or reasons.method(node.energy.method or node.time.method):
        lines.append(how)
    return "\n".join(map(printable, [*lines, *map(reasons.flag, node.remarks)]))
