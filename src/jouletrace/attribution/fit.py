"""The regression of readings on the shares of kernels in them, with the sampler's phase as further unknowns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from jouletrace.attribution.activity import Activity
from jouletrace.attribution.observer import Observed, Observer, Sampled
from jouletrace.errors import BadInputError
from jouletrace.run.readings import Readings
from jouletrace.stats.regression import Prior, equivalent_noise, posterior, quantile95, sandwich, solve

Array = NDArray[np.float64]

LEAD_S = 0.35
"""Readings this soon after the start contain what ran before it, and the ramp of the power."""

END_S, LEAST = 0.06, 10
"""Readings this close to the end are left out; fewer readings than ``LEAST`` are no recording."""


REPEAT_SPREAD = 0.035
"""Prior difference of repeats of a kernel from it, as a share of the power above idle: 51 pairs in eight recordings of
H200s differ by 2 to 4 % beyond their uncertainty."""

ROUNDS = 10
GAINED, STEP = 0.995, 6.0
"""The iteration stops once the residual falls by less than 0.5 % (``GAINED``), after three rounds at least. The place
moves by at most ``STEP`` per round."""


@dataclass(frozen=True)
class Fit:
    """The powers that fit the readings best, with the nuisance parameters."""

    activity: Activity  # what ran
    observer: Observer  # the sensor, with the track of the last round but one, which this fit is linear about
    # The readings that were used, shape (n,)
    time_s: Array
    watts: Array
    power_w: Array  # of each column of the activity, idle last, shape (k,)
    clock_exponent: float  # of the power above idle in the duration of kernels, which shows the clock: some -2
    design: Array  # derivative of the readings by powers, exponent and all other unknowns, shape (n, k + 1 + m)
    prior: Prior  # of these unknowns
    lags: int  # readings over which residuals are correlated
    columns: dict[str, int]  # groups of columns of ``design`` and their widths, in order
    seen: Array  # mean share of each of them in the readings, idle last, shape (k,)
    drift_w: Array  # slow drift of the whole, of mean 0, shape (n,)
    residual_w: Array  # reading minus prediction, shape (n,)
    noise_w: float  # standard deviation of equivalent independent noise

    @cached_property
    def covariance(self) -> Array:
        """Of ``power_w`` and then of ``clock_exponent``, shape (k + 1, k + 1)."""
        count = len(self.power_w) + 1
        return sandwich(self.design, self.residual_w, self.prior, self.noise_w, self.lags)[:count, :count]

    @cached_property
    def covariances(self) -> dict[str, Array]:
        """``covariance`` as it were if only the unknowns up to each group were unknown."""
        powers, count = len(self.power_w) + 1, 0
        found: dict[str, Array] = {}
        for name, width in self.columns.items():
            count += width
            prior = Prior(self.prior.rows[:, :count], self.prior.target)
            every = sandwich(self.design[:, :count], self.residual_w, prior, self.noise_w, self.lags)
            found |= {name: every[:powers, :powers]} if width else {}
        return found

    @cached_property
    def design_covariance(self) -> Array:
        """The same with readings of independent noise."""
        count = len(self.power_w) + 1
        return posterior(self.design, self.prior, self.noise_w)[:count, :count]

    @cached_property
    def prior_covariance(self) -> Array:
        """The same without readings."""
        rows = self.prior.rows[:, : len(self.power_w) + 1]  # independent of the other unknowns
        return np.asarray(np.linalg.inv(rows.T @ rows))

    @property
    def errors95(self) -> float:
        """Standard errors in a 95 % half-width."""
        return quantile95(min(self.lags / len(self.watts), 1.0))

    @property
    def begun_s(self) -> float:
        """Time from the start of the timeline to the first reading used."""
        return max(LEAD_S, self.observer.reach_s)

    @property
    def residual_rms_w(self) -> float:
        """Root mean square of the residuals."""
        return float(np.sqrt(np.mean(self.residual_w**2)))

    def steady_w(self) -> Array:
        """Power above idle of each interval at the mean clock, shape (intervals,)."""
        return np.asarray((self.power_w[:-1] - self.power_w[-1])[self.activity.column])

    def above_w(self) -> Array:
        """Power above idle of each interval at its own clock, shape (intervals,)."""
        return np.asarray(self.steady_w() * (1 + self.clock_exponent * self.activity.slowness))


def fit(
    activity: Activity,
    observer: Observer,
    readings: Readings,
    *,
    use: NDArray[np.bool_] | None = None,
    fit_place: bool = True,
    fit_response: bool = False,
) -> Fit:
    """Gauss-Newton on powers, exponent of the clock, drift and the place of the sensor in time, and its response.

    The unknowns, in the order of the columns of ``Fit.design``: powers of the activity's columns, W, shape (k,), idle
    last; the exponent, shape (1,); the drift, W, shape (d,); with ``fit_place``, ``observer.place``, shape (m,); with
    ``fit_response``, weights of the bins of a sampler's response, shape (46,).

    Args:
        activity: What ran: n intervals of k - 1 columns.
        observer: The sensor; the track of a sampler must be within 50 us of the true one.
        readings: The record, shape (r,).
        use: Mask of the readings to use, shape (r,); all within the timeline if None.
        fit_place: Whether to fit the track of a sampler, or delay and window of a sensor that averages.
        fit_response: Whether to fit the response of a sampler too; only with ``fit_place``.

    Raises:
        BadInputError: With fewer than 10 readings where kernels run.
    """
    chosen = readings.between(activity.begin_s + max(LEAD_S, observer.reach_s), activity.finish_s - END_S)
    chosen &= True if use is None else use
    time, watts = readings.time_s[chosen], readings.value[chosen]
    enough(activity, int(chosen.sum()), columns=False)
    problem = _Problem(activity, time, watts, _drift(time), fit_place, fit_response)
    seen = observer.observe(activity, time, activity.slowness, np.ones(len(activity.column)), fit_response)
    above_w, prior = _start(activity, seen.shares[:, -1], watts, readings.rest_w)
    found, moved = problem.step(observer, seen.scaled(above_w), prior, float(np.std(watts)))
    for round_ in range(1, ROUNDS):
        before = found
        seen = moved.observe(activity, time, found.steady_w() * activity.slowness, found.above_w(), fit_response)
        found, moved = problem.step(moved, seen, prior, found.noise_w)
        if round_ >= 2 and np.std(found.residual_w) > GAINED * np.std(before.residual_w):
            break
    return found


@dataclass(frozen=True)
class _Problem:
    """What is fitted, and by which unknowns: the same in all rounds."""

    activity: Activity
    time_s: Array  # of the readings, shape (n,)
    watts: Array  # shape (n,)
    drift: Array  # columns of the slow drift, shape (n, d)
    fit_place: bool
    fit_response: bool

    def step(self, observer: Observer, seen: Observed, prior: Prior, noise_w: float) -> tuple[Fit, Observer]:
        """The fit that is linear about a place of the observer, and the observer at the place of this fit.

        ``prior`` is that of the powers and the exponent, ``noise_w`` the standard deviation of a reading so far.
        """
        nuisance = _Nuisance(observer, self.fit_place, self.fit_response, seen)
        powers, pieces = seen.shares.shape[1], self.drift.shape[1]
        design = np.column_stack([seen.shares, seen.value, self.drift, nuisance.columns])
        both = prior.beside(Prior.of(np.zeros(pieces), np.full(pieces, 50.0))).beside(nuisance.prior)
        target = self.watts + nuisance.columns @ nuisance.now  # linearised about the present place
        x = solve(design, target, both, noise_w)
        power, (exponent, *_), drift, place = np.split(x, np.cumsum([powers, 1, pieces]))
        residual = target - design @ x
        # Residuals are correlated over 1 s: swings at a power cap last 60 ms, regimes of a clock longer.
        correlated_s = max(1.0, observer.reach_s)
        found = Fit(
            activity=self.activity,
            observer=observer,
            time_s=self.time_s,
            watts=self.watts,
            power_w=power,
            clock_exponent=float(exponent),
            design=design,
            prior=both,
            lags=max(1, round(correlated_s / float(np.median(np.diff(self.time_s))))),
            columns={"noise of the readings": powers + 1, "drift": pieces, **nuisance.widths},
            seen=seen.shares.mean(axis=0),
            drift_w=self.drift @ drift,
            residual_w=residual,
            noise_w=equivalent_noise(residual),
        )
        return found, nuisance.made(place)


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


class _Nuisance:
    """The nuisance parameters of an observer: its place in time and, for a sampler, the bins of its response.

    Attributes:
        columns: Derivative of the readings, shape (n, m).
        now: Values at which the derivatives are taken, shape (m,).
        prior: Of the parameters.
    """

    def __init__(self, observer: Observer, fit_place: bool, fit_response: bool, seen: Observed) -> None:
        self._observer = observer
        self.columns, self.now = np.zeros((len(seen.shares), 0)), np.zeros(0)
        self.prior = Prior(np.zeros((0, 0)), np.zeros(0))
        self._places = 0
        if fit_place:
            self.columns, self.now, self.prior = seen.shift, observer.place, observer.prior
            self._places = len(self.now)
        if isinstance(observer, Sampled) and fit_response:
            self.columns = np.column_stack([self.columns, seen.shape])
            self.now = np.concatenate([self.now, observer.change])
            self.prior = self.prior.beside(observer.shape_prior)

    @property
    def widths(self) -> dict[str, int]:
        """Groups of ``columns``."""
        return {"samples in time": self._places, "response of the sensor": len(self.now) - self._places}

    def made(self, x: Array) -> Observer:
        """The observer at a solution, in a bounded step."""
        if not self._places:
            return self._observer
        step = np.clip(x[: self._places] - self.now[: self._places], -STEP, STEP)
        change = x[self._places :]
        if isinstance(self._observer, Sampled) and not len(change):
            change = self._observer.change
        return self._observer.moved(self.now[: self._places] + step, change)


def _start(activity: Activity, idle: Array, watts: Array, rest_w: tuple[float, float]) -> tuple[float, Prior]:
    """Power above idle, one for all kernels, and a prior about it that is as wide.

    Parts of a kernel differ less from each other than kernels do, and repeats differ least.
    """
    prior = Prior.of(np.array([500.0, rest_w[0]]), np.array([2000.0, rest_w[1]]))
    busy, rest = solve(np.column_stack([1 - idle, idle]), watts, prior, float(np.std(watts)) + 1.0)
    spread, columns = max(float(busy - rest), 30.0), len(activity.members)
    same = np.array([[a == b for b in activity.of] for a in activity.of], float)
    covariance = np.zeros((columns + 2, columns + 2))
    # Heads and tails differ by 40 % of the power above idle from the middle of their kernels.
    apart = np.where(np.array(activity.part) > 0, 0.4, np.where(activity.repeated, REPEAT_SPREAD, 1e-3)) * spread
    covariance[:columns, :columns] = spread**2 * same + np.diag(apart**2)
    # The exponent of power in the clock is 0 ± 5; that of dynamic power is 2 to 3.
    covariance[columns, columns], covariance[-1, -1] = rest_w[1] ** 2, 5.0**2
    centre = np.append(np.full(columns, busy), [rest_w[0], 0.0])
    return float(busy - rest), Prior.by(centre, covariance)


def _drift(time: Array) -> Array:
    """The slow drift with temperature: quadratic splines of mean 0, shape (n, m); no columns for a few seconds."""
    span = float(time[-1] - time[0])
    pieces = round(span / 4.0)
    if pieces < 2:
        return np.zeros((len(time), 0))
    knots = np.concatenate([[0] * 2, np.linspace(0, 1, pieces + 1), [1] * 2])
    basis = BSpline.design_matrix((time - time[0]) / span, knots, 2).toarray()
    return np.asarray((basis - basis.mean(axis=0))[:, 1:])
