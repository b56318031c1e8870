"""Idle and working level of a log: mean power over the segments in which it rests, and over those in which it works."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.arrays import Floats, Mask
from jouletrace.run import Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import difference, mean_estimate
from jouletrace.stats.quantiles import SD_OVER_MAD

METHOD = "levels"

_MIN_STRETCH = 3

_APART, _VALLEY = 2.0, 1 / 3
"""Least distance of a level from the lowest twentieth of the readings above, in widths that hold 90 % of its own, and
as a share of the way to their median: power that takes all values has no level."""

_OF_RATED, _OF_WORK, _UNUSED_PCT = 0.25, 0.4, 5.0
"""Most that a GPU draws at rest, as a share of its rated power (data-centre GPUs: 8 to 18 %), or, of an unknown one, of
the level at work, and with a context of the way from idle to it; most that the driver's utilisation shows then."""

_LEAST = 0.01
"""Least power whose logarithm is taken, as a share of the largest."""

_RAMP, _RAMP_W = 4.0, 0.01
"""Readings at a segment's ends belong to a ramp while they are so many standard deviations from its middle, and so much
of the difference of the levels: noise alone does it once in 16,000 readings."""


@dataclass(frozen=True)
class Levels:
    """A log split in two."""

    idle: Estimate  # mean power at rest
    working: Estimate  # mean power at work, ramps left out
    difference: Estimate  # working - idle
    resting: tuple[float, ...] = ()  # the two levels in watts at which it rested, where it did; idle is the lower


def idle_and_working_levels(
    record: Readings, response: Response, used_pct: Floats | None = None, rated_w: float | None = None
) -> Levels:
    """Split a record into rest and work, and give the mean powers of both, the ramps between left out.

    The threshold is Otsu's (1979) of logarithms: that which leaves the least variance within both sides. At either end
    of a segment as many readings are dropped as still show what was before, one at least, and those of a slower ramp
    (``_RAMP``). All others count: which ones do must not depend on their noise. The interval is that of a mean of
    readings that are correlated, one segment after the other.

    A GPU rests at two levels, finished and waiting with a CUDA context, whose mean it never draws: the side at rest is
    split likewise, and idle is the lower level.

    Args:
        record: Readings of power.
        response: What each is a mean of.
        used_pct: Utilisation at each reading, shape (n,); None if unknown: then rest is what its power doesn't exclude.
        rated_w: The largest power limit of the GPU; None if unknown.

    Returns:
        The levels; all null with "one_level" if the log doesn't fall into two that are distinguished (``_APART``), with
        "used_throughout" or "not_at_rest" if the lower one is no rest, by utilisation or power, or with
        "too_few_values" if it is too short to say.
    """
    power, drop = record.value, max(1, math.ceil(response.lasts_s / response.period_s))
    if len(power) < 2 * _MIN_STRETCH:
        return _no_levels("too_few_values")
    high = power > _otsu(power)
    if min(high.mean(), 1 - high.mean()) < 0.01:
        return _no_levels("one_level")
    gap = float(np.median(power[high]) - np.median(power[~high]))
    split_w = _between_two_at_rest(power[_settled(~high, power, drop)], gap)
    sides = ~high & (power <= split_w), ~high & (power > split_w), high
    lower, upper, at_work = (_settled(side, power, drop, gap) for side in sides)
    # ramps alone are no level, and show whether there are two
    low, work = (some if some.any() else side for some, side in ((lower, ~high), (at_work, high)))
    levels = [power[side] for side in (low, upper, work) if side.any()]
    if not all(map(_separate, levels, levels[1:])):
        return _no_levels("one_level")
    if not _rest_and_work(power, [side for side in (low, upper, work) if side.any()], used_pct, rated_w):
        return _no_levels("not_at_rest" if used_pct is None else "used_throughout")
    both = lower.any() and upper.any()
    resting = (float(np.median(power[lower])), float(np.median(power[upper]))) if both else ()
    idle, working = (_mean(power[side], drop) for side in (lower, at_work))
    return Levels(idle, working, difference(working, idle, METHOD), resting)


