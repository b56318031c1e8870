"""A power record made fit for integration: sorted, unique, finite, with every repair counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError
from jouletrace.sensor.rated import rated_w

HOLE_PERIODS = 2.5
"""Stamps farther apart than this many periods leave time that no reading speaks for."""

MOST_W = 20_000.0
"""More than any GPU draws."""

_TIMES_LARGEST, _TIMES_ENFORCED = 3.0, 10.0
"""No GPU draws so many times the largest limit that it takes; or its limit of the moment, which may have been
another one before."""

IMPLAUSIBLE = "implausible_readings"
"""Flag of figures near which readings were left out since no GPU draws so much."""

_STEP_RUN = 3
"""So many readings in order after a backward stamp mean that the clock stepped, not that one came late."""


@dataclass(frozen=True)
class Record:
    """Readings of one power channel, oldest first, each stamp once."""

    time_ns: NDArray[np.int64]  # stamps, int64, shape (n,), strictly increasing
    power_w: NDArray[np.float64]  # readings in watts, float64, shape (n,), finite
    period_s: float = float("nan")  # nominal or observed update period in seconds; NaN if unknown
    # Segments that no reading covers, int64, shape (h, 2): after, until, in ns
    holes: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    # Code of each problem of the raw readings, and how many readings it affects: "nan", "negative", "implausible",
    # "out_of_order", "duplicate", "conflicting_stamps", "skipped", "hole", "clock_stepped_back", "no_samples",
    # "one_sample"
    issues: dict[str, int] = field(default_factory=dict)
    # Stamps of readings that were left out since no GPU draws so much, int64, sorted
    implausible_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def flags(self) -> list[str]:
        """Codes that qualify every figure of the whole record."""
        return [IMPLAUSIBLE] if len(self.implausible_ns) else []

    def implausible(self, start_ns: ArrayLike, end_ns: ArrayLike) -> NDArray[np.bool_]:
        """Whether readings within each window [start, end] were left out as implausible; shape of the windows."""
        first = np.searchsorted(self.implausible_ns, np.asarray(start_ns, np.int64), side="left")
        return np.asarray(np.searchsorted(self.implausible_ns, np.asarray(end_ns, np.int64), side="right") > first)

    def seconds(self, time_ns: ArrayLike) -> NDArray[np.float64]:
        """Times in seconds since the first stamp: the origin goes first, so nothing is rounded."""
        origin = self.time_ns[0] if len(self) else 0
        return np.asarray((np.asarray(time_ns, np.int64) - origin) / 1e9, np.float64)

    def hole_seconds(self, start_ns: ArrayLike, end_ns: ArrayLike) -> NDArray[np.float64]:
        """Seconds of each window [start, end] that lie in holes; shape of the windows."""
        edges = self.holes.ravel()  # sorted and disjoint: open, close, open, close
        if not len(edges):
            return np.zeros(np.shape(start_ns))
        knots = self.seconds(edges)
        lived = np.cumsum(np.append(0.0, np.diff(knots) * (np.arange(len(knots) - 1) % 2 == 0)))
        end, start = (np.interp(self.seconds(x), knots, lived) for x in (end_ns, start_ns))
        return np.asarray(np.maximum(end - start, 0.0))


def most_power_w(largest_limit_w: float | None, enforced_limit_w: float | None, name: str = "") -> float:
    """The most that a reading of a GPU can be, in watts: glitches of a sensor or its driver are far beyond.

    Args:
        largest_limit_w: The largest power limit that the GPU takes; None if unknown.
        enforced_limit_w: The one that is in force; None if unknown.
        name: Of the GPU, by which its power is rated where neither is known.
    """
    if largest_limit_w:
        return min(MOST_W, _TIMES_LARGEST * max(largest_limit_w, enforced_limit_w or 0.0))
    one_w = enforced_limit_w or rated_w(name)
    return min(MOST_W, _TIMES_ENFORCED * one_w) if one_w else MOST_W


def clean(
    time_ns: ArrayLike,
    value: ArrayLike,
    period_s: float | None = None,
    *,
    hole_periods: float = HOLE_PERIODS,
    most_w: float = MOST_W,
) -> Record:
    """Sort and check raw readings; what is repaired, dropped or missing is counted in ``issues``.

    Args:
        time_ns: Stamps in ns since the Unix epoch, in order of arrival, shape (n,).
        value: Readings in watts, shape (n,).
        period_s: Update period of the sensor; the median spacing if None.
        hole_periods: Stamps farther apart than this many periods are a hole.
        most_w: The most that the GPU can draw, see ``most_power_w``.

    Returns:
        The record. Readings that are NaN, infinite, negative or beyond ``most_w`` are dropped, not replaced. Where a
        clock stepped back, the time lived through twice is dropped and becomes a hole.

    Raises:
        BadInputError: If the arrays differ in shape or aren't one-dimensional.
    """
    time, power = np.asarray(time_ns), np.asarray(value, np.float64)
    if time.shape != power.shape or time.ndim != 1:
        raise BadInputError(f"power record: {time.shape} stamps do not go with {power.shape} readings")
    if time.size and time.dtype.kind not in "iu":
        raise BadInputError(f"power record: stamps must be integer nanoseconds, not {time.dtype}")
    time = time.astype(np.int64)
    issues: dict[str, int] = {}

    finite = np.isfinite(power)
    _count(issues, "nan", int((~finite).sum()))
    positive = power >= 0
    _count(issues, "negative", int((finite & ~positive).sum()))
    implausible = finite & (power > most_w)
    _count(issues, "implausible", int(implausible.sum()))
    left_out = np.sort(time[implausible])
    good = finite & positive & ~implausible
    time, power = time[good], power[good]

    time, power, twice = _drop_time_lived_twice(time, power, issues)
    time, power = _sorted_unique(time, power, issues)
    if period_s is None:
        period_s = float(np.median(np.diff(time))) / 1e9 if len(time) > 1 else float("nan")
    holes = _holes(time, period_s, hole_periods, twice, issues)
    if len(time) < 2:
        issues["one_sample" if len(time) else "no_samples"] = 1
    return Record(time, power, period_s, holes, issues, left_out)


def _count(issues: dict[str, int], code: str, n: int) -> None:
    if n:
        issues[code] = issues.get(code, 0) + n


def _drop_time_lived_twice(
    time: NDArray[np.int64], power: NDArray[np.float64], issues: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[tuple[int, int]]]:
    """Find backward steps of the clock, and drop readings whose stamps are ambiguous by them."""
    twice: list[tuple[int, int]] = []
    for i in np.flatnonzero(np.diff(time) < 0) + 1:
        run, before = time[i : i + _STEP_RUN], int(time[:i].max())
        # A reading delivered late is followed by newer ones; after a step of the clock the
        # following readings go on, in order, from the earlier time.
        if len(run) == _STEP_RUN and np.all(np.diff(run) >= 0) and run[1] < before:
            twice.append((int(time[i]), before))
    keep = np.ones(len(time), bool)
    for since, until in twice:
        keep &= (time < since) | (time > until)
    _count(issues, "clock_stepped_back", len(twice))
    return time[keep], power[keep], twice


def _sorted_unique(
    time: NDArray[np.int64], power: NDArray[np.float64], issues: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Stamps in order and each once; of readings that share a stamp the last to arrive stays."""
    _count(issues, "out_of_order", int((np.diff(time) < 0).sum()))
    order = np.argsort(time, kind="stable")
    time, power = time[order], power[order]
    same = np.diff(time) == 0
    equal = np.diff(power) == 0
    _count(issues, "duplicate", int((same & equal).sum()))
    _count(issues, "conflicting_stamps", int((same & ~equal).sum()))
    keep = np.append(~same, True)[: len(time)]
    return time[keep], power[keep]


def _holes(
    time: NDArray[np.int64],
    period_s: float,
    hole_periods: float,
    twice: Sequence[tuple[int, int]],
    issues: dict[str, int],
) -> NDArray[np.int64]:
    """Segments without readings, and those that a clock step repeats, sorted and merged."""
    spacing = np.diff(time) / 1e9
    wide = np.flatnonzero(spacing > hole_periods * period_s)
    _count(issues, "hole", len(wide))
    _count(issues, "skipped", int((spacing > 1.5 * period_s).sum()) - len(wide))
    found = [(int(time[i]), int(time[i + 1])) for i in wide] + list(twice)
    merged: list[list[int]] = []
    for since, until in sorted(found):
        if merged and since <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], until)
        else:
            merged.append([since, until])
    return np.array(merged, np.int64).reshape(-1, 2)
