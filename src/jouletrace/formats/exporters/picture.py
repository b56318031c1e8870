"""Drawing primitives of the SVG picture: a sheet, a time axis, and shapes thinned to the visible resolution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH, LEFT, RIGHT = 1200, 172, 24
"""Size of the sheet and its margins, in pixels."""

_GREY, _FAINT = "#555555", "#dddddd"
_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLUMN = 0.5
"""Pixels within which a line keeps its least and largest values, and a lane one box."""

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def scaled(length_ns: float) -> str:
    """A duration in the unit that reads best."""
    factor, unit = next(((f, u) for f, u in _UNITS if abs(length_ns) >= f), _UNITS[-1])
    return f"{length_ns / factor:.3g} {unit}"


def nice(most: float) -> float:
    """The next round number, for the end of a scale from 0."""
    if not most > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(most))
    return float(next((step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8) if step * power >= most), 10 * power))


def clipped(time: Ints, value: Floats, start_ns: int, end_ns: int) -> tuple[Ints, Floats]:
    """The part of a step line within a segment, with the values at its beginning and its end."""
    first = max(int(np.searchsorted(time, start_ns, "right")) - 1, 0)
    last = int(np.searchsorted(time, end_ns, "left"))
    if last <= first:
        return time[:0], value[:0]
    stamps = np.append(np.maximum(time[first:last], start_ns), end_ns)
    return stamps, np.append(value[first:last], value[last - 1])


@dataclass(frozen=True)
class Axis:
    """The time axis of the sheet.

    Attributes:
        start_ns, end_ns: Times at the left and right edge.
    """

    start_ns: int
    end_ns: int

    def xs(self, time: Ints) -> Floats:
        """Pixels of times, shape (n,)."""
        scale = (WIDTH - LEFT - RIGHT) / (self.end_ns - self.start_ns)
        return np.asarray(LEFT + np.clip(time - self.start_ns, 0, self.end_ns - self.start_ns) * scale, np.float64)

    def x(self, time_ns: int) -> float:
        """Pixel of a time."""
        return float(self.xs(np.array([time_ns]))[0])


class Sheet:
    """An SVG under construction; y grows downwards, in pixels."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def done(self, height: float) -> str:
        """The whole file."""
        size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        font = 'font-family="system-ui, sans-serif" font-size="13"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>\n<rect width="100%" height="100%" fill="#fff"/>'
        return "\n".join([head, *self._parts, "</svg>\n"])

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        bold: bool = False,
        grey: bool = False,
        end: bool = False,
    ) -> None:
        """Text, with special characters escaped; with ``end`` it ends at x."""
        style = f' font-size="{size}"' if size != 13 else ""
        style += ' font-weight="600"' if bold else ""
        style += ' text-anchor="end"' if end else ""
        plain = _UNPRINTABLE.sub("\ufffd", words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{_GREY if grey else "#111"}"{style}>{plain}</text>')

    def heading(self, y: float, words: str, high: float, low_value: float, high_value: float) -> None:
        """The title of a row, and the ends of its scale, with a line at each."""
        self.text(LEFT - 10, y + high / 2 + 5, words, end=True)
        for at, value in ((y, high_value), (y + high, low_value)):
            self._line(LEFT, at, WIDTH - RIGHT, at, _FAINT)
            self.text(LEFT - 10, at + 4, f"{value:g}", size=11, grey=True, end=True)

    def key(self, y: float, colour: str, words: str) -> None:
        """A line of the legend."""
        self._parts.append(f'<rect x="{LEFT}" y="{y - 10:.1f}" width="12" height="12" fill="{colour}"/>')
        self.text(LEFT + 20, y, words, size=12)

    def boxes(self, axis: Axis, start: Ints, end: Ints, fills: Sequence[str], y: float, high: float) -> None:
        """Spans as boxes of at least 0.6 pixels, without boxes that add less than half a pixel to the previous one."""
        left, right = axis.xs(start), axis.xs(end)
        right = np.maximum(right, left + 0.6)
        covered = -1.0
        for x, until, fill in zip(left.tolist(), right.tolist(), fills, strict=True):
            if until > covered + _COLUMN:
                width = f'width="{until - x:.2f}" height="{high:g}"'
                self._parts.append(f'<rect x="{x:.2f}" y="{y:g}" {width} fill="{fill}"/>')
                covered = until

    def steps(
        self,
        axis: Axis,
        time: Ints,
        value: Floats,
        top: float,
        y: float,
        high: float,
        colour: str,
        *,
        filled: bool = False,
    ) -> None:
        """A line of values, each of which holds until the next; optionally filled down to zero."""
        if len(time) < 2:
            return
        x, drawn = _thinned(axis.xs(time), np.clip(value / top, 0, 1))
        points = [(x[0], drawn[0])]
        for i in range(1, len(x)):
            points += [(x[i], drawn[i - 1]), (x[i], drawn[i])]
        path = " ".join(f"{at:.2f},{y + high * (1 - share):.2f}" for at, share in points)
        if filled:
            base = f"{x[-1]:.2f},{y + high:.2f} {x[0]:.2f},{y + high:.2f}"
            shape = f'<polygon points="{path} {base}" fill="{colour}" stroke="{colour}" stroke-width="0.4"/>'
            self._parts.append(shape)
        else:
            self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')

    def band(self, axis: Axis, time: Ints, low: Floats, high_value: Floats, top: float, y: float, high: float) -> None:
        """An interval around a step line."""
        x = np.repeat(axis.xs(time), 2)[1:-1]
        edges = [np.repeat(y + high * (1 - np.clip(edge / top, 0, 1)), 2)[:-2] for edge in (high_value, low)]
        there = [f"{a:.2f},{b:.2f}" for a, b in zip(x, edges[0], strict=True)]
        back = [f"{a:.2f},{b:.2f}" for a, b in zip(x[::-1], edges[1][::-1], strict=True)]
        self._parts.append(f'<polygon points="{" ".join(there + back)}" fill="#d55e00" fill-opacity="0.18"/>')

    def time_axis(self, axis: Axis, y: float, since: int | None = None) -> float:
        """Ticks with times since ``since`` (the left edge, if None) below y; returns their lower edge."""
        zero = axis.start_ns if since is None else since
        factor, unit = next(((f, u) for f, u in _UNITS if axis.end_ns - axis.start_ns >= f), _UNITS[-1])
        step = nice((axis.end_ns - axis.start_ns) / 10)
        first = int(np.ceil((axis.start_ns - zero) / step))
        last = int(np.floor((axis.end_ns - zero) / step))
        for k in range(first, last + 1):
            x = axis.x(zero + round(k * step))
            self._line(x, y, x, y + 4, _GREY)
            words = f"{k * step / factor:g}{f' {unit}' if k == last else ''}"
            self._parts.append(
                f'<text x="{x:.1f}" y="{y + 16:.1f}" fill="{_GREY}" font-size="11" text-anchor="middle">{words}</text>'
            )
        return y + 28

    def funnel(self, low: float, high: float, top: float, bottom: float, below: float) -> float:
        """Mark a segment of an axis and draw lines from it to the whole width below; returns their lower edge."""
        wide = max(high - low, 1.0)
        box = f'x="{low:.2f}" y="{top:g}" width="{wide:.2f}" height="{bottom - top:g}"'
        self._parts.append(f'<rect {box} fill="#000" fill-opacity="0.25"/>')
        points = f"{low:.2f},{bottom:g} {low + wide:.2f},{bottom:g} {WIDTH - RIGHT},{below:g} {LEFT},{below:g}"
        self._parts.append(f'<polygon points="{points}" fill="#000" fill-opacity="0.05"/>')
        return below

    def _line(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        self._parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>')


def _thinned(x: Floats, value: Floats) -> tuple[list[float], list[float]]:
    """The first, the least, the largest and the last of the steps in a column of half a pixel."""
    column = np.floor(x / _COLUMN).astype(np.int64)
    edges = np.flatnonzero(np.diff(column, prepend=column[0] - 1))
    keep: list[int] = []
    for first, last in zip(edges.tolist(), [*edges[1:].tolist(), len(x)], strict=True):
        part = value[first:last]
        keep += sorted({first, first + int(part.argmin()), first + int(part.argmax()), last - 1})
    return x[keep].tolist(), value[keep].tolist()
