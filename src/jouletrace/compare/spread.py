"""The spread between runs of one thing, with which every verdict is compared.

The spread between runs is never estimated from a single run, but from the runs of both sides.

**Whole model.** Runs of each side scatter around their mean. The relative spread is assumed to be the
same on both sides and is pooled, since three runs determine a spread poorly. If the two spreads differ
by more than chance allows (an F test at 5 %), each side keeps its own (Welch 1938).

**Parts.** A run's deviations of its parts are partly common to all (the GPU's clock and heat) and partly
specific to each part. The common component is the run's deviation in the sum of all parts; the rest is
specific, and its variances are moderated over all parts (``moderated``), but never below the part's own
estimate. The variance of a part's mean is the sum of both, with degrees of freedom by
Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from jouletrace.compare.contrast import METHOD, Contrast
from jouletrace.compare.pairs import LOAD, Key
from jouletrace.compare.sides import LOAD_METRICS
from jouletrace.run import Estimate
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.stats.interval import mean_estimate
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]

WITHOUT_GAIN = (
    *("latency_s", "iteration_time_s", "time_to_first_token_s", "time_s"),
    *(name for name in LOAD_METRICS if name.endswith("_s")),
)
"""Metrics that don't depend on a power sensor."""

CHANCE_DF = 9.0
"""Degrees of freedom of the chance within a run: of ten parts of a load."""

_F_TEST = 0.05
_MANY = 1e6


@dataclass(frozen=True)
class Figures:
    """A metric of a unit in each run of a side; NaN where it is missing.

    Attributes:
        value: Shape (runs,).
        within: Standard error that the run states, shape (runs,).
        reason: Why it is missing in every run.
        df: Degrees of freedom of the standard error of a single run.
        alone: True if the interval of a single run holds a stored scatter between runs.
    """

    value: Floats
    within: Floats
    reason: str = "not_measured"
    df: float = math.inf
    alone: bool = False

    @property
    def known(self) -> Floats:
        """Values of the runs that have the metric."""
        return self.value[np.isfinite(self.value)]

    def mean(self) -> Estimate:
        """Mean of the runs with its t-interval; for a single run its own interval; null where all lack the metric."""
        known = self.known
        if len(known) > 1:
            return mean_estimate(known, method=METHOD)
        if not len(known):
            return Estimate.null(self.reason, METHOD)
        mean, half = float(known[0]), student(0.975, self.df) * float(self.within[np.isfinite(self.value)][0])
        if not math.isfinite(half):
            return Estimate(mean, n=1, method=METHOD)
        return Estimate(mean, mean - half, mean + half, 1, METHOD)


def of_side(estimates: Sequence[Estimate | None], factor: float = 1.0, df: float = math.inf) -> Figures:
    """A metric from the figures of each run, times a factor that makes sides refer to the same work.

    Args:
        estimates: The figure of each run.
        factor: The factor.
        df: Most degrees of freedom that an interval may have: those of a stored scatter between runs in it.
    """
    alone = all(one is not None and STORED_SCATTER in one.flags for one in estimates)
    value, within = np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
    reason = "not_measured"
    for i, one in enumerate(estimates):
        if one is None or one.value is None:
            reason = (one.reason if one is not None else None) or reason
            continue
        value[i] = one.value
        if one.half_width is not None:
            df = min(df, one.n - 1 if one.n > 1 else math.inf)
            within[i] = one.half_width / student(0.975, df)
    return Figures(factor * value, factor * within, reason, df, alone)


@dataclass
class Entry:
    """A row to judge.

    Attributes:
        key: The unit, as in B.
        metric: Name in ``run.metrics``.
        a, b: Figures of both sides.
        flags: How the unit differs between the sides.
        contrast: Of the means of both sides; None where the spread is unknown.
    """

    key: Key
    metric: str
    a: Figures
    b: Figures
    flags: tuple[str, ...] = ()
    contrast: Contrast | None = None

    @property
    def measured(self) -> bool:
        """True if both sides have a figure."""
        return bool(len(self.a.known) and len(self.b.known))

    @property
    def stated(self) -> bool:
        """True if a side states a figure, or why it is missing."""
        return bool(len(self.a.known) or len(self.b.known)) or self.a.reason != "not_measured"


def solve(entries: Sequence[Entry], gain: float, watched: bool = False) -> None:
    """Compute each entry's contrast from the means of independent runs.

    Single runs are compared by their intervals where these hold the scatter between runs, or nothing but the two is
    meant: loads, and records of devices that were ``watched``; ``gain`` is as of ``Contrast``.
    """
    for level, metric in dict.fromkeys((entry.key.level, entry.metric) for entry in entries):
        own = [one for one in entries if (one.key.level, one.metric) == (level, metric) and one.measured]
        of_gain = 0.0 if metric in WITHOUT_GAIN else gain
        for one in own:
            one.contrast = _from_runs(one, of_gain)
            alone = level == "model" and (watched or (one.a.alone and one.b.alone))
            if one.contrast is None and (level == LOAD or alone):
                one.contrast = _within_runs(one, of_gain)
        whole = [one for one in own if _complete(one)] if level != "model" else []
        shared = _of_parts(whole) if len(whole) > 1 else []
        for one, (variance, df) in zip(whole, shared, strict=False):
            one.contrast = _contrast(one, variance, df, of_gain)


def _complete(row: Entry) -> bool:
    """True if every run has the metric, and its means can be divisors."""
    groups = (row.a.value, row.b.value)
    return all(bool(np.isfinite(group).all()) and float(group.mean()) > 0 for group in groups)


