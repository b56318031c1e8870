"""Where a sensor's samples or windows lie: least squares on powers and place, which ``lock`` takes in turns.

Powers and their uncertainty are those of ``program``, which begins at the place that is determined here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import block_diag

from jouletrace.arrays import Floats, Mask
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.observer import Observer
from jouletrace.attribution.prior import Prior as Beliefs
from jouletrace.attribution.program import Columns
from jouletrace.errors import BadInputError
from jouletrace.run.readings import Readings
from jouletrace.stats.regression import LinearPrior, equivalent_noise, solve

LEAD_S = 0.35
"""Readings this soon after the start contain what ran before it, and the ramp of the power."""

END_S, LEAST = 0.06, 10
"""Readings this close to the end are left out; fewer readings than ``LEAST`` are no recording."""

ROUNDS = 10
GAINED, STEP = 0.995, 6.0
"""The iteration stops once the residual falls by less than 0.5 % (``GAINED``), after three rounds at least. The place
moves by at most ``STEP`` per round."""

LEAST_W, DRIFT_W = 30.0, 50.0
"""Least power above idle that the prior is about, and standard deviation of each spline of the slow drift."""

ENDS, ALIKE = 0.4, 1e-3
"""Heads and tails from the middle of their kernels over the power above idle, and a little that keeps it regular."""

BELIEFS, NOWHERE = Beliefs(), (np.zeros(0), LinearPrior(np.zeros((0, 0)), np.zeros(0)))
"""What is believed of powers otherwise, and the unknowns of a place that isn't fitted."""


@dataclass(frozen=True)
class Fit:
    """The powers that fit the readings best at a place of the sensor."""

    activity: Activity  # what ran
    observer: Observer  # the sensor, with the track of the last round but one, which this fit is linear about
    # The readings that were used, shape (n,)
    time_s: Floats
    watts: Floats
    power_w: Floats  # of each column of the activity, idle last, shape (k,)
    clock_exponent: float  # of the power above idle in the duration of kernels, which shows the clock: some -2
    seen: Floats  # mean share of each column in the readings, idle last, shape (k,)
    drift_w: Floats  # slow drift of the whole, of mean 0, shape (n,)
    residual_w: Floats  # reading minus prediction, shape (n,)

    @property
    def residual_rms_w(self) -> float:
        """Root mean square of the residuals."""
        return float(np.sqrt(np.mean(self.residual_w**2)))

    def steady_w(self) -> Floats:
        """Power above idle of each interval at the mean clock, shape (intervals,)."""
        return np.asarray((self.power_w[:-1] - self.power_w[-1])[self.activity.column])

    def above_w(self) -> Floats:
        """Power above idle of each interval at its own clock, shape (intervals,)."""
        return np.asarray(self.steady_w() * (1 + self.clock_exponent * self.activity.slowness))


