"""Correlates of slowness, and the slowness that remains at equal temperature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.plan import COLLECTIVE
from jouletrace.addons.fleet.results import Group
from jouletrace.run import Estimate
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]

COUNTED = "counted_mhz"
"""Used where ``is_counted``: not every GPU's counters can be read."""

CONDITIONS = {
    "clock_mhz": "SM clock",
    COUNTED: "SM clock, measured",
    "temperature_c": "temperature",
    "power_w": "power",
    "power_cap_share": "time under the power cap",
    "thermal_share": "time throttled for heat",
}
BETWEEN, WITHIN = "between GPUs", "between runs of a GPU"

_METHOD = "Pearson's r"
_LEAST = 5
_LEAST_SD_C = 0.5
"""Least variation of the temperature of a GPU's runs for a meaningful slope."""


@dataclass(frozen=True)
class Correlate:
    """Correlation of a condition with the time of an iteration.

    Attributes:
        condition: One of ``CONDITIONS``.
        where: "between GPUs" or "between runs of a GPU".
        r: Pearson's correlation with its interval by Fisher's z.
    """

    condition: str
    where: str
    r: Estimate


def is_counted(group: Group) -> bool:
    """Whether the cycle counters were read in any run."""
    return bool(np.isfinite(group.runs[COUNTED]).any())


def correlates(group: Group) -> list[Correlate]:
    """Correlates of slowness, the strongest first; those that can't be estimated come last."""
    conditions = [name for name in CONDITIONS if name != COUNTED or is_counted(group)]
    if group.facts["workload"] == COLLECTIVE:
        # All GPUs of a host repeat one time: pairs would count once per GPU.
        null = Estimate.null("collective", _METHOD)
        return [Correlate(condition, where, null) for condition in conditions for where in (BETWEEN, WITHIN)]
    found = []
    for condition in conditions:
        time, other, gpu = _known(group, condition)
        (means, rest), (others, other_rest) = _by_gpu(time, gpu), _by_gpu(other, gpu)
        found.append(Correlate(condition, BETWEEN, _correlation(means, others, len(means))))
        found.append(Correlate(condition, WITHIN, _correlation(rest, other_rest, len(gpu) - len(means) + 1)))
    return sorted(found, key=lambda one: -abs(one.r.value) if one.r.value is not None else 1.0)


def temperature_slope(group: Group) -> Estimate:
    """Relative increase of an iteration's time per degree, from differences between runs of one GPU.

    It is computed from logarithms, so that heat affects fast and slow GPUs by the same factor.
    """
    method = "runs of a GPU"
    if group.facts["workload"] == COLLECTIVE:
        return Estimate.null("collective", method)
    time, heat, gpu = _known(group, "temperature_c")
    if not len(time):
        return Estimate.null("no_temperature", method)
    means, y = _by_gpu(np.log(time), gpu)
    x = _by_gpu(heat, gpu)[1]
    freedom = len(x) - len(means) - 1
    if freedom < _LEAST - 2:
        return Estimate.null("few_runs", method)
    if float(np.sqrt((x**2).sum() / (len(x) - len(means)))) < _LEAST_SD_C:
        return Estimate.null("temperature_did_not_vary", method)
    slope = float((x * y).sum() / (x**2).sum())
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / freedom / (x**2).sum()))
    half = student(0.975, freedom) * error
    return Estimate(slope, slope - half, slope + half, len(x), method)


def at_equal_temperature(group: Group) -> dict[int, Estimate]:
    """Relative distance of each GPU from the group's mean time, both converted to the group's mean temperature.

    The interval includes the uncertainty of the slope and the differences between runs of a GPU.

    Returns:
        Estimates by code; empty without a slope for the correction.
    """
    slope = temperature_slope(group)
    if slope.value is None or slope.half_width is None:
        return {}
    time, heat, gpu = _known(group, "temperature_c")
    codes, counts = np.unique(gpu, return_counts=True)
    means, rest = _by_gpu(np.log(time), gpu)
    hot, heats = _by_gpu(heat, gpu)
    middle, warm = float(means.mean()), float(hot.mean())
    freedom = len(gpu) - len(codes) - 1
    left = rest - slope.value * heats
    noise = float(np.sqrt((left**2).sum() / freedom))
    t = student(0.975, freedom)
    found = {}
    for n, code in enumerate(codes.tolist()):
        off = means[n] - middle - slope.value * (hot[n] - warm)
        half = float(np.hypot(t * noise / np.sqrt(counts[n]), slope.half_width * (hot[n] - warm)))
        value, low, high = (float(np.expm1(end)) for end in (off, off - half, off + half))
        found[code] = Estimate(value, low, high, int(counts[n]), "at equal temperature")
    return found


def _known(group: Group, condition: str) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Time, a condition and the GPU of the runs for which both are known."""
    time, other = group.runs["time_s"], group.runs[condition]
    known = np.isfinite(time) & np.isfinite(other)
    return time[known], other[known], group.runs["gpu"][known]


def _by_gpu(values: Floats, gpu: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The mean of each GPU, and each value less its GPU's mean."""
    _, place = np.unique(gpu, return_inverse=True)
    means = np.bincount(place, values) / np.bincount(place) if len(values) else np.zeros(0)
    return means, values - means[place]


def _correlation(x: Floats, y: Floats, n: int) -> Estimate:
    """Pearson's r, with its interval by Fisher's z (Fisher 1921, Metron 1:3), for ``n`` independent pairs.

    The interval is that of z transformed back, so it lies within -1 and 1 and isn't symmetric about r. Each mean of
    a GPU that was removed costs one pair, as other variables that are held constant do (Fisher 1924, Metron 3:329).
    """
    method = _METHOD
    if n < _LEAST:
        return Estimate.null("few_gpus", method)
    dx, dy = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((dx**2).sum() * (dy**2).sum()))
    if scale <= 1e-12 * float(np.abs(x).max() * np.abs(y).max() + 1e-300):
        return Estimate.null("did_not_vary", method)
    r = float(np.clip((dx * dy).sum() / scale, -1, 1))
    z, half = float(np.arctanh(np.clip(r, -0.999999, 0.999999))), 1.959964 / float(np.sqrt(n - 3))
    return Estimate(r, min(float(np.tanh(z - half)), r), max(float(np.tanh(z + half)), r), n, method)
