"""Responses beside a calibrated one, and the noise of their readings, as windows take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.calibration.response import SHAPE, StepResponse


def stretched(response: StepResponse, factor: float) -> StepResponse:
    """The response with all of its widths ``factor`` times as large."""
    return replace(
        response, window_s=factor * response.window_s, rise_s=factor * response.rise_s, tail_s=factor * response.tail_s
    )


def varied(response: StepResponse) -> list[StepResponse]:
    """The response moved by one standard deviation along each principal axis of its uncertainty.

    The changes that these make to a figure add in quadrature to what the uncertainty of the
    shape does to it. Parameters may be far less certain apart than together (a longer window
    with a shorter lag reads alike), so that moving one at a time would not do.
    """
    size = len(response.covariance)
    scales, axes = np.linalg.eigh(np.array(response.covariance))
    found = []
    for scale, axis in zip(scales, axes.T, strict=True):
        if scale <= 0:
            continue
        step = np.sqrt(scale) * axis
        there = [getattr(response, name) for name in SHAPE[:size]]
        # A time can't be negative, but the other way along the axis is as good.
        lowest = [float((there[1:] + way * step[1:]).min(initial=0.0)) for way in (1, -1)]
        moved = there + (1 if lowest[0] >= lowest[1] else -1) * step
        moved[1:] = np.maximum(moved[1:], 0.0)
        found.append(replace(response, **dict(zip(SHAPE, moved.tolist(), strict=False))))
    return found


def noise_sd(response: StepResponse, power_w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of the independent noise of readings, in watts; same shape."""
    return np.asarray(np.hypot(response.noise_w, response.noise_relative * power_w))
