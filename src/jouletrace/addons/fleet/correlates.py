"""Correlates of slowness: which conditions go with the time of an iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.results import Group
from jouletrace.run import Estimate

Floats = NDArray[np.float64]

CONDITIONS = {
    "clock_mhz": "SM clock",
    "counted_mhz": "SM clock, measured",
    "temperature_c": "temperature",
    "power_w": "power",
    "power_cap_share": "time under the power cap",
    "thermal_share": "time throttled for heat",
}
BETWEEN, WITHIN = "between GPUs", "between runs of a GPU"

_METHOD = "Pearson's r"
_LEAST = 5


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


def correlates(group: Group) -> list[Correlate]:
    """Correlates of slowness, the strongest first; those that can't be estimated come last."""
    found = []
    for condition in CONDITIONS:
        time, other = group.runs["time_s"], group.runs[condition]
        known = np.isfinite(time) & np.isfinite(other)
        gpu = group.runs["gpu"][known]
        (means, rest), (others, other_rest) = _by_gpu(time[known], gpu), _by_gpu(other[known], gpu)
        found.append(Correlate(condition, BETWEEN, _correlation(means, others, len(means))))
        found.append(Correlate(condition, WITHIN, _correlation(rest, other_rest, len(gpu) - len(means) + 1)))
    return sorted(found, key=lambda one: -abs(one.r.value) if one.r.value is not None else 1.0)


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
    if n < _LEAST:
        return Estimate.null("few_gpus", _METHOD)
    dx, dy = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((dx**2).sum() * (dy**2).sum()))
    if scale <= 1e-12 * float(np.abs(x).max() * np.abs(y).max() + 1e-300):
        return Estimate.null("did_not_vary", _METHOD)
    r = float(np.clip((dx * dy).sum() / scale, -1, 1))
    z, half = float(np.arctanh(np.clip(r, -0.999999, 0.999999))), 1.959964 / float(np.sqrt(n - 3))
    return Estimate(r, min(float(np.tanh(z - half)), r), max(float(np.tanh(z + half)), r), n, _METHOD)
