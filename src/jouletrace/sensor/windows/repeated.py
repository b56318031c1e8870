"""Mean energy of a short window repeated many times under a sensor too slow to see one of them.

Each reading sees a known share of each kind of window, by the response; at phases that are spread,
these shares differ from reading to reading, and the mean power of each kind follows by regression.
The practice is that of Yang, Adamek and Armour (SC 2024) for sensors that see 25 ms of 100 ms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.stamps import find_grid
from jouletrace.sensor.windows.varied import varied
from jouletrace.stats.interval import Z95
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]

MIN_WINDOWS = 10
_HAC_LAGS = 4

_MAX_RELATIVE = 0.5


def repeated_energy(
    record: Readings,
    response: StepResponse,
    start_ns: ArrayLike,
    end_ns: ArrayLike,
    kinds: ArrayLike | None = None,
) -> list[Estimate]:
    """Mean energy of one window of each kind, all windows of a kind pooled.

    Between windows the power is taken to be one level with a linear drift; anything else that
    repeats there should be given as a kind of its own.

    Args:
        record: A cleaned power record.
        response: The sensor's response, best calibrated.
        start_ns: Starts of all windows, shape (m,).
        end_ns: Ends, shape (m,).
        kinds: 0-based number of each window's kind, shape (m,), of which none is left out; one kind if None.

    Returns:
        Joules per window, one estimate a kind, ``n`` the number of its windows. Null with reason
        "too_few_windows" (fewer than 10), "no_samples", "hole_in_record", "phases_not_spread"
        (readings saw too little of it, or always the same mixture) or "sensor_too_slow".

    Raises:
        BadInputError: If windows overlap, or their starts, ends and kinds don't go together.
    """
    start, end, kind = _in_order(start_ns, end_ns, kinds)
    count = np.bincount(kind) if len(kind) else np.zeros(1, int)
    null = _why_not(record, start, end)
    if null is not None:
        return [Estimate.null(null, "repeated") for _ in count]

    a, b = record.seconds(start), record.seconds(end)
    time = record.seconds(record.time_ns)
    if response.stamp_grid:
        time = find_grid(record.time_ns, response.period_s).taken(response.stamp_grid)
    near = (time > a[0] - response.period_s) & (time < b[-1] + response.memory_s + response.period_s)
    if not near.any():
        return [Estimate.null("no_samples", "repeated") for _ in count]
    time, power = time[near], record.value[near]
    design = _design(time, a, b, kind, len(count), response)
    level, covariance, free = _regress(*_shiftable(design, time, a, b, kind, response, power))
    shift = _model_sd(time, power, a, b, kind, response, level)
    found = []
    for k, n in enumerate(count):
        sd = float(np.sqrt(covariance[k, k]))
        half = float(np.hypot(student(0.975, max(min(free[k], n - 1), 1)) * sd, Z95 * shift[k]))
        if n < MIN_WINDOWS:
            found.append(Estimate.null("too_few_windows", "repeated"))
        elif not np.isfinite(half):
            found.append(Estimate.null("phases_not_spread", "repeated"))
        elif half > _MAX_RELATIVE * abs(level[k]):
            found.append(Estimate.null("sensor_too_slow", "repeated"))
        else:
            low, high = level[k] - half, level[k] + half
            power_w = Estimate(float(level[k]), float(low), float(high), int(n), "repeated")
            found.append(power_w.scaled(float((b - a)[kind == k].mean())))
    return found


def _in_order(
    start_ns: ArrayLike, end_ns: ArrayLike, kinds: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Starts, ends and kinds of the windows by their starts, each of shape (m,)."""
    start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    kind = np.zeros(len(start), np.int64) if kinds is None else np.asarray(kinds, np.int64)
    if not start.shape == end.shape == kind.shape or start.ndim != 1:
        raise BadInputError(
            f"windows: {start.shape} starts, {end.shape} ends and {kind.shape} kinds do not go together"
        )
    order = np.argsort(start)
    start, end, kind = start[order], end[order], kind[order]
    if len(kind) and len(np.unique(kind)) <= kind.max():
        raise BadInputError("windows: kinds are numbered from 0, and each has windows")
    if np.any(end < start) or np.any(start[1:] < end[:-1]):
        raise BadInputError("windows: repeated windows must not overlap, nor end before they start")
    return start, end, kind


def _why_not(record: Readings, start: NDArray[np.int64], end: NDArray[np.int64]) -> str | None:
    if len(start) < MIN_WINDOWS:
        return "too_few_windows"
    if len(record) < MIN_WINDOWS or start[0] < record.time_ns[0] or end[-1] > record.time_ns[-1]:
        return "no_samples"
    return "hole_in_record" if record.hole_seconds(start[:1], end[-1:]).sum() > 0 else None


