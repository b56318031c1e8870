"""The readings of one power channel of a device, at their times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Indices, Ints, Mask

IMPLAUSIBLE = "implausible_readings"
"""Flag of figures near which readings were left out since no GPU draws so much."""

ALIASED = "aliased_with_sensor"
"""Flag of loads of which readings, or the samples behind them, meet few phases."""


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Readings:
    """Readings of one channel, oldest first, each time once.

    Attributes:
        time_ns: Their stamps, since the Unix epoch, int64, shape (n,), strictly increasing.
        value: In watts, float64, shape (n,), finite.
        period_s: Nominal or observed update period; NaN if unknown.
        holes: Segments that no reading covers, int64, shape (h, 2): after, until, in ns.
        issues: Code of each problem of the raw readings, and how many of them it affects: "nan", "negative",
            "implausible", "out_of_order", "duplicate", "conflicting_stamps", "skipped", "hole", "clock_stepped_back",
            "no_samples", "one_sample".
        implausible_ns: Stamps of readings that were left out since no GPU draws so much, int64, sorted.
        origin_ns: Zero of seconds.
        true_s: When they were taken, as far as the stamps show it, in seconds since ``origin_ns``; None where these do.
        late_s: Standard deviations of these times, where stamps came late, shape (n,); None where none did.
        rest_w: Prior of the power with nothing running, and its standard deviation; GPUs with a context draw 110 to
            140 W.
    """

    time_ns: Ints
    value: Floats
    period_s: float = float("nan")
    holes: Ints = field(default_factory=lambda: _none().reshape(0, 2))
    issues: dict[str, int] = field(default_factory=dict)
    implausible_ns: Ints = field(default_factory=_none)
    origin_ns: int = 0
    true_s: Floats | None = None
    late_s: Floats | None = None
    rest_w: tuple[float, float] = (130.0, 100.0)

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def flags(self) -> list[str]:
        """Codes that qualify every figure of all readings."""
        return [IMPLAUSIBLE] if len(self.implausible_ns) else []

    @cached_property
    def time_s(self) -> Floats:
        """When they were taken, in seconds since ``origin_ns``, shape (n,)."""
        return self.seconds(self.time_ns) if self.true_s is None else self.true_s

    @property
    def unsure_s(self) -> Floats:
        """Standard deviations of ``time_s``, shape (n,)."""
        return np.zeros(len(self)) if self.late_s is None else self.late_s

    def seconds(self, time_ns: ArrayLike) -> Floats:
        """Times in seconds since ``origin_ns``, which goes first, so that nothing is rounded."""
        return np.asarray((np.asarray(time_ns, np.int64) - self.origin_ns) / 1e9, np.float64)

    def take(self, rows: Mask | Indices) -> Readings:
        """Some of them, by a mask or by their places, with all that is known of the record."""
        true_s = None if self.true_s is None else self.true_s[rows]
        late_s = None if self.late_s is None else self.late_s[rows]
        return replace(self, time_ns=self.time_ns[rows], value=self.value[rows], true_s=true_s, late_s=late_s)

    def between(self, start_s: float, end_s: float) -> Mask:
        """Mask of the readings within a span of seconds since ``origin_ns``, shape (n,)."""
        return (self.time_s >= start_s) & (self.time_s < end_s)

    def implausible(self, start_ns: ArrayLike, end_ns: ArrayLike) -> Mask:
        """Mask of the windows [start, end] in which readings were left out as implausible; shape of the windows."""
        first = np.searchsorted(self.implausible_ns, np.asarray(start_ns, np.int64), side="left")
        return np.asarray(np.searchsorted(self.implausible_ns, np.asarray(end_ns, np.int64), side="right") > first)

    def hole_seconds(self, start_ns: ArrayLike, end_ns: ArrayLike) -> Floats:
        """Seconds of each window [start, end] that lie in holes; shape of the windows."""
        edges = self.holes.ravel()  # sorted and disjoint: open, close, open, close
        if not len(edges):
            return np.zeros(np.shape(start_ns))
        knots = self.seconds(edges)
        lived = np.cumsum(np.append(0.0, np.diff(knots) * (np.arange(len(knots) - 1) % 2 == 0)))
        end, start = (np.interp(self.seconds(x), knots, lived) for x in (end_ns, start_ns))
        return np.asarray(np.maximum(end - start, 0.0))
