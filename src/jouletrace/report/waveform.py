"""Power inside one iteration, drawn above its kernels as SVG: for the HTML report and as a picture of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.waveform import Waveform, waveform_of
from jouletrace.report import facts
from jouletrace.report.charts import PALETTE
from jouletrace.run import Estimate, Run
from jouletrace.run.names import elided, short_name
from jouletrace.run.parts import ABSENT, Part, Parts
from jouletrace.words.scale import figure, quantity
from jouletrace.words.text import printable

COLOURS = (*PALETTE[:-1], "#8c5fd6", "#a6761d")
"""Of the operators that take most time; the others share ``PALETTE``'s grey. Charts elsewhere go round six."""

_FG, _SOFT, _LINE, _BG = "#1b1f24", "#57606a", "#d8dee4", "#ffffff"
_LEFT, _RIGHT, _HIGH, _ROW, _MOST_ROWS = 58, 14, 210, 20, 4
_SEEN = 0.4
"""Pixels beside the last box of a row below which a kernel isn't drawn."""

_LONG = 80
"""Characters of the longest name; hundreds of boxes may carry it."""

_WIDE, _BOLD = 0.56, 0.66
"""Width of a character, as a share of the font's size."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Operator:
    """An operator in the picture: its colour, its name and module, its energy in an iteration (else its time)."""

    colour: str
    label: str
    cost: str


def picture(run: Run, *, width: int = 800, name: str = "waveform", titled: bool = True) -> tuple[str, str] | None:
    """The picture of a Run's waveform, and in words what it shows; None if it has none.

    Args:
        run: Analysed.
        width: Of the picture, in pixels.
        name: Of the parts that are referred to; differs between pictures of one page.
        titled: Whether a title stands above it.
    """
    waveform = waveform_of(run)
    if waveform is None:
        return None
    bins = f"means over {np.diff(waveform.edges_ns)[0] / 1e6:.2g} ms with 95 % intervals"
    length, every = (
        quantity(int(waveform.edges_ns[-1] - waveform.edges_ns[0]) / 1e9, "s"),
        bool(waveform.has_power.all()),
    )
    said = f"One iteration of {length} as traced: {bins}"
    said += f", {quantity(waveform.energy_j, 'J')} in all" if every else ", empty where power isn't known"
    return _Picture(run, waveform, width, name).drawn(f"Power inside an iteration: {bins}" if titled else ""), said


class _Picture:
    """A picture in the making; y grows downwards, in pixels. Classes let a page set colours of its own."""

    def __init__(self, run: Run, waveform: Waveform, width: int, name: str) -> None:
        self._run, self._waveform, self._width, self._name = run, waveform, width, name
        self._parts: list[str] = []
        self._start, self._length = int(waveform.edges_ns[0]), int(waveform.edges_ns[-1] - waveform.edges_ns[0])
        self._results = Parts(run)
        self._operators, self._of_unit = _operators(self._results, waveform)

    def drawn(self, title: str) -> str:
        """The whole SVG."""
        y = self._titled(title) if title else 16.0
        boxes, rows = self._boxes()
        self._power(y, tinted=rows == 1)
        below = y + _HIGH + 6
        self._parts.append(f'<g transform="translate(0 {below:g})"><g id="{self._name}">{boxes}</g></g>')
        below = self._legend(self._time_axis(below + rows * _ROW) + 22)
        size = f'width="{self._width}" height="{below:g}" viewBox="0 0 {self._width} {below:g}"'
        fonts = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} role="img">'
        words = "<title>Power inside an iteration, above its kernels</title>"
        ground = f'<rect class="bg" width="100%" height="100%" fill="{_BG}"/>'
        return "\n".join([head, words, ground, *self._parts, "</svg>\n"])

    def _titled(self, title: str) -> float:
        """Model, GPU and energy per iteration, then what is shown and how it ran; returns where that ends."""
        run, what = self._run, facts.title(self._run).split(facts.SEPARATOR)
        device = elided(run.devices[0].name, _LONG) if run.devices else ""
        marked = f"SIMULATED {device}" if run.simulated and "SIMULATED" not in device else device
        energy = self._results.get("energy_total_j")
        cost = f"{figure(energy, 'J')} per iteration" if energy.value is not None else ""
        room = int((self._width - 2 * _RIGHT) / (_BOLD * 17)) - len(marked) - len(cost) - 6
        words = facts.SEPARATOR.join(filter(None, [elided(what[0], max(room, 12)), marked, cost]))
        self._text(_RIGHT, 24, words, style='font-size="17" font-weight="600"')
        line = facts.SEPARATOR.join([title, *what[1:]])
        self._text(_RIGHT, 43, elided(line, int(self._width / (_WIDE * 12))), "soft")
        return 66.0

    def _power(self, y: float, *, tinted: bool) -> None:
        """Line and band over the area of each kernel in its operator's colour."""
        waveform, has_power = self._waveform, self._waveform.has_power
        ticks = _ticks(max(1.1 * float(waveform.power_w[has_power].max(initial=0.0)), 1.0), 6)
        top = float(ticks[-1] + ticks[1])  # a band that is wider still ends at the edge
        for watts in [*ticks.tolist(), top]:
            at = y + _HIGH * (1 - watts / top)
            self._rule(_LEFT, at, self._width - _RIGHT, at)
            words = f"{watts:g}{' W' if watts == top else ''}"
            self._text(_LEFT - 6, at + 4, words, "soft", 'text-anchor="end"')
        x, there = self._x(waveform.edges_ns - self._start), np.flatnonzero(has_power)

        def up(watts: Floats) -> Floats:
            return y + _HIGH * (1 - np.clip(watts / top, 0, 1))

        line = band = area = ""
        for piece in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1) if len(there) else []:
            at = x[piece[0] : piece[-1] + 2]
            middle, low, high = (
                _steps(at, up(of[piece])) for of in (waveform.power_w, waveform.low_w, waveform.high_w)
            )
            line, band = line + _path(middle), band + _path([*high, *reversed(low)])
            area += _path([(at[0], y + _HIGH), *middle, (at[-1], y + _HIGH)])
        if tinted:
            self._parts.append(f'<clipPath id="{self._name}-area"><path d="{area}"/></clipPath>')
            scaled = f'transform="translate(0 {y:g}) scale(1 {_HIGH / _ROW:g})"'
            self._parts.append(
                f'<g clip-path="url(#{self._name}-area)" opacity="0.4"><use href="#{self._name}" {scaled}/></g>'
            )
        else:
            self._parts.append(f'<path class="soft" d="{area}" fill="{_SOFT}" opacity="0.15"/>')
        self._parts.append(f'<path class="fg" d="{band}" fill="{_FG}" opacity="0.2"/>')
        self._parts.append(f'<path class="stroke" d="{line}" fill="none" stroke="{_FG}" stroke-width="1.4"/>')

    def _boxes(self) -> tuple[str, int]:
        """A box for each kernel that can be seen, those that overlap below each other; and how many rows they take."""
        kernels = self._waveform.kernels
        start, end = (kernels[edge].to_numpy() - self._start for edge in ("start_ns", "end_ns"))
        left, right = self._x(start), self._x(end)
        parts, rows = list[str](), 1
        names = {
            unit.id: _plain(short_name(unit.name or "?")) for unit in self._results.all() if unit.id in self._of_unit
        }
        free, drawn = [0] * _MOST_ROWS, [0.0] * _MOST_ROWS
        columns = (column.tolist() for column in (start, end, left, np.maximum(right, left + 0.8)))
        for since, until, x, edge, unit in zip(*columns, kernels["unit"].to_pylist(), strict=True):
            row = next((r for r in range(_MOST_ROWS) if free[r] <= (since + until) / 2), _MOST_ROWS - 1)
            free[row] = max(free[row], until)
            if edge <= drawn[row] + _SEEN:
                continue
            drawn[row], rows = edge, max(rows, row + 1)
            operator = self._of_unit[unit]
            said = "\n".join([names.get(unit, "?"), _plain(operator.label), quantity((until - since) / 1e9, "s")])
            box = f'x="{x:.2f}" y="{row * _ROW}" width="{edge - x:.2f}" height="{_ROW}" fill="{operator.colour}"'
            parts.append(f"<rect {box}><title>{said}</title></rect>")
        return "".join(parts), rows

    def _time_axis(self, y: float) -> float:
        ticks = _ticks(self._length / 1e6, max(4, self._width // 90))
        for ms, x in zip(ticks.tolist(), self._x(ticks * 1e6).tolist(), strict=True):
            self._rule(x, y, x, y + 4)
            anchor = "end" if x > self._width - 2 * _RIGHT else "middle"
            self._text(x, y + 17, f"{ms:g}{' ms' if ms == ticks[-1] else ''}", "soft", f'text-anchor="{anchor}"')
        return y + 17

    def _legend(self, y: float) -> float:
        columns = max(1, self._width // 370)
        each = (self._width - _LEFT - _RIGHT) / columns
        lines = -(-len(self._operators) // columns)
        for i, operator in enumerate(self._operators):
            x, at = _LEFT + i // lines * each, y + i % lines * 19
            self._parts.append(
                f'<rect x="{x:g}" y="{at - 10:g}" width="12" height="12" rx="2" fill="{operator.colour}"/>'
            )
            room = int((each - 36) / (_WIDE * 12)) - len(operator.cost)
            self._text(x + 19, at, f"{elided(operator.label, max(room, 10))}: {operator.cost}")
        return y + lines * 19

    def _x(self, since_ns: NDArray[np.int64] | Floats) -> Floats:
        """Pixels of times since the iteration began."""
        share = np.clip(since_ns / self._length, 0, 1)
        return np.asarray(_LEFT + share * (self._width - _LEFT - _RIGHT), np.float64)

    def _text(self, x: float, y: float, words: str, role: str = "fg", style: str = "") -> None:
        colour = f'class="{role}" fill="{_FG if role == "fg" else _SOFT}"'
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {colour} {style}>{_plain(words)}</text>')

    def _rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<path class="line" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{_LINE}"/>')


def _operators(results: Parts, waveform: Waveform) -> tuple[list[_Operator], dict[int, _Operator]]:
    """The entries of the legend, those that take most time first; and which one each kernel's unit belongs to.

    Calls of an operator on the same shapes share their kinds of kernels, so they are one.
    """
    units = {unit.id: unit for unit in results.all()}
    took = waveform.kernels["end_ns"].to_numpy() - waveform.kernels["start_ns"].to_numpy()
    groups: dict[tuple[Any, ...], dict[int, float]] = {}
    for unit, ns in zip(waveform.kernels["unit"].to_pylist(), took.tolist(), strict=True):
        row = units.get(unit)
        key = (row.op, row.shapes) if row and row.op else (unit,)
        seconds = groups.setdefault(key, {})
        seconds[unit] = seconds.get(unit, 0.0) + ns / 1e9
    ranked = sorted(groups.values(), key=lambda group: -sum(group.values()))
    energies = [_energy(units, group) for group in ranked]
    timed = all(energy.value is None for energy in energies)  # one quantity for all, so that they can be compared

    def cost(which: slice) -> str:
        if timed:
            return quantity(sum(sum(group.values()) for group in ranked[which]), "s")
        stated = [energy for energy in energies[which] if energy.value is not None]
        return figure(stated[0] if len(stated) == 1 else _added(stated), "J") if stated else "not resolved"

    colours, first = [*COLOURS, *[PALETTE[-1]] * len(ranked)], len(COLOURS)
    made = [
        _Operator(colour, _label([units.get(unit) for unit in group]), cost(slice(n, n + 1)))
        for n, (colour, group) in enumerate(zip(colours, ranked, strict=False))
    ]
    listed = made[:first]
    if len(ranked) > first:
        listed.append(_Operator(PALETTE[-1], f"{len(ranked) - first} others", cost(slice(first, None))))
    return listed, {unit: operator for operator, group in zip(made, ranked, strict=True) for unit in group}


def _energy(units: dict[int, Part], group: dict[int, float]) -> Estimate:
    """Energy in an iteration of operators with one power, whose errors go together."""
    owners = dict.fromkeys(_owner(units.get(unit), unit) for unit in group)
    parts = [units[owner].get("energy_total_j") if owner in units else ABSENT for owner in owners]
    return (
        ABSENT if any(part.value is None or part.low is None or part.high is None for part in parts) else _added(parts)
    )


def _added(energies: Sequence[Estimate]) -> Estimate:
    """The sum of energies whose errors go together, each end for itself."""
    return Estimate(*(sum(getattr(energy, edge) for energy in energies) for edge in ("value", "low", "high")))


def _owner(row: Part | None, kernel: int) -> int:
    """The operator that launched a kernel; the kernel itself where that isn't known."""
    return (row.parent or kernel) if row is not None and row.op else kernel


def _label(kernels: list[Part | None]) -> str:
    """An operator with the end of its modules' names; a kernel of no known operator by its own."""
    first = kernels[0]
    if first is None or not first.op:
        return short_name((first and first.name) or "?")
    modules = dict.fromkeys((row and row.module) or "" for row in kernels)
    paths = [[word for word in module.split(".") if word != "*"] for module in modules]
    tails = dict.fromkeys(".".join(path[-2:] if len(paths) == 1 else path[-1:]) for path in paths)
    words = [first.op.removeprefix("aten.").lstrip("_"), "/".join(tails)]
    return elided(", ".join(filter(None, words)), _LONG)


def _ticks(length: float, most: int) -> Floats:
    """Round numbers from 0 up to a length, ``most`` + 1 at most."""
    power = 10.0 ** np.floor(np.log10(length / most))
    step = next(k * power for k in (1, 2, 2.5, 5, 10, 20) if length / (k * power) <= most)
    return np.asarray(np.arange(int(length / step + 1e-9) + 1) * step)


def _steps(x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Corners of a line whose values hold between edges."""
    return list(zip(np.repeat(x, 2)[1:-1].tolist(), np.repeat(y, 2).tolist(), strict=True))


def _path(points: list[tuple[float, float]]) -> str:
    """A line through points, as SVG writes it."""
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)


def _plain(text: str) -> str:
    """Text from outside, as XML takes it."""
    return escape(printable(text)).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})