def _design(time: Floats, a: Floats, b: Floats, kind: NDArray[np.int64], kinds: int, response: StepResponse) -> Floats:
    """Share of each kind, of the rest, and the rest's drift in each reading, shape (n, kinds + 2)."""
    share = np.zeros((len(time), kinds))
    # Only windows within a reading's memory count: a band of the full matrix.
    first = np.searchsorted(b, time - response.memory_s)
    last = np.searchsorted(a, time - min(response.lag_s, 0.0))
    for ahead in range(int(max((last - first).max(), 0))):
        at = first + ahead
        use = np.flatnonzero(at < last)
        seen = response.step(time[use] - a[at[use]]) - response.step(time[use] - b[at[use]])
        np.add.at(share, (use, kind[at[use]]), seen)
    rest = 1 - share.sum(1)
    drift = (time - time.mean()) / max(float(np.ptp(time)), 1e-9)
    return np.column_stack([share, rest, rest * drift])


def _shiftable(
    design: Floats, time: Floats, a: Floats, b: Floats, kind: NDArray[np.int64], response: StepResponse, power: Floats
) -> tuple[Floats, Floats]:
    """The design with one more column: what all readings change by if they come a little later.

    The phase of a sensor's grid is less certain in these few readings than the shape of its
    response from calibration. If it may shift, within a prior, the readings determine it. The prior
    is one more row of the design, with a reading of 0.
    """
    # so well is the phase of a sensor's grid known
    step = 0.01 * response.period_s
    kinds = design.shape[1] - 2
    moved = [_design(time, a, b, kind, kinds, replace(response, lag_s=response.lag_s + way * step)) for way in (1, -1)]
    level, *_ = _regress(design, power)
    noise = float(np.linalg.norm(power - design @ level)) / np.sqrt(max(len(power) - design.shape[1], 1))
    prior = np.append(np.zeros(design.shape[1]), noise)
    return np.vstack([np.column_stack([design, (moved[0] - moved[1]) @ level / 2]), prior]), np.append(power, 0.0)


def _regress(design: Floats, power: Floats) -> tuple[Floats, Floats, Floats]:
    """Ordinary least squares with Newey-West covariance; infinite where the design is singular.

    Residuals are enlarged by their leverage, without which few readings look too good (MacKinnon
    and White 1985, HC3). Degrees of freedom, of each level its own, are those of the readings that
    it rests on: of many that saw next to nothing of its windows none counts (Kish 1965).
    """
    size = design.shape[1]
    gram = design.T @ design
    free = len(power) - size
    if free < 3 or np.linalg.cond(gram) > 1e8:
        return np.zeros(size), np.full((size, size), np.inf), np.ones(size)
    level = np.asarray(np.linalg.solve(gram, design.T @ power), np.float64)
    bread = np.linalg.inv(gram)
    leverage = np.einsum("ni,ij,nj->n", design, bread, design)
    score = design * ((power - design @ level) / np.maximum(1 - leverage, 0.1))[:, None]
    meat = score.T @ score
    for lag in range(1, _HAC_LAGS + 1):
        cross = score[lag:].T @ score[:-lag]
        meat += (1 - lag / (_HAC_LAGS + 1)) * (cross + cross.T)
    sandwich = bread @ meat @ bread
    # Where a single reading determines a level its residual is zero: then the ordinary variance holds.
    ordinary = float(np.mean((power - design @ level) ** 2)) * len(power) / free * np.diag(bread)
    grown = np.sqrt(np.maximum(ordinary / np.maximum(np.diag(sandwich), 1e-30), 1.0))
    weight = (design @ bread) ** 2
    worth = weight.sum(0) ** 2 / np.maximum((weight**2).sum(0), 1e-300)
    covariance = np.asarray(sandwich * grown[:, None] * grown, np.float64)
    return level, covariance, np.asarray(np.minimum(worth - 1, free), np.float64)


def _model_sd(
    time: Floats, power: Floats, a: Floats, b: Floats, kind: NDArray[np.int64], response: StepResponse, level: Floats
) -> Floats:
    """What the uncertainty of the response's shape does to each level, shape of ``level``."""
    variance = np.zeros(len(level))
    for moved in varied(response):
        design = _design(time, a, b, kind, len(level) - 3, moved)
        variance += (_regress(*_shiftable(design, time, a, b, kind, moved, power))[0] - level) ** 2
    return np.asarray(np.sqrt(variance))
