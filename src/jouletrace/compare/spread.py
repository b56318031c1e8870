"""How far runs of one thing differ: what every verdict is held against.

Spread between runs is never taken from within one run. It comes from the runs of both sides, of a
stored history, or is stated.

**Whole model.** Runs of each side scatter around their mean; relative spread is taken to be the
same on both sides and pooled, since three runs tell little of a spread. If the two spreads differ
by more than chance allows (an F test at 5 %), each side keeps its own (Welch 1938).

**Parts.** Of what a run does to its parts some is common to all (the board's clock and heat), some is
each part's own. The common part is the run's deviation in the sum of all parts; what remains of each
part is its own, and those variances are moderated over all parts (``experiments.moderate``,
Smyth 2004), though a part's own never counts for less. The variance of a part's mean is the sum of
both, its degrees of freedom by Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from jouletrace.compare.contrast import Contrast
from jouletrace.compare.moderate import moderate

Floats = NDArray[np.float64]

_F_TEST = 0.05


@dataclass(frozen=True)
class Values:
    """A metric of a unit in every run; NaN where a run doesn't have it.

    Attributes:
        a, b: Of the runs to compare, shapes (runs,).
        past: Of the stored history.
        within_a, within_b: Standard errors that the runs state themselves, shapes as ``a`` and ``b``.
    """

    a: Floats
    b: Floats
    past: Floats
    within_a: Floats
    within_b: Floats

    @property
    def groups(self) -> list[Floats]:
        """Runs of one thing each, NaN left out."""
        return [group[np.isfinite(group)] for group in (self.a, self.b, self.past)]


def contrasts(rows: Sequence[Values], between: float | None, gain: float, *, parts: bool) -> list[Contrast | None]:
    """A contrast for each row; None where nothing is known of the spread between runs.

    Args:
        rows: One metric of the units of one level.
        between: Relative standard deviation between runs, where it is stated; then nothing less is believed.
        gain: See ``Contrast``.
        parts: Whether the rows are parts of one whole.
    """
    complete = [i for i, row in enumerate(rows) if _complete(row)]
    shared = _moderated([rows[i] for i in complete]) if parts and len(complete) > 1 else None
    relative = dict(zip(complete, shared, strict=True)) if shared is not None else {}
    found: list[Contrast | None] = []
    for i, row in enumerate(rows):
        seen = _from_common(row, *relative[i], gain) if i in relative else _from_runs(row, gain)
        stated = _stated(row, between, gain) if between is not None else None
        both = [contrast for contrast in (seen, stated) if contrast is not None]
        found.append(max(both, key=lambda one: one.var_a + one.var_b, default=None))
    return found


def _complete(row: Values) -> bool:
    """Whether every run has it, and its means can be divided by."""
    groups = [group for group in (row.a, row.b, row.past) if len(group)]
    return all(bool(np.isfinite(group).all()) and float(group.mean()) > 0 for group in groups)


def _from_runs(row: Values, gain: float) -> Contrast | None:
    a, b, past = row.groups
    if not len(a) or not len(b):
        return None
    one, other = float(a.mean()), float(b.mean())
    groups = [group for group in (a, b, past) if len(group) > 1]
    if not groups:
        return None
    if len(a) > 1 and len(b) > 1 and not len(past) and _differ(a, b):
        var_a, var_b = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
        df = (var_a + var_b) ** 2 / (var_a**2 / (len(a) - 1) + var_b**2 / (len(b) - 1))
        return Contrast(one, other, var_a, var_b, df, gain)
    scale = max(abs(one), abs(other))
    squares = sum(float((_relative(group, scale) ** 2).sum()) for group in groups)
    df = float(sum(len(group) - 1 for group in groups))
    return _contrast(row, squares / df, df, gain)


def _relative(group: Floats, scale: float) -> Floats:
    """Deviations from the mean over it, or over ``scale`` where it may be nothing."""
    mean = float(group.mean())
    return np.asarray((group - mean) / (mean if mean > 0.1 * scale else scale or 1.0), np.float64)


def _differ(a: Floats, b: Floats) -> bool:
    """Whether relative spreads differ by more than chance allows."""
    if min(a.mean(), b.mean()) <= 0:
        return True
    one, other = (float(group.var(ddof=1) / group.mean() ** 2) for group in (a, b))
    if not one or not other:
        return bool(one or other)
    free = (len(a) - 1, len(b) - 1)
    tails = special.fdtr(*free, one / other), special.fdtrc(*free, one / other)
    return bool(2 * min(tails) < _F_TEST)


def _contrast(row: Values, variance: float, df: float, gain: float) -> Contrast:
    """From the relative variance of a run."""
    a, b, _ = row.groups
    one, other = float(a.mean()), float(b.mean())
    scale = max(abs(one), abs(other))
    size_a, size_b = (mean if mean > 0.1 * scale else scale for mean in (one, other))
    return Contrast(one, other, variance * size_a**2 / len(a), variance * size_b**2 / len(b), df, gain)


def _stated(row: Values, between: float, gain: float) -> Contrast | None:
    """From a stated spread between runs and what the runs state of their own."""
    a, b, _ = row.groups
    if not len(a) or not len(b):
        return None
    variances = []
    for values, within in ((row.a, row.within_a), (row.b, row.within_b)):
        known = np.isfinite(values)
        if not np.isfinite(within[known]).all():
            return None  # how far the run itself is off nobody knows
        each = (between * values[known]) ** 2 + within[known] ** 2
        variances.append(float(each.sum()) / int(known.sum()) ** 2)
    return Contrast(float(a.mean()), float(b.mean()), variances[0], variances[1], math.inf, gain)


def _from_common(row: Values, common: float, own: float, df_common: float, df_own: float, gain: float) -> Contrast:
    variance = common + own
    doubt = common**2 / df_common + own**2 / df_own
    return _contrast(row, variance, variance**2 / doubt if doubt > 0 else df_common, gain)


def _moderated(rows: Sequence[Values]) -> list[tuple[float, float, float, float]] | None:
    """Relative variances of each part: common, own, and their degrees of freedom; None without repeated runs."""
    sizes = [len(group) for group in (rows[0].a, rows[0].b, rows[0].past)]
    df = float(sum(max(size - 1, 0) for size in sizes))
    if df <= 0:
        return None
    deviations, weights = [], []
    for row in rows:
        groups = [group for group in (row.a, row.b, row.past) if len(group)]
        deviations.append(np.concatenate([group / group.mean() - 1 for group in groups]))
        weights.append(float(np.mean([group.mean() for group in groups])))
    each = np.array(deviations)
    weight = np.array(weights) / sum(weights)
    run = weight @ each
    left = ((each - run) ** 2).sum(axis=1) / df
    moderated = moderate(left, np.full(len(rows), df))
    common = float(run @ run) / df
    own = np.maximum(moderated.variance, left)
    return [(common, float(v), df, max(float(d), 1.0)) for v, d in zip(own, moderated.df, strict=True)]
