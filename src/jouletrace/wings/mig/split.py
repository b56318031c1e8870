"""The GPU's energy divided among its slices by their activity: always a model.

A MIG instance has no power sensor; the GPU's power is measured. Above idle, a slice that is active for a share of the
time draws as many watts times this share as its workload takes. So seconds of activity are amounts of a load
(``attribution.amounts``), and these watts are what a unit of each costs. Before the readings every slice draws the same
power per compute slice, with a relative standard deviation of a half (``PRIOR_SD``). Times with different activities,
ideally of one slice alone, separate them. Where all are alike, only the prior determines them, and the interval shows
that. The parts are scaled to the GPU's energy above idle, so that they add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.analysis.power import energies
from jouletrace.arrays import Floats
from jouletrace.attribution.prior import Prior
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95
from jouletrace.wings.serving.analysis.measured import Factors, Record, rates
from jouletrace.wings.serving.analysis.steady import going_on

METHOD = "modelled"
PRIOR_SD = 0.5
"""Relative standard deviation between workloads of the watts per active compute slice."""


def slice_factors(record: Record | str, pieces_s: Floats, activity: Floats, slices: Sequence[int]) -> Factors:
    """Idle power and the watts that each slice adds while it is active, 1 + slices.

    Args:
        record: Readings of the GPU, in whose loads other times than the pieces have a power of their own; or why there
            are none, which leaves the prior.
        pieces_s: Starts and ends of disjoint times, in order, shape (n, 2).
        activity: Share of each in which each slice was active, shape (n, slices), NaN where it is unknown.
        slices: Compute slices of each.
    """
    size, count = np.asarray(slices, float), len(slices)
    x = np.append(0.0, size)
    prior = Factors(x, np.diag((PRIOR_SD * x) ** 2), np.ones(1 + count, bool), 0.0, METHOD, 0)
    known = np.isfinite(activity).all(axis=1)
    (start, end), share = pieces_s[known].T, activity[known]
    if isinstance(record, str) or not share.any():
        return prior
    edges = np.unique(np.concatenate([record.loads.ravel(), start, end]))
    rest = going_on(record.loads[:, 0], record.loads[:, 1], edges) - going_on(start, end, edges) > 0.5
    length = np.diff(edges)[rest]
    others = [(edges[:-1][rest], edges[1:][rest], length)] if len(length) else []
    alike = record.units(rates([(start, end, share @ size * (end - start)), *others]))
    if not (level_w := alike.value[1]) > 0:
        return prior
    kinds = [(start, end, each * (end - start)) for each in share.T]
    found = record.units(rates([*kinds, *others]), (level_w * size, PRIOR_SD * level_w * size))
    own = slice(1 + count)
    return Factors(found.value[own], found.covariance[own, own], prior.known, found.residual_w, METHOD, len(start))


def factors_alone(above: Sequence[Estimate], activity: Floats, at_once: Estimate, shares: Floats) -> Factors:
    """The watts that each slice adds while it is active, as they are alone.

    At once they may draw as much more or less as their sum does.

    Args:
        above: Power of the GPU above idle with each slice alone.
        activity: Share of that time in which the slice was active, shape (slices,).
        at_once: Power above idle with all of them.
        shares: Their activities then, shape (slices,).
    """
    values = np.array([(one.value, one.half_width or 0.0) for one in above], float)
    with np.errstate(divide="ignore", invalid="ignore"):  # what wasn't active alone isn't known
        watts, half = np.where(values > 0, values / activity[:, None], 0.0).T
    x = np.append(0.0, watts)
    apart = 1 - (at_once.value or 0.0) / (shares @ watts) if shares @ watts > 0 else 0.0
    variance = np.append(0.0, (half / Z95) ** 2) + (apart * x) ** 2
    return Factors(x, np.diag(variance), x > 0, 0.0, METHOD, len(watts))


def divided(factors: Factors, above: Estimate, activity: ArrayLike) -> list[Estimate]:
    """The part of each slice in the GPU's power or energy above idle, by its activity then, shape (slices,)."""
    share = np.asarray(activity, float)
    if above.value is None or not np.isfinite(share @ factors.x[1:]):
        return [Estimate.null(above.reason or "no_activity", METHOD)] * len(share)
    amounts = np.column_stack([np.zeros(len(share)), np.diag(share)])
    if above.value <= 0 or not share @ factors.x[1:] > 0:
        return [factors.stated(0.0, 0.0)] * len(share)
    found = zip(*factors.parts(amounts, amounts.sum(axis=0), above), strict=True)
    return [factors.stated(value, half) for value, half in found]


def mean_powers(
    run: Run,
    windows_ns: Sequence[tuple[int, int]],
    loads_ns: Sequence[tuple[int, int]] | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
) -> list[Estimate]:
    """Mean power of a Run's first device, the GPU, in windows, W; each is a load of its own if no loads are named."""
    starts, ends = np.array(windows_ns, np.int64).T
    found = energies(run, run.devices[0].id, starts, ends, loads_ns, prior=prior)
    each = [found.estimate(np.arange(len(found)) == k, method="window") for k in range(len(found))]
    return [one.scaled(1e9 / s) for one, s in zip(each, (ends - starts).tolist(), strict=True)]


def shifted(estimate: Estimate, by: float) -> Estimate:
    """An estimate with a known number added."""
    value, low, high = (None if end is None else end + by for end in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)
