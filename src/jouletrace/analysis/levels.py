"""Idle and working level of a log: mean power over the segments in which it rests, and over those in which it works."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.spans import span_energies
from jouletrace.run import Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import difference
from jouletrace.stats.quantiles import SD_OVER_MAD

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

METHOD = "levels"

_MIN_STRETCH = 3

_MOST = 32
"""Segments of one level whose energies are asked for, the longest ones: few show a level well, and each takes time."""


@dataclass(frozen=True)
class Levels:
    """A log split in two."""

    idle: Estimate  # mean power at rest
    working: Estimate  # mean power at work, ramps left out
    difference: Estimate  # working - idle
    resting: tuple[float, ...] = ()  # the two levels in watts at which it rested, where it did; idle is the lower


def idle_and_working_levels(record: Readings, response: Response) -> Levels:
    """Split a record into rest and work, and give the mean powers of both, the ramps between left out.

    The threshold is Otsu's (1979): that which leaves the least variance within both sides. At both ends
    of each segment on either side, readings are dropped until they have reached the
    segment's own middle half, and never fewer than one: they belong to the ramp. Log and sensor may
    be slow (one reading per second, each a mean over a second).

    A GPU rests at two levels, finished and waiting with a CUDA context, whose mean it never draws: the side at rest is
    split likewise, and idle is the lower level.

    Returns:
        The levels; all null with "one_level" if the log doesn't fall into two that are distinguished
        by four times their spread, or with "too_few_values" if it is too short to say.
    """
    power = record.value
    if len(power) < 2 * _MIN_STRETCH:
        return _no_levels("too_few_values")
    threshold = _otsu(power)
    high = power > threshold
    if min(high.mean(), 1 - high.mean()) < 0.01 or not _apart(power, high):
        return _no_levels("one_level")
    at_work, rest = _without_ramps(high, power), _without_ramps(~high, power)
    lower, upper = _two_at_rest(power, rest, float(np.median(power[at_work])) if at_work.any() else np.inf)
    if upper.any():  # neither holds the ramp between the two
        low = power <= power[lower].max()
        lower, upper = _without_ramps(~high & low, power), _without_ramps(~high & ~low, power)
    resting = (float(np.median(power[lower])), float(np.median(power[upper]))) if upper.any() else ()
    idle, working = (_level(record, response, kept) for kept in (lower, at_work))
    return Levels(idle, working, difference(working, idle, METHOD), resting)


def _level(record: Readings, response: Response, kept: Mask) -> Estimate:
    """Mean power over the segments of settled readings, W, by those readings alone: others are of another level."""
    edges = np.flatnonzero(np.diff(kept.astype(int), prepend=0, append=0)).reshape(-1, 2)
    first, last = edges[np.diff(edges)[:, 0] > 1].T if len(edges) else edges.T
    if not len(first):
        return Estimate.null("too_few_values", METHOD)
    last = last - 1
    longest = np.sort(np.argsort(first - last, kind="stable")[:_MOST])
    before_ns = round(1e9 * (response.delay_s + response.middle_s))
    start, end = (record.time_ns[place[longest]] - before_ns for place in (first, last))
    found = span_energies(record.take(kept), response, start, end, bursts_ns=[])
    if not found.known.any():
        return Estimate.null(found.reason[0] or "too_few_values", METHOD)
    seconds = float((end - start)[found.known].sum()) / 1e9
    level, low, high = (float(joules[0]) / seconds for joules in found.sums(found.known))
    return Estimate(level, low, high, int(kept.sum()), METHOD)


def _two_at_rest(power: Floats, rest: Mask, working_w: float) -> tuple[Mask, Mask]:
    """The readings at rest at the lower and at the upper of two levels; all and none where there is one.

    Two are a tenth of the way to work apart, not steps of a rounding or of the GPU's temperature, and each has a
    twentieth of the readings.
    """
    nothing = np.zeros(len(rest), bool)
    if rest.sum() < 2 * _MIN_STRETCH:
        return rest, nothing
    above = rest & (power > _otsu(power[rest]))
    below = rest & ~above
    if min(above.sum(), below.sum()) < max(_MIN_STRETCH, 0.05 * rest.sum()):
        return rest, nothing
    gap = float(np.median(power[above]) - np.median(power[below]))
    if not _apart(power[rest], above[rest]) or not gap > 0.1 * (working_w - float(np.median(power[below]))):
        return rest, nothing
    return below, above


def _no_levels(reason: str) -> Levels:
    null = Estimate.null(reason, METHOD)
    return Levels(null, null, null)


def _otsu(power: Floats) -> float:
    """Threshold between the two groups with the largest variance between them."""
    x = np.sort(power)
    n = np.arange(1, len(x))
    below = np.cumsum(x)[:-1]
    gap = below / n - (x.sum() - below) / (len(x) - n)
    between = n * (len(x) - n) * gap**2
    best = int(np.argmax(between))
    return float((x[best] + x[best + 1]) / 2)


def _apart(power: Floats, high: Mask) -> bool:
    low_w, high_w = np.median(power[~high]), np.median(power[high])
    off = max(float(np.median(np.abs(power[part] - np.median(power[part])))) for part in (high, ~high))
    return bool(high_w - low_w > 4 * SD_OVER_MAD * off)


def _without_ramps(side: Mask, power: Floats) -> Mask:
    """The readings of one level that are settled in their segments."""
    kept = np.zeros(len(power), bool)
    for part in np.split(np.arange(len(power)), np.flatnonzero(np.diff(side.astype(int))) + 1):
        if side[part[0]]:
            kept[_settled(part, power, len(power))] = True
    return kept


def _settled(part: NDArray[np.intp], power: Floats, n: int) -> NDArray[np.intp]:
    """Readings of a segment without the ramps at its ends; the log's own ends are no ramps."""
    if len(part) < _MIN_STRETCH:
        return part[:0]
    values = power[part]
    low, high = np.percentile(values, [25, 75])
    inside = np.flatnonzero((values >= low) & (values <= high))
    first = 0 if part[0] == 0 else max(int(inside[0]), 1)
    last = len(part) if part[-1] == n - 1 else min(int(inside[-1]) + 1, len(part) - 1)
    return part[first:last]
