"""A figure with its interval: the only form in which jouletrace states a measured quantity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Self

from jouletrace import higher

STATED = "stated by "
"""How the method of figures begins that another tool stated: an analysis keeps them."""


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """A value with a 95 % interval, or no value and the reason why; ``print`` shows it as "86.10 ± 0.15 J".

    Attributes:
        value: Best estimate in SI units of its metric; None where the sensor can't support one.
        low: Lower end of the 95 % interval; None where no interval can be given.
        high: Upper end of the 95 % interval.
        n: Number of independent windows, blocks or samples behind it.
        method: How it was obtained, in one word or short phrase ("windows", "timeline", ...).
        reason: A code for why ``value`` is None; None where there is a value.
        unit: SI unit for printing, as in ``run.metrics``; "" where it isn't known.
        flags: Codes of what a reader must know about it.
        budget: Standard uncertainties by cause, in the unit of ``value``; empty where they aren't stated.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    method: str = ""
    reason: str | None = None
    unit: str = field(default="", compare=False)
    flags: tuple[str, ...] = field(default=(), compare=False)
    budget: Mapping[str, float] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.reason is not None):
            raise ValueError("an Estimate has either a value or a reason")
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has two ends")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"interval upside down: {self.low} > {self.high}")

    @classmethod
    def null(cls, reason: str, method: str = "") -> Estimate:
        """An absent figure: ``reason`` is a short code such as ``no_power_sensor``."""
        return cls(value=None, method=method, reason=reason)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the contract's ``E`` object or a row of ``results``, which another program may have written.

        NaN and infinity become null with reason ``not_finite``, and an invalid interval is left out, so that reading
        never fails.
        """
        value, low, high = (data.get(key) for key in ("value", "low", "high"))
        method, n, codes = data.get("method") or "", data.get("n") or 0, data.get("flags")
        flags = tuple(codes.split(",")) if isinstance(codes, str) and codes else ()
        if value is None or not math.isfinite(value):
            reason = data.get("reason") or ("unknown" if value is None else "not_finite")
            return cls(None, n=n, method=method, reason=reason, flags=flags)
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high) and low <= high):
            low = high = None
        return cls(value, low, high, n, method, flags=flags, budget=_budget(data.get("budget")))

    def __str__(self) -> str:
        """The figure as reports print it, with its unit: "86.10 ± 0.15 J"; "– (reason)" without a value."""
        return higher.text_of(self)

    def __format__(self, spec: str) -> str:
        """The value and its half-width, each by a format of numbers, with the unit: ``f"{energy:.1f}"``."""
        if not spec or self.value is None:
            return str(self)
        numbers = [format(number, spec) for number in (self.value, self.half_width) if number is not None]
        return f"{' ± '.join(numbers)} {self.unit.strip('1')}".strip()

    def __float__(self) -> float:
        """The value.

        Raises:
            ValueError: If there is none.
        """
        if self.value is None:
            raise ValueError(f"there is no value: {self}")
        return float(self.value)

    def __repr__(self) -> str:
        return f"Estimate({self})"

    def _repr_html_(self) -> str:
        """The same for notebooks; the ends of the interval, n and the method appear on hovering."""
        ends = (
            "" if self.low is None else f"95 %: {self.low:.6g} to {self.high:.6g} {self.unit.strip('1')}".strip() + "; "
        )
        return f'<span title="{escape(f"{ends}n = {self.n}; {self.method}")}">{escape(str(self))}</span>'

    def in_unit(self, unit: str) -> Estimate:
        """The same with the unit to print it in, which scales nothing."""
        return replace(self, unit=unit)

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width in the unit of ``value``; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    def scaled(self, factor: float) -> Estimate:
        """The same figure in another unit, or per another count; ``unit`` is "". ``factor`` may be negative."""
        if self.value is None:
            return self
        low, high = self.low, self.high
        if low is not None and high is not None:
            low, high = sorted((low * factor, high * factor))
        budget = {cause: u * abs(factor) for cause, u in self.budget.items()}
        return Estimate(self.value * factor, low, high, self.n, self.method, flags=self.flags, budget=budget)

    def to_dict(self) -> dict[str, Any]:
        """The contract's ``E`` object: value, low, high, n, method, reason."""
        return {name: getattr(self, name) for name in ("value", "low", "high", "n", "method", "reason")}


def widened(estimate: Estimate, half: float) -> Estimate:
    """The same figure with one more independent source of uncertainty in its interval.

    Each end moves in quadrature, so that an interval that isn't symmetric about its value stays so. A figure without an
    interval counts as exact.

    Args:
        estimate: The figure.
        half: 95 % half-width of that source, in the figure's unit: 1.96 standard uncertainties, Student's
            quantile times one that is estimated itself, or a limit.

    Returns:
        The figure with the wider interval; a null one as it is.
    """
    if estimate.value is None:
        return estimate
    low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
    low = estimate.value - math.hypot(estimate.value - low, half)
    high = estimate.value + math.hypot(high - estimate.value, half)
    return replace(estimate, low=low, high=high)


def _budget(text: object) -> dict[str, float]:
    """A budget, as an object or its text; empty if another program wrote something else."""
    try:
        stated = json.loads(text) if isinstance(text, str) and text else text
    except (ValueError, RecursionError):
        return {}
    budget = stated if isinstance(stated, dict) else {}
    return {str(cause): float(u) for cause, u in budget.items() if isinstance(u, int | float) and 0 <= u < math.inf}