def fit(
    activity: Activity,
    observer: Observer,
    readings: Readings,
    *,
    use: Mask | None = None,
    fit_place: bool = True,
    fit_response: bool = False,
    rounds: int = ROUNDS,
) -> Fit:
    """Gauss-Newton on powers, exponent of the clock, drift and the place of the sensor in time, and its response.

    Args:
        activity: What ran: n intervals of k - 1 columns.
        observer: The sensor; the track of a sampler must be within 50 us of the true one.
        readings: The record, shape (r,).
        use: Mask of the readings to use, shape (r,); all within the timeline if None.
        fit_place: Whether to fit the track of a sampler, or delay and window of a sensor that averages.
        fit_response: Whether to fit the response of a sampler too; only with ``fit_place``.
        rounds: Most rounds.

    Raises:
        BadInputError: With fewer than 10 readings where kernels run.
    """
    chosen = explained(activity, readings, observer.reach_s) & (True if use is None else use)
    time, watts = readings.time_s[chosen], readings.value[chosen]
    enough(activity, int(chosen.sum()), columns=False)
    seen = observer.observe(activity, time, activity.slowness, np.ones(len(activity.column)), fit_response)
    above_w, powers = _start(activity, seen.shares[:, -1], watts, readings.rest_w)
    seen = replace(seen, value=above_w * seen.value, shift=above_w * seen.shift)
    drift, noise_w = drift_of(time), float(np.std(watts))
    powers = powers.beside(LinearPrior.independent(np.zeros(drift.shape[1]), np.full(drift.shape[1], DRIFT_W)))
    fitted, moved = None, observer
    for round_ in range(rounds):
        before, observer = fitted, moved
        if before is not None:
            steady_w, above_w = before.steady_w() * activity.slowness, before.above_w()
            seen = observer.observe(activity, time, steady_w, above_w, fit_response)
        unknowns, prior = observer.unknowns(fit_response) if fit_place else NOWHERE
        shift = seen.shift[:, : len(unknowns)]
        design = np.column_stack([seen.shares, seen.value, drift, shift])
        target = watts + shift @ unknowns  # linearised about the present place
        x = solve(design, target, powers.beside(prior), noise_w)
        power_w, (exponent, *_), slow, there = np.split(x, np.cumsum([seen.shares.shape[1], 1, drift.shape[1]]))
        left, shares = target - design @ x, seen.shares.mean(axis=0)
        fitted = Fit(activity, observer, time, watts, power_w, float(exponent), shares, drift @ slow, left)
        noise_w = equivalent_noise(left)
        moved = observer.moved(unknowns + np.clip(there - unknowns, -STEP, STEP)) if fit_place else observer
        if round_ >= 2 and before is not None and np.std(left) > GAINED * np.std(before.residual_w):
            break
    assert fitted is not None
    return fitted


def explained(activity: Activity, readings: Readings, reach_s: float = 0.0) -> Mask:
    """Mask of the readings that the timeline explains, of a sensor that depends on ``reach_s`` before each."""
    return readings.between(activity.begin_s + max(LEAD_S, reach_s), activity.finish_s - END_S)


def enough(activity: Activity, readings: int, columns: bool = True) -> None:
    """Check that a timeline has readings, and a whole recording more readings than ``columns``.

    Raises:
        BadInputError: With fewer than 10 readings, or than columns.
    """
    if readings < LEAST:
        raise BadInputError(
            f"power record: {readings} readings where kernels run, {LEAST} are needed; record the same GPU for as long "
            f"as the timeline lasts ({activity.finish_s - activity.begin_s:.1f} s)"
        )
    if columns and readings < len(activity.members):
        raise BadInputError(
            f"timeline: {len(activity.members)} kinds and sets of kernels that run at once, but {readings} readings; "
            "record for longer, on fewer streams, or with coarser kinds"
        )


def _start(activity: Activity, idle: Floats, watts: Floats, rest_w: tuple[float, float]) -> tuple[float, LinearPrior]:
    """Power above idle, one for all kernels, and a prior of powers and clock about it that is as wide."""
    prior = LinearPrior.independent(np.array([500.0, rest_w[0]]), np.array([2000.0, rest_w[1]]))
    busy_w, idle_w = solve(np.column_stack([1 - idle, idle]), watts, prior, float(np.std(watts)) + 1.0)
    spread_w = max(float(busy_w - idle_w), LEAST_W)
    columns = Columns.from_activity(activity, (busy_w, spread_w), spread_w * np.array([ENDS, BELIEFS.repeats, ALIKE]))
    covariance = block_diag((columns.made * columns.sd_w**2) @ columns.made.T, rest_w[1] ** 2, BELIEFS.clock**2)
    return float(busy_w - idle_w), LinearPrior.by(
        np.append(columns.made @ columns.mean_w, [rest_w[0], 0.0]), covariance
    )


def drift_of(time: Floats) -> Floats:
    """The slow drift with temperature: quadratic splines of mean 0, shape (n, m); no columns for a few seconds."""
    span = float(time[-1] - time[0])
    pieces = round(span / 4.0)
    if pieces < 2:
        return np.zeros((len(time), 0))
    knots = np.concatenate([[0] * 2, np.linspace(0, 1, pieces + 1), [1] * 2])
    basis = BSpline.design_matrix((time - time[0]) / span, knots, 2).toarray()
    return np.asarray((basis - basis.mean(axis=0))[:, 1:])
