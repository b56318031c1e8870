"""Rows of a regression of power readings on what went on meanwhile, each part as the sensor shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jouletrace.analysis.power import power_record
from jouletrace.analysis.serving.steady import Floats, Rates
from jouletrace.run import Run
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.stats.regression import Prior, equivalent_noise, quantile95, sandwich, solve

LEAD_S = 10.0
"""Of the record before the first and after the last thing that went on."""

_ROWS, _FEWEST = 2000, 30
"""Rows of the regression at most and at least; more readings are averaged in blocks."""

_CELLS = 48
"""Parts of a reading's response."""

_CORRELATED_S = 2.0

VARIES = 0.02
"""Least share of a regressor's variance that the others leave unexplained, for it to be distinguished."""


@dataclass(frozen=True)
class Rows:
    """Rows of a regression in order of time.

    Attributes:
        design: What went on, shape (m, k).
        target: Power of all devices, W, shape (m,).
        block_s: Seconds of a row.
    """

    design: Floats
    target: Floats
    block_s: float


def regression_rows(
    run: Run, origin_ns: int, begin_s: float, end_s: float, columns: Callable[[Floats, StepResponse], Floats]
) -> Rows | str:
    """The readings of all devices between two times as rows, or why there are none.

    Args:
        run: With the power records.
        origin_ns: Zero of the seconds.
        begin_s: When what went on begins; the record before it is used, too.
        end_s: When it ends; the record after it is used, too.
        columns: From stamps in seconds, shape (n,), and a response what the readings show, shape (n, k).
    """
    found = [power_record(run, device.id) for device in run.devices]
    records = [one for one in found if one is not None and len(one[0]) > _FEWEST]
    if not records or len(records) < len(found):
        return "no_power_sensor"
    first = max(int(record.time_ns[0]) for record, _ in records)
    last = min(int(record.time_ns[-1]) for record, _ in records)
    begin, end = max(begin_s - LEAD_S, (first - origin_ns) / 1e9), min(end_s + LEAD_S, (last - origin_ns) / 1e9)
    block = max((end - begin) / _ROWS, *(1.001 * response.period_s for _, response in records))
    edges = np.arange(begin, end, block)
    if len(edges) < _FEWEST:
        return "too_few_values"
    target, design = np.zeros(len(edges) - 1), list[Floats]()
    known = np.ones(len(edges) - 1, bool)
    for record, response in records:
        time = (record.time_ns - origin_ns) / 1e9
        place = np.searchsorted(edges, time, side="right") - 1
        inside = (place >= 0) & (place < len(known))
        count = np.bincount(place[inside], minlength=len(known))
        known &= count > 0
        target += np.bincount(place[inside], record.value[inside], len(known)) / np.maximum(count, 1)
        seen = columns(time[inside], response).T
        design.append(
            np.array([np.bincount(place[inside], one, len(known)) for one in seen]).T / np.maximum(count, 1)[:, None]
        )
    if int(known.sum()) < _FEWEST:
        return "too_few_values"
    return Rows(np.mean(design, axis=0)[known], target[known], block)


def shown(parts: Sequence[Rates], time: Floats, response: StepResponse) -> Floats:
    """Sums of rates as readings at these times show them, shape (n, parts).

    Args:
        parts: The sums.
        time: Stamps in seconds, shape (n,).
        response: Of the sensor.
    """
    reach = max(response.memory_s, 2 * response.delay_s, 1e-4)
    delays = np.linspace(min(response.lag_s, 0.0), reach, _CELLS + 1)
    weights = np.diff(response.step(delays))
    weights = weights / weights.sum()
    at = time[:, None] - delays[None, :]
    found = []
    for rates in parts:
        integral = rates.integral(at.ravel()).reshape(at.shape)
        found.append((-np.diff(integral, axis=1) / np.diff(delays)) @ weights)
    return np.column_stack(found)


def apart(design: Floats, k: int) -> float:
    """Share of a regressor (of its variance, of a constant its square) that the others don't explain."""
    column, others = design[:, k], np.delete(design, k, axis=1)
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
    whole = column if np.ptp(column) == 0 else column - column.mean()
    return float((left @ left) / max(float(whole @ whole), 1e-300))


@dataclass(frozen=True)
class Solution:
    """Least squares of readings.

    Attributes:
        x: Factors, shape (k,).
        covariance: From the residuals, shape (k, k).
        quantile: Standard errors in a 95 % half-width.
        residual_w: Root mean square of the residuals.
    """

    x: Floats
    covariance: Floats
    quantile: float
    residual_w: float


def solved(rows: Rows, *, positive: bool = False) -> Solution:
    """Factors that explain rows best, none below 0 if they must be ``positive``.

    The covariance of positive factors is that without the limit: near 0 it is too wide, never too narrow.
    """
    scale = np.maximum(np.sqrt((rows.design**2).mean(axis=0)), 1e-12)
    scaled, target = rows.design / scale, rows.target
    wide = Prior.of(np.zeros(len(scale)), np.full(len(scale), 1e3 * max(float(np.abs(target).max()), 1.0)))
    noise = equivalent_noise(target - scaled @ solve(scaled, target, wide, 1.0))
    if positive:
        from scipy.optimize import nnls  # a quarter of a second to import

        x = np.asarray(nnls(scaled, target)[0])
    else:
        x = solve(scaled, target, wide, noise)
    left = target - scaled @ x
    lags = max(1, min(round(_CORRELATED_S / rows.block_s), len(target) // 4))
    covariance = sandwich(scaled, left, wide, noise, lags) / np.outer(scale, scale)
    return Solution(x / scale, covariance, quantile95(lags / len(target)), float(np.sqrt(np.mean(left**2))))
