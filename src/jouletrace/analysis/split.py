r"""The GPU's power split over its slices by their activity: pure, and always a model.

A MIG instance has no power sensor; the GPU's power is measured. Above idle, a slice i that is active
for a share a_i of the time is assumed to draw c_i a_i watts, where c_i depends on its workload. Then

    board power − idle power = Σ c_i a_i + noise

in every window. The c_i are estimated by Bayesian linear regression over windows (Bishop, Pattern Recognition and
Machine Learning, 2006, section 3.3). A priori every slice draws the same power per compute slice, with a relative
standard deviation of a half (``PRIOR_SD``). Windows with different activities, ideally of one slice alone at a time,
separate them. Where all windows are alike, only the prior determines them, and the interval shows that.

The parts are then scaled to the GPU's power in the window, so that they add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.analysis.power import energies
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95

Floats = NDArray[np.float64]

METHOD = "modelled"
PRIOR_SD = 0.5
"""Relative standard deviation between workloads of the watts per active compute slice."""

_DRAWS = 2000
_LEAST_NOISE_W = 1.0
"""Least standard deviation of window means of board power, and of idle power."""

_RELATIVE_NOISE = 0.01


@dataclass(frozen=True)
class SplitModel:
    """Power of each slice above idle at full activity, from ``n`` windows.

    ``watts`` and ``covariance`` are those of the joint posterior, shapes (slices,) and (slices, slices); ``slices`` are
    the compute slices of each.
    """

    watts: Floats
    covariance: Floats
    slices: Floats
    n: int


@dataclass(frozen=True)
class PowerSplit:
    """One window's board power in parts, all in watts.

    Attributes:
        slices: Power of each slice above idle; null with "no_activity" where an activity is unknown.
        idle: Each slice's share of idle power by compute slices.
        rest_idle_w: Idle power that belongs to no slice: that of compute slices without an instance.
        unattributed_w: Power above idle while no slice is active, or where activities are unknown;
            None where the GPU's power is unknown.
    """

    slices: list[Estimate]
    idle: list[float]
    rest_idle_w: float
    unattributed_w: float | None


def fit(board_w: ArrayLike, idle_w: float, activity: ArrayLike, slices: Sequence[int]) -> SplitModel:
    """Estimate the power of each slice from windows.

    Args:
        board_w: Mean power of the GPU in each window, shape (n,).
        idle_w: Its power with contexts alive and nothing running.
        activity: Share of time in which each slice was active, shape (n, slices).
        slices: Compute slices of each.
    """
    share = np.asarray(slices, float)
    x = np.asarray(activity, float).reshape(-1, len(share))
    y = np.asarray(board_w, float) - idle_w
    good = np.isfinite(y) & np.isfinite(x).all(axis=1)
    x, y = x[good], y[good]
    weight = float((x @ share).sum())
    level = max(float(y.sum()) / weight, 1e-9) if weight > 0 else 1.0
    prior_w = level * share
    prior = np.diag(1 / (PRIOR_SD * prior_w) ** 2)
    noise = np.maximum(_LEAST_NOISE_W, _RELATIVE_NOISE * np.abs(y))
    scaled = x / noise[:, None]
    covariance = np.linalg.inv(prior + scaled.T @ scaled)
    watts = covariance @ (prior @ prior_w + scaled.T @ (y / noise))
    return SplitModel(np.asarray(watts, float), np.asarray(covariance, float), share, len(y))


def split(model: SplitModel, board: Estimate, idle_w: float, activity: ArrayLike, whole: int = 7) -> PowerSplit:
    """Split one window's board power, which must have a value, over the slices.

    ``activity`` has shape (slices,), NaN where it is unknown; ``whole`` is the number of compute slices of the GPU.

    Raises:
        ValueError: If the GPU's power has no value.
    """
    if board.value is None:
        raise ValueError("an unknown power of a GPU can't be split")
    a = np.asarray(activity, float)
    active_w = board.value - idle_w
    known = bool(np.isfinite(a).all())
    drawn = np.maximum(model.watts, 0.0) * np.where(np.isfinite(a), a, 0.0)
    total = float(drawn.sum())
    idle = [idle_w * float(size) / whole for size in model.slices]
    rest_idle = idle_w - sum(idle)
    if not known or total <= 0 or active_w <= 0:
        none = Estimate(0.0, 0.0, 0.0, model.n, METHOD) if known else Estimate.null("no_activity", METHOD)
        return PowerSplit([none] * len(a), idle, rest_idle, active_w)
    parts = drawn / total * active_w
    parts[int(np.argmax(parts))] += active_w - float(parts.sum())  # the rounding error
    low, high = _intervals(model, board, idle_w, a, parts)
    found = [
        Estimate(float(p), float(min(lo, p)), float(max(hi, p)), model.n, METHOD)
        for p, lo, hi in zip(parts, low, high, strict=True)
    ]
    return PowerSplit(found, idle, rest_idle, 0.0)


def _intervals(model: SplitModel, board: Estimate, idle_w: float, a: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """95 % intervals of the parts, by draws of the model's coefficients and of the GPU's power."""
    rng = np.random.default_rng(0)
    watts = np.maximum(rng.multivariate_normal(model.watts, model.covariance, _DRAWS, method="cholesky"), 0.0)
    drawn = watts * a
    sums = drawn.sum(axis=1, keepdims=True)
    shares = np.divide(drawn, sums, out=np.tile(parts / parts.sum(), (_DRAWS, 1)), where=sums > 0)
    half = board.half_width or 0.0
    active = (board.value or 0.0) - idle_w + rng.normal(0.0, 1.0, (_DRAWS, 1)) * half / Z95
    low, high = np.quantile(shares * active, [0.025, 0.975], axis=0)
    return np.asarray(low, float), np.asarray(high, float)


def powers(run: Run, board: str, windows: Sequence[tuple[int, int]]) -> list[Estimate]:
    """Mean power of the GPU in each window."""
    start, end = np.array(windows, np.int64).T
    found = energies(run, board, start, end)
    each = [found.estimate(np.arange(len(found)) == i) for i in range(len(found))]
    return [one.scaled(1e9 / (last - first)) for one, (first, last) in zip(each, windows, strict=True)]


def shifted(estimate: Estimate, by: float) -> Estimate:
    """An estimate with a known number added."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    return Estimate(estimate.value + by, estimate.low + by, estimate.high + by, estimate.n, estimate.method)
