"""Printing figures: a unit that fits, digits that the interval supports, "value ± half-width".

An interval that isn't symmetric is given by its ends: "1.3 (0.7 to 4.8)". Every space inside a figure is a no-break
space, except the one in front of the interval; renderers that don't wrap lines turn them into plain ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jouletrace.run import Estimate

NBSP = "\u00a0"
NONE = "–"
"""Printed where there is no figure."""

_PREFIXES: dict[str, tuple[tuple[float, str], ...]] = {
    "J": ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "g": ((1e3, "kg"), (1.0, "g"), (1e-3, "mg"), (1e-6, "µg")),
    "FLOP": ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s")),
    "B/s": ((1e12, "TB/s"), (1e9, "GB/s")),
    "J/FLOP": ((1e-9, "nJ/FLOP"), (1e-12, "pJ/FLOP")),
    "J/B": ((1e-9, "nJ/B"), (1e-12, "pJ/B")),
    "%": ((1e-2, "%"),),
    "pct": ((1.0, "%"),),
    "1": ((1.0, ""),),
}
_MOST_DIGITS = 6
"""Significant digits printed at most, however narrow the interval."""

_ROUNDING = 1e-9
"""Relative width of an interval that is none: what is left of sums in double precision, not what a sensor shows."""

_SYMMETRIC = 1.25
"""Longer side of an interval over its half-width up to which "±" doesn't misplace it."""

_PLAIN_DIGITS = 4
"""Significant digits of a figure without an interval."""


@dataclass(frozen=True)
class PrintedUnit:
    """A unit to print in.

    Attributes:
        factor: SI units in one of it.
        name: As printed; "" for a ratio.
    """

    factor: float
    name: str


PERCENT = PrintedUnit(0.01, "%")
KWH, HOURS = PrintedUnit(3.6e6, "kWh"), PrintedUnit(3600.0, "h")
"""Shares in print."""


def unit_for(values: Iterable[float | None], unit: str) -> PrintedUnit:
    """The prefix that suits most of the values: their median reads between 1 and 1000 in it."""
    sizes = sorted(abs(value) for value in values if value)
    prefixes = _PREFIXES.get(unit, ((1.0, unit),))
    if not sizes:
        return next(
            (PrintedUnit(factor, name) for factor, name in prefixes if factor == 1.0), PrintedUnit(*prefixes[0])
        )
    size = sizes[len(sizes) // 2]
    for factor, name in prefixes:
        if size >= factor:
            return PrintedUnit(factor, name)
    return PrintedUnit(*prefixes[-1])


def cell(estimate: Estimate, unit: PrintedUnit) -> str:
    """A figure without its unit, for a column that names it: "4.652 ± 0.021", "1.3 (0.7 to 4.8)", or "–"."""
    if estimate.value is None:
        return NONE
    value = estimate.value / unit.factor
    if estimate.low is None or estimate.high is None:
        return number(value)
    low, high = estimate.low / unit.factor, estimate.high / unit.factor
    if max(abs(high - value), abs(low - value)) <= _ROUNDING * abs(value):
        return number(value)  # exact, but for the rounding of computers
    half = (high - low) / 2
    decimals = _decimals(value, half)
    if max(high - value, value - low) <= _SYMMETRIC * half:
        return f"{fixed(value, decimals)} ±{NBSP}{_outward(half, decimals)}"
    text, first, last = fixed(value, decimals), _outward(low, decimals, -1), _outward(high, decimals)
    return f"{text if value else '0'} ({first}{NBSP}to{NBSP}{last})"


def split(text: str) -> tuple[str, str]:
    """Value and interval of what ``cell`` gives, where they are set apart: "1.3", "0.7 to 4.8"; "" without one."""
    value, _, interval = text.partition(" ")
    return value, interval.removeprefix("(").removesuffix(")")


def figure(estimate: Estimate, unit: str) -> str:
    """A figure with its unit, scaled to fit: "4.652 ± 0.021 J", or "–"."""
    scale = unit_for([estimate.value], unit)
    text = cell(estimate, scale)
    return text if text == NONE or not scale.name else f"{text}{NBSP}{scale.name}"


def quantity(value: float | None, unit: str) -> str:
    """A plain number with its unit, scaled to fit, to four digits at most: "6.712 ms", "20 ms"."""
    scale = unit_for([value], unit)
    if value is None:
        return NONE
    text = number(value / scale.factor)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text}{NBSP}{scale.name}".rstrip(NBSP)


def number(value: float, digits: int = _PLAIN_DIGITS) -> str:
    """A number to so many significant digits, in fixed notation; digits before the point are kept."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    text = fixed(value, decimals(value, digits))
    return text if text.strip("−0.") else "0"  # the rounding of computers, such as 1e-14, has no digits to show


def decimals(value: float, digits: int = _PLAIN_DIGITS) -> int:
    """Decimals that show a number to so many significant digits."""
    return min(max(0, digits - 1 - _exponent(value)), 12) if value else 0


def fixed(value: float, places: int) -> str:
    """A number with so many decimals and a true minus sign; never a negative zero."""
    text = f"{value:.{places}f}"
    if text.startswith("-"):
        text = "−" + text[1:] if text.strip("-0.") else text[1:]
    return text


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _decimals(value: float, half: float) -> int:
    """Decimals that show two digits of the half-width, or as many as ``_MOST_DIGITS`` allows."""
    digits = _MOST_DIGITS if half > 0 else _PLAIN_DIGITS
    wanted = digits - 1 - _exponent(value) if value else 12
    if half > 0:
        wanted = min(wanted, 1 - _exponent(half))
    return min(max(wanted, 0), 12)


def _outward(end: float, decimals: int, side: int = 1) -> str:
    """A half-width or upper end rounded up, a lower one (``side`` -1) down: no interval is printed narrower than it is.

    What is nothing is "0".
    """
    if end == 0:
        return "0"
    steps = side * math.ceil(side * end * 10**decimals - 1e-9 * abs(end) * 10**decimals)
    return fixed(steps / 10**decimals, decimals)
