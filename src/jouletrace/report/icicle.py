"""Where the energy and the time go, drawn: each part as wide as what it takes, its own parts under it."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.drawing import BLUES, PALE, Spec, cut, in_lines, plain
from jouletrace.report.scale import NBSP, figure, number, quantity, unit_for
from jouletrace.report.tree import ROOT, Node, widths
from jouletrace.run.names import MOST, elided, short_name

_NARROW = 0.1
"""Share of the whole below which a box has no room for an interval."""

_CHARACTERS, _FEWEST = 150, 10
"""Characters on a box as wide as the whole, and the fewest with which a name is shown."""

_SEEN, _SPREAD = 0.01, 0.1
"""Share of the whole from which on a part is seen, and the least relative spread of the colours' scale."""

_ICICLE = {"margin": {"l": 4, "r": 4, "t": 26, "b": 4}, "uniformtext": {"minsize": 11, "mode": "hide"}}


def icicle(nodes: list[Node], by: str) -> Spec | None:
    """Where energy or time goes; None where fewer than two parts have any.

    Widths are drawn so that each part holds its own; what is written on them is what was measured.
    """
    width = widths(nodes, by)
    if len(nodes) < 3 or sum(w > 0 for w in width) < 3:
        return None
    watts = [_power(node) for node in nodes]
    known = [w for w in watts if w is not None]
    # What is hardly seen must not set the scale: the power of next to nothing can be anything.
    seen = [w for w, wide in zip(watts, width, strict=True) if w is not None and wide > _SEEN * width[0]] or known
    levels = list(dict.fromkeys(node.level for node in nodes))
    marker: Spec = {"line": {"width": 1}}
    if len(known) > len(nodes) / 2:
        marker |= {"colors": [_rounded(w) for w in watts], "colorscale": BLUES, "showscale": True}
        low, high = min(seen), max(seen)
        room = max(0.0, _SPREAD * high - (high - low)) / 2  # else nearly equal powers look far apart
        marker |= {"cmin": low - room, "cmax": high + room}
        marker["colorbar"] = {"title": {"text": "mean power, W", "side": "right"}, "thickness": 10, "len": 0.9}
    else:
        marker["colors"] = [PALE[levels.index(node.level) % len(PALE)] for node in nodes]
    trace = {
        "type": "icicle",
        "ids": [node.key for node in nodes],
        "parents": [node.parent for node in nodes],
        "labels": [plain(cut(_brief(node, wide / width[0]))) for node, wide in zip(nodes, width, strict=True)],
        "values": [float(f"{w:.6g}") for w in _fitting(nodes, width)],
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
    return {"title": title, "data": [trace], "layout": _ICICLE, "rows": max(_depths(nodes))}


def _fitting(nodes: list[Node], width: list[float]) -> list[float]:
    """Widths cut to six digits so that children still fit into their parent: plotly draws nothing otherwise."""
    depths = _depths(nodes)
    deepest = max(depths)
    return [w * (1 + 1e-4 * (deepest - depth)) for w, depth in zip(width, depths, strict=True)]


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
    lines = [f"<b>{in_lines(node.label)}</b>", *(plain(cut(text)) for text in node.detail.split("\n") if text)]
    for name, own, whole, unit in (("energy", node.energy, root.energy, "J"), ("time", node.time, root.time, "s")):
        if own.value is None:
            continue
        share = f" ({100 * own.value / whole.value:.2f} %)" if whole.value and node.key != ROOT else ""
        lines.append(f"{name} {figure(own, unit)}{share}")
    watts = _power(node)
    if watts is not None:
        lines.append(f"power {quantity(watts, 'W')}")
    how = node.how or reasons.method(node.energy.method or node.time.method)
    return "<br>".join(
        [*lines, *([f"<i>{plain(how)}</i>"] if how else []), *(plain(reasons.flag(f)) for f in node.remarks)]
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