def _rest_and_work(power: Floats, sides: Sequence[Mask], used_pct: Floats | None, rated_w: float | None) -> bool:
    """True if the GPU may have rested at the one or two lower of some levels, and worked at the last."""
    if used_pct is not None:
        *rest, work = (float(np.median(used_pct[side])) for side in sides)
        return max(rest) <= _UNUSED_PCT < work
    *rest_w, work_w = (float(np.median(power[side])) for side in sides)
    if rated_w is not None:
        return max(rest_w) < _OF_RATED * rated_w
    return all(
        level_w - from_w < _OF_WORK * (work_w - from_w)
        for level_w, from_w in zip(rest_w, (0.0, rest_w[0]), strict=False)
    )


def _mean(power: Floats, overlap: int) -> Estimate:
    """Mean of readings, ``overlap`` of which in a row may show the same time: as many count as one."""
    if len(power) < 2:
        return Estimate.null("too_few_values", METHOD)
    count = max(len(power) // overlap, 2)
    size = len(power) // count + (np.arange(count) < len(power) % count)
    means = np.add.reduceat(power, np.cumsum(size) - size) / size
    mean = mean_estimate(means, size.astype(float), correlated=True, method=METHOD)
    return replace(mean, n=len(power))


def _between_two_at_rest(power: Floats, work: float) -> float:
    """Watts between the two levels of readings at rest; infinite where there is one.

    Two are a tenth of the way to ``work`` watts above rest apart, not steps of a rounding or of the GPU's temperature,
    and each has a twentieth of the readings.
    """
    if len(power) < 2 * _MIN_STRETCH:
        return math.inf
    threshold = _otsu(power)
    below, above = power[power <= threshold], power[power > threshold]
    enough = min(len(below), len(above)) >= max(_MIN_STRETCH, 0.05 * len(power))
    two = enough and _separate(below, above) and np.median(above) - np.median(below) > 0.1 * work
    return threshold if two else math.inf


def _no_levels(reason: str) -> Levels:
    null = Estimate.null(reason, METHOD)
    return Levels(null, null, null)


def _otsu(power: Floats) -> float:
    """Threshold between the two groups with the largest variance between their logarithms: work may swing by watts."""
    watts = np.sort(power)
    x = np.log(np.maximum(watts, _LEAST * (watts[-1] or 1.0)))
    n = np.arange(1, len(x))
    below = np.cumsum(x)[:-1]
    gap = below / n - (x.sum() - below) / (len(x) - n)
    between = n * (len(x) - n) * gap**2
    best = int(np.argmax(between))
    return float((watts[best] + watts[best + 1]) / 2)


def _separate(below: Floats, above: Floats) -> bool:
    """True for readings of a distinct level below others, which may swing."""
    (least, level, most), (beyond, middle) = np.quantile(below, (0.05, 0.5, 0.95)), np.quantile(above, (0.05, 0.5))
    return bool(beyond - level > max(_APART * (most - least), _VALLEY * (middle - level)))


def _settled(side: Mask, power: Floats, drop: int, gap: float = math.inf) -> Mask:
    """The readings of one level, ``gap`` watts from the other, without the ramps at its segments' ends.

    The log's own ends are no ramps.
    """
    kept, n = np.zeros(len(power), bool), len(power)
    edges = np.flatnonzero(np.diff(side.astype(int), prepend=0, append=0)).reshape(-1, 2)
    inner = edges + drop * np.stack([edges[:, 0] > 0, -(edges[:, 1] < n).astype(int)], axis=1)
    parts = [slice(first, last) for first, last in inner.tolist() if first < last]
    off = [np.abs(power[part] - np.median(power[part])) for part in parts]
    most = max(_RAMP * SD_OVER_MAD * float(np.median(np.concatenate(off))), _RAMP_W * gap) if off else 0.0
    for part, off_w in zip(parts, off, strict=True):
        settled = part.start + np.flatnonzero(off_w <= most)
        if len(settled):
            kept[settled[0] if part.start else 0 : settled[-1] + 1 if part.stop < n else n] = True
    return kept
