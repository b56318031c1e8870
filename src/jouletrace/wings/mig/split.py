"""The GPU's energy divided among its slices by their activity: always a model.

A MIG instance has no power sensor; the GPU's power is measured. Above idle, a slice that is active for a share of the
time draws as many watts times this share as its workload takes, which the times of one slice alone show. The parts are
scaled to the GPU's energy above idle, so that they add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.analysis.power import energies
from jouletrace.arrays import Floats
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95
from jouletrace.wings.serving.analysis.measured import Factors

METHOD = "modelled"


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


def mean_powers(run: Run, windows_ns: Sequence[tuple[int, int]]) -> list[Estimate]:
    """Mean power of a Run's first device, the GPU, in windows, each a load of its own; W."""
    starts, ends = np.array(windows_ns, np.int64).T
    found = energies(run, run.devices[0].id, starts, ends)
    each = [found.estimate(np.arange(len(found)) == k, method="window") for k in range(len(found))]
    return [one.scaled(1e9 / s) for one, s in zip(each, (ends - starts).tolist(), strict=True)]


def shifted(estimate: Estimate, by: float) -> Estimate:
    """An estimate with a known number added."""
    value, low, high = (None if end is None else end + by for end in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)
