"""From figures of both sides to rows with verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.compare.contrast import METHOD, Contrast, holm
from jouletrace.compare.match import Key
from jouletrace.compare.options import CompareOptions
from jouletrace.compare.spread import Values, contrasts
from jouletrace.report.comparison.data import BETTER, DIFFERENT, HIGHER, INCONCLUSIVE, LOWER, SAME, WORSE, Row
from jouletrace.run import Estimate
from jouletrace.stats.interval import mean_estimate
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]

WITHOUT_GAIN = ("latency_s", "iteration_time_s", "time_to_first_token_s", "time_s")
"""Metrics that no power sensor has a part in."""

_NEUTRAL = ("power_w",)
"""Metrics of which less isn't better by itself."""


@dataclass(frozen=True)
class Figures:
    """A metric of a unit in each run of a side; NaN where there is none.

    Attributes:
        value: Shape (runs,).
        within: Standard error that the run states, shape (runs,).
        reason: Why there is none in any run.
    """

    value: Floats
    within: Floats
    reason: str = "not_measured"

    def scaled(self, factor: float) -> Figures:
        """The same per another count."""
        return Figures(self.value * factor, self.within * factor, self.reason)

    @property
    def known(self) -> Floats:
        """Values of the runs that have one."""
        return self.value[np.isfinite(self.value)]

    def mean(self) -> Estimate:
        """Mean of the runs with its t-interval; of a single run what it states itself; null where none has one."""
        known = self.known
        if len(known) > 1:
            return mean_estimate(known, method=METHOD)
        if not len(known):
            return Estimate.null(self.reason, METHOD)
        mean, half = float(known[0]), 1.96 * float(self.within[np.isfinite(self.value)][0])
        if not math.isfinite(half):
            return Estimate(mean, n=1, method=METHOD)
        return Estimate(mean, mean - half, mean + half, 1, METHOD)


def of_side(estimates: Sequence[Estimate | None]) -> Figures:
    """A metric from the figures of each run."""
    value, within = np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
    reason = "not_measured"
    for i, one in enumerate(estimates):
        if one is None or one.value is None:
            reason = (one.reason if one is not None else None) or reason
            continue
        value[i] = one.value
        if one.half_width is not None:
            within[i] = one.half_width / (student(0.975, one.n - 1) if one.n > 1 else 1.96)
    return Figures(value, within, reason)


@dataclass(frozen=True)
class Entry:
    """A row to be judged.

    Attributes:
        key: The unit, as in B.
        metric: Name in ``run.metrics``.
        a, b, past: Figures of both sides and of the history.
        flags: How the unit differs between the sides.
    """

    key: Key
    metric: str
    a: Figures
    b: Figures
    past: Figures
    flags: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether both sides have a figure."""
        return bool(len(self.a.known) and len(self.b.known))

    @property
    def stated(self) -> bool:
        """Whether some side says something of it: a figure, or why there is none."""
        return bool(len(self.a.known) or len(self.b.known)) or self.a.reason != "not_measured"


def solve(entries: Sequence[Entry], options: CompareOptions, gain: float) -> list[Contrast | None]:
    """What each entry is to be judged by: the means of independent runs; None where no spread is known."""
    found: list[Contrast | None] = [None] * len(entries)
    for level, metric in dict.fromkeys((entry.key.level, entry.metric) for entry in entries):
        own = [i for i, e in enumerate(entries) if (e.key.level, e.metric) == (level, metric) and e.measured]
        values = [
            Values(e.a.value, e.b.value, e.past.value, e.a.within, e.b.within) for e in map(entries.__getitem__, own)
        ]
        of_gain = 0.0 if metric in WITHOUT_GAIN else gain
        solved = contrasts(values, options.between, of_gain, parts=level != "model")
        for i, contrast in zip(own, solved, strict=True):
            found[i] = contrast
    return found


def judge(
    entries: Sequence[Entry], found: Sequence[Contrast | None], options: CompareOptions, unknown: str = "one_run"
) -> list[Row]:
    """Rows with verdicts, in the order of the entries.

    Half of the permitted error is for the model's figures, half is shared evenly by the levels of parts;
    within each, rows are corrected for by Holm.

    Args:
        entries: What to judge.
        found: By what.
        options: Margin and permitted error.
        unknown: Reason of those for which nothing was found.
    """
    rows: list[Row | None] = [None] * len(entries)
    parts = {entry.key.level for entry in entries} - {"model"}
    for level in {entry.key.level for entry in entries}:
        alpha = options.alpha if not parts else options.alpha / 2
        alpha = alpha if level == "model" else alpha / len(parts)
        own = [i for i, entry in enumerate(entries) if entry.key.level == level]
        tested = [(i, contrast.p()) for i in own if (contrast := found[i]) is not None]
        verdicts = dict(zip((i for i, _ in tested), holm([p for _, p in tested], alpha), strict=True))
        for i in own:
            rejected, at = verdicts.get(i, (False, alpha))
            rows[i] = _row(entries[i], found[i], rejected, at, options, unknown)
    return [row for row in rows if row is not None]


def _row(
    entry: Entry, contrast: Contrast | None, rejected: bool, alpha: float, options: CompareOptions, unknown: str
) -> Row:
    a, b = entry.a.mean(), entry.b.mean()
    flags = list(entry.flags)
    reason: str | None
    if contrast is None:
        reason = unknown if entry.measured else a.reason or b.reason or "not_measured"
        difference, change = _without_interval(a, b, reason)
        verdict, p, detectable = INCONCLUSIVE, None, None
    else:
        difference, change, p = contrast.difference(alpha), contrast.change(alpha), contrast.p()
        detectable = contrast.detectable(alpha)
        verdict, reason = _verdict(entry.metric, contrast, change, rejected, options.margin)
        if verdict in DIFFERENT and _within(change, options.margin):
            flags.append("below_margin")
    key = entry.key
    where = key.module if key.module != key.name else ""
    name = key.name or key.op
    return Row(
        level=key.level,
        name=name,
        where=where,
        shapes=key.shapes,
        metric=entry.metric,
        a=a,
        b=b,
        difference=difference,
        change=change,
        confidence=1 - alpha,
        p=p,
        verdict=verdict,
        reason=reason,
        detectable=detectable,
        flags=tuple(flags),
    )


def _verdict(
    metric: str, contrast: Contrast, change: Estimate, rejected: bool, margin: float
) -> tuple[str, str | None]:
    if rejected:
        told = change.low is None or change.high is None or not change.low <= 0 <= change.high
        if contrast.gain and not told:
            return INCONCLUSIVE, "sensor_gain"
        less, more = (LOWER, HIGHER) if metric in _NEUTRAL else (BETTER, WORSE)
        return (more if contrast.b > contrast.a else less), None
    if _within(change, margin):
        return SAME, None
    wide_by_gain = contrast.gain >= margin
    return INCONCLUSIVE, "sensor_gain" if wide_by_gain else "spread_between_runs"


def _within(change: Estimate, margin: float) -> bool:
    return change.low is not None and change.high is not None and -margin <= change.low and change.high <= margin


def _without_interval(a: Estimate, b: Estimate, reason: str) -> tuple[Estimate, Estimate]:
    """The plain difference, where there are figures."""
    if a.value is None or b.value is None:
        return Estimate.null(reason, METHOD), Estimate.null(reason, METHOD)
    difference = Estimate(b.value - a.value, n=1, method=METHOD)
    if a.value <= 0:
        return difference, Estimate.null("denominator_near_zero", METHOD)
    return difference, Estimate(b.value / a.value - 1, n=1, method=METHOD)
