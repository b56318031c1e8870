"""The scatter between runs of one thing, with which every verdict is compared.

The scatter between runs is never estimated from a single run, but from the runs of both sides.

**Whole model.** Runs of each side scatter around their mean. The relative spread is assumed to be the
same on both sides and is pooled, since three runs determine a spread poorly. If the two spreads differ
by more than chance allows (an F test at 5 %), each side keeps its own (Welch 1938).

**Parts.** A run's deviations of its parts are partly common to all (the GPU's clock and heat) and partly
specific to each part. The common component is the run's deviation in the sum of all parts; the rest is
specific, and its variances are moderated over all parts (``moderated``), but never below the part's own
estimate, which then counts with the freedom of that part alone. The variance of a part's mean is the sum of both, with
degrees of freedom by Satterthwaite, but no more than the better known of the two has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.comparing.pairs import LOAD, ONE_RUN, ComparedRow
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.stats.contrast import Contrast
from jouletrace.stats.interval import satterthwaite
from jouletrace.stats.several import moderated, spreads_differ

MOST_SCATTER = 0.01
"""Standard deviation between runs up to which single runs with a stored scatter aren't said to differ: on real GPUs
runs scatter by 0.1 to 1 %, and a stored scatter is that of another workload."""

WAITS = 0.5
"""Share of the longer of two waits of two runs of one program, before its first kernel or between kernels, by which
they differed at most (docs/results/compare-h100.md)."""

SINGLE_RUNS = {"latency_s": 0.5, "iteration_time_s": 0.4, "time_s": 0.4, "power_w": 0.25, "energy_total_j": 0.25}
"""By metric, the largest relative difference of two runs of one thing that is recorded, rounded up
(docs/results/compare-h100.md): single runs without a scatter differ for certain where they differ by more."""

CHANCE_DF = 9.0
"""Degrees of freedom of the chance within a run: of ten parts of a load."""

_F_TEST = 0.05


def solve(rows: Sequence[ComparedRow], gain: float, *, recorded: bool = False) -> list[ComparedRow]:
    """The rows with contrasts from the means of independent runs.

    Single runs are compared by their intervals where these hold the scatter between runs, and loads by the chance
    within each; ``gain`` is as of ``Contrast``. Others are compared with ``SINGLE_RUNS`` where that is ``recorded`` of
    their kind, as are those against several whose scatter is known worse.
    """
    compared = [_by_itself(row, gain, recorded) if row.measured else row for row in rows]
    parts = [i for i, row in enumerate(rows) if row.level != "model" and row.measured and _complete(row)]
    for level, metric in dict.fromkeys((rows[i].level, rows[i].metric) for i in parts):
        alike = [i for i in parts if (rows[i].level, rows[i].metric) == (level, metric)]
        shared = _of_parts([rows[i] for i in alike]) if len(alike) > 1 else []
        for i, (variance, df) in zip(alike, shared, strict=False):
            compared[i] = replace(rows[i], contrast=_pooled(rows[i], variance, df, gain))
    return compared


def _by_itself(row: ComparedRow, gain: float, recorded: bool) -> ComparedRow:
    """A row with the contrast from its own figures, if they determine one."""
    contrast = _from_runs(row, gain)
    stored = row.level == "model" and all(group.stored for group in row.groups)
    if contrast is None and (row.level == LOAD or stored):
        contrast = _within_runs(row, gain, MOST_SCATTER if stored else 0.0)
        if stored and contrast is not None:
            return replace(row, contrast=contrast, flags=(*row.flags, STORED_SCATTER))
    largest = SINGLE_RUNS.get(row.metric) if recorded and row.level == "model" else None
    if largest and any(len(group.figures) == 1 for group in row.groups):
        single = [group.error() if len(group.figures) == 1 else (0.0, math.inf) for group in row.groups]
        variances = [error**2 if math.isfinite(error) else 0.0 for error, _ in single]
        free = satterthwaite(variances, [df if math.isfinite(error) else math.inf for error, df in single])
        by_figures = _contrast(row, variances, free, gain)
        by_figures = replace(by_figures, gain=by_figures.gain + largest)
        # what few runs show of their scatter may say less than all runs on record
        if contrast is None or (by_figures.detectable(0.05) or 0.0) < (contrast.detectable(0.05) or 0.0):
            return replace(row, contrast=by_figures, flags=(*row.flags, ONE_RUN))
    return replace(row, contrast=contrast)


def _complete(row: ComparedRow) -> bool:
    """True if every run has the metric, and its means can be divisors."""
    return all(bool(np.isfinite(group.value).all()) and float(group.value.mean()) > 0 for group in row.groups)


def _from_runs(row: ComparedRow, gain: float) -> Contrast | None:
    """The contrast from the runs of this row alone; None where no side has two runs."""
    a, b = (group.numbers for group in row.groups)
    groups = [group for group in (a, b) if len(group) > 1]
    if not groups:
        return None
    if len(groups) == 2 and spreads_differ(a, b, _F_TEST):
        variances = [float(group.var(ddof=1)) / len(group) for group in groups]
        return _contrast(row, variances, satterthwaite(variances, [len(group) - 1 for group in groups]), gain)
    scale = max(abs(float(a.mean())), abs(float(b.mean()))) or 1.0
    squares = sum(float(((group - group.mean()) ** 2).sum()) / _size(group, scale) ** 2 for group in groups)
    df = float(sum(len(group) - 1 for group in groups))
    return _pooled(row, squares / df, df, gain)


def _within_runs(row: ComparedRow, gain: float, scatter: float) -> Contrast | None:
    """The contrast of single runs, from the interval of each; None where a run doesn't state it.

    Runs may ``scatter`` by so much besides, relative, as a standard deviation. Of a load the intervals hold the chance
    within each run.
    """
    errors, dfs = zip(*(group.error() for group in row.groups), strict=True)
    if not all(math.isfinite(error) for error in errors):
        return None
    variances = [error**2 for error in errors]
    df = CHANCE_DF if row.level == LOAD else satterthwaite(variances, dfs)
    if scatter:
        more = [(scatter * float(group.numbers.mean())) ** 2 for group in row.groups]
        df = satterthwaite([*variances, *more], [*dfs, *(math.inf for _ in more)])
        variances = [sum(pair) for pair in zip(variances, more, strict=True)]
    return _contrast(row, variances, df, gain)


def _contrast(row: ComparedRow, variances: Sequence[float], df: float, gain: float) -> Contrast:
    """The contrast from variances of both means; the gain of power sensors has no part in metrics in seconds."""
    a, b = (float(group.numbers.mean()) for group in row.groups)
    return Contrast(a, b, variances[0], variances[1], df, 0.0 if row.metric.endswith("_s") else gain)


def _pooled(row: ComparedRow, variance: float, df: float, gain: float) -> Contrast:
    """The contrast from the relative variance of a run."""
    groups = [group.numbers for group in row.groups]
    scale = max(abs(float(group.mean())) for group in groups)
    return _contrast(row, [variance * _size(group, scale) ** 2 / len(group) for group in groups], df, gain)


def _size(group: Floats, scale: float) -> float:
    """The reference of relative deviations: the mean, or ``scale`` where the mean may be zero."""
    mean = float(group.mean())
    return mean if mean > 0.1 * scale else scale


def _of_parts(rows: Sequence[ComparedRow]) -> list[tuple[float, float]]:
    """Relative variance between runs of each part, and its degrees of freedom; empty without repeated runs."""
    groups = [[group.value for group in row.groups] for row in rows]
    df = float(sum(len(group) - 1 for group in groups[0]))
    if df <= 0:
        return []
    each = np.array([np.concatenate([group / group.mean() - 1 for group in samples]) for samples in groups])
    weight = np.array([np.mean([group.mean() for group in samples]) for samples in groups])
    run = weight / weight.sum() @ each
    left = ((each - run) ** 2).sum(axis=1) / df
    pooled, df_own = moderated(left, df)
    common = float(run @ run) / df
    contrasts = []
    for of_all, alone in zip(pooled.tolist(), left.tolist(), strict=True):
        # what a part shows by itself is known as poorly as its own runs show it
        variance, df_used = (alone, df) if alone > of_all else (of_all, max(df_own, 1.0))
        free = satterthwaite([common, variance], [df, df_used])
        contrasts.append((common + variance, min(free, max(df, df_used))))  # a sum of few is too sure in the far tails
    return contrasts