def _from_runs(row: Entry, gain: float) -> Contrast | None:
    """The contrast from the runs of this row alone; None where no side has two runs."""
    a, b = row.a.known, row.b.known
    groups = [group for group in (a, b) if len(group) > 1]
    if not groups:
        return None
    if len(groups) == 2 and _differ(a, b):
        var_a, var_b = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
        df = (var_a + var_b) ** 2 / (var_a**2 / (len(a) - 1) + var_b**2 / (len(b) - 1))
        return Contrast(float(a.mean()), float(b.mean()), var_a, var_b, df, gain)
    scale = max(abs(float(a.mean())), abs(float(b.mean()))) or 1.0
    squares = sum(float(((group - group.mean()) ** 2).sum()) / _size(group, scale) ** 2 for group in groups)
    df = float(sum(len(group) - 1 for group in groups))
    return _contrast(row, squares / df, df, gain)


def _within_runs(row: Entry, gain: float) -> Contrast | None:
    """The contrast of single runs, from the interval of each; None where a run doesn't state it.

    Of a load the intervals hold the chance within each run. The time of a record is exact.
    """
    (a,), (b,) = row.a.known, row.b.known
    errors = [float(side.within[np.isfinite(side.value)][0]) for side in (row.a, row.b)]
    if row.metric == "time_s":
        errors = [0.0 if math.isnan(error) else error for error in errors]
    if not all(math.isfinite(error) for error in errors):
        return None
    var_a, var_b = (error**2 for error in errors)
    if row.key.level == LOAD:
        return Contrast(float(a), float(b), var_a, var_b, CHANCE_DF, gain)
    of_df = var_a**2 / row.a.df + var_b**2 / row.b.df
    return Contrast(float(a), float(b), var_a, var_b, (var_a + var_b) ** 2 / of_df if of_df else math.inf, gain)


def _size(group: Floats, scale: float) -> float:
    """The reference of relative deviations: the mean, or ``scale`` where the mean may be zero."""
    mean = float(group.mean())
    return mean if mean > 0.1 * scale else scale


def _differ(a: Floats, b: Floats) -> bool:
    """True if relative spreads differ by more than chance allows."""
    if min(a.mean(), b.mean()) <= 0:
        return True
    one, other = (float(group.var(ddof=1) / group.mean() ** 2) for group in (a, b))
    if not one or not other:
        return bool(one or other)
    free = (len(a) - 1, len(b) - 1)
    tails = special.fdtr(*free, one / other), special.fdtrc(*free, one / other)
    return bool(2 * min(tails) < _F_TEST)


def _contrast(row: Entry, variance: float, df: float, gain: float) -> Contrast:
    """The contrast from the relative variance of a run."""
    a, b = row.a.known, row.b.known
    scale = max(abs(float(a.mean())), abs(float(b.mean())))
    var_a, var_b = (variance * _size(group, scale) ** 2 / len(group) for group in (a, b))
    return Contrast(float(a.mean()), float(b.mean()), var_a, var_b, df, gain)


def _of_parts(rows: Sequence[Entry]) -> list[tuple[float, float]]:
    """Relative variance between runs of each part, and its degrees of freedom; empty without repeated runs."""
    groups = [(row.a.value, row.b.value) for row in rows]
    df = float(sum(len(group) - 1 for group in groups[0]))
    if df <= 0:
        return []
    each = np.array([np.concatenate([group / group.mean() - 1 for group in own]) for own in groups])
    weight = np.array([np.mean([group.mean() for group in own]) for own in groups])
    run = weight / weight.sum() @ each
    left = ((each - run) ** 2).sum(axis=1) / df
    own, df_own = moderated(left, df)
    common = float(run @ run) / df
    found = []
    for variance in np.maximum(own, left).tolist():
        doubt = common**2 / df + variance**2 / max(df_own, 1.0)
        found.append((common + variance, (common + variance) ** 2 / doubt if doubt > 0 else df))
    return found


def moderated(variance: Floats, df: float) -> tuple[Floats, float]:
    """Variances of many parts with few runs each, shrunk towards a common value.

    A variance from three runs is poorly determined, and a variance pooled over all parts is wrong where parts differ.
    Empirical Bayes lies in between: variances are assumed to be draws from a scaled inverse chi-square distribution,
    whose scale and width are estimated from all parts (G. K. Smyth, "Linear models and empirical Bayes methods",
    Statistical Applications in Genetics and Molecular Biology 3, 2004).

    Args:
        variance: Estimated variance of each part, shape (parts,).
        df: Degrees of freedom of each.

    Returns:
        Moderated variances, shape (parts,), and their degrees of freedom.
    """
    total, known = df * len(variance), variance[variance > 0]
    pooled = np.full_like(variance, variance.mean())
    if len(known) < 3:
        return pooled, total
    # For a scaled chi-square, log(s²) has mean log(σ²) + ψ(d/2) - log(d/2) and variance ψ'(d/2).
    logs = np.log(known) - float(special.digamma(df / 2)) + math.log(df / 2)
    excess = float(logs.var(ddof=1)) - float(special.polygamma(1, df / 2))
    prior_df = 2 * _inverse_trigamma(excess) if excess > 1e-9 else math.inf
    if prior_df >= total:  # the prior can't be determined better than by all runs
        return pooled, total
    prior = math.exp(float(logs.mean()) + float(special.digamma(prior_df / 2)) - math.log(prior_df / 2))
    return (prior_df * prior + df * variance) / (prior_df + df), min(prior_df + df, total)


def _inverse_trigamma(value: float) -> float:
    """The x at which ψ'(x) = ``value``, by Newton's method on 1/ψ', which is nearly straight."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x = min(max(x + step, x / 4), _MANY)
        if abs(step) < 1e-8 * x:
            break
    return x
