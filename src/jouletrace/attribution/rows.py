"""Judgements of a program's rows: which sums the readings resolve, and whether sensor and powers are possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag, solve_triangular
from scipy.optimize import lsq_linear
from scipy.special import chdtrc

from jouletrace.arrays import Floats, Mask
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import drift_of
from jouletrace.attribution.observer import Sampled
from jouletrace.attribution.outcome import IMPROBABLE, Outcome
from jouletrace.attribution.program import Rows
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Sensor
from jouletrace.sensor.sampler import Track
from jouletrace.sensor.shares import Response, Timeline, shares

WIDTH, PRIOR_SHARE = 0.5, 0.5
"""Largest half-width over the energy of a sum that is resolved; and largest standard deviation over the prior's, if
errors of readings were those of the chain and independent."""

BUSY_IDLE_W = 280.0
"""No GPU draws as much between kernels: kernels are missing, another process runs, or the phase is wrong."""

SCATTER, WANDERS = (0.9, 1.75), 0.002
"""Scatter of readings about averages: at least that at the place of samples with the least, and at most that at the
place with the most, times these; and what power wanders by while equal kernels run, relative to that above idle.
Simulated programs have 0.94 and more, and up to 1.71; timelines that are 5 ms late, lack a twentieth of their kernels
or have others' names 2.2 and more, those of random times or steps in time with the samples 0.85 and less."""


WIDER = 1.3
"""Errors of the power that all kernels have in common over what the chain says of them: kernels in one column differ by
more than the chain's white spread. Chosen on simulated programs of 1 and 8 s, seeds 60 to 75."""


def resolved(rows: Rows, amounts: ArrayLike) -> Mask:
    """True for sums of kinds that the readings determine, and not the prior alone; shape (r,).

    A row is a sum of one kind, a pool one of several: kernels that always follow each other may be resolved together
    where none is alone. ``amounts`` are the weights of the kinds, shape (r, kinds).
    """
    amounts = np.atleast_2d(np.asarray(amounts, np.float64))
    mean, low, high = rows.energies.interval(rows.together(amounts))
    before, after = (((amounts @ one) * amounts).sum(axis=1) for one in (rows.before, rows.after))
    return np.asarray(((high - low) / 2 <= WIDTH * np.abs(mean)) & (after <= PRIOR_SHARE**2 * before))


def of_each(rows: Rows, seconds: Floats, sd_w: float) -> Rows:
    """Rows of kinds that run for ``seconds``, shape (kinds,), by that of all as one kind (``Activity.as_one``).

    Each kind draws what all draw in the mean, and differs from it by ``sd_w`` independently of others, but for their
    sum, which is that of the one row.
    """
    spans, share, variance = rows.energies.mean_j.shape[1] - 1, seconds / seconds.sum(), (sd_w * seconds) ** 2
    apart = np.diag(variance) - np.outer(variance, variance) / variance.sum()
    made = block_diag(np.eye(spans), share[:, None])
    seen = WIDER**2 * (made @ rows.energies.covariance @ made.T)
    seen[:, spans:, spans:] += apart
    common = np.outer(share, share)
    return Rows(
        energies=replace(rows.energies, mean_j=rows.energies.mean_j @ made.T, covariance=seen),
        seconds=rows.seconds[0] * share,
        before=common * rows.before[0, 0] + np.diag(variance),
        after=common * WIDER**2 * rows.after[0, 0] + apart,
        by_sensor=common * WIDER**2 * rows.by_sensor[0, 0],
    )


def check_rest(rows: Rows, rest_s: float) -> Outcome:
    """The check that between kernels, for ``rest_s`` of the first span, the GPU draws what one does that rests.

    Its estimate is that power in W. Where more is drawn, kernels are missing, or another process runs.
    """
    rest = np.zeros(rows.energies.mean_j.shape[1])
    rest[0] = 1.0
    rest -= rows.together(np.ones(len(rows.seconds)))[0]
    value, low, high = (float(end[0]) / max(rest_s, 1e-9) for end in rows.energies.interval(rest))
    return Outcome("rest", low <= BUSY_IDLE_W, (value, low, high), beside={"most": BUSY_IDLE_W})


def check_averages(
    rows: Rows, activity: Activity, readings: Readings, idle_w: float, response: Response, sensor: Sensor
) -> Outcome:
    """The check that readings scatter about averages of all time as samples of these powers do, wherever they lie.

    They scatter more if times, names or kernels are wrong or another process runs, and less if samples always fall on
    the same kernels. Drift and clock are left out. ``response`` is that of the averages.
    """
    time_s, from_s = readings.time_s, activity.begin_s
    means_j, _ = rows.energies.moments(rows.together(np.eye(len(rows.seconds))))
    above_w = np.where(rows.seconds > 0, means_j / np.maximum(rows.seconds, 1e-12) - idle_w, 0.0)
    column_w, moment_s, none = activity.shares @ above_w, time_s - response.delay_s, np.zeros(len(activity.column))
    clock_w = column_w[activity.column] * activity.slowness
    clock = Timeline(activity.start_s, activity.end_s, np.zeros_like(activity.column), 1, clock_w)
    common = np.column_stack([np.ones(len(time_s)), drift_of(time_s), shares(moment_s, clock, response)])
    orthogonal, _ = np.linalg.qr(common)
    average_w = shares(moment_s, activity.timeline, response) @ column_w

    def scatter(read_w: Floats) -> float:
        left_w = read_w - average_w
        return float(np.std(left_w - orthogonal @ (orthogonal.T @ left_w)))

    least, most = np.inf, 0.0
    for rate_hz in np.linspace(*sensor.rates_hz, 6):
        for phase in (0.0, 0.5):
            track = Track.straight(from_s, activity.finish_s, float(rate_hz), from_s + phase / rate_hz)
            sampled = Sampled(sensor, track.over(float(time_s[0]) - 10 * response.rise_s, float(time_s[-1])))
            tried = scatter(sampled.observe(activity, time_s, none, none).shares[:, :-1] @ column_w)
            least, most = min(least, tried), max(most, tried)
    most = float(np.linalg.norm([most, response.noise_w, WANDERS * average_w.mean()]))
    value, beside = scatter(readings.value), {"least": SCATTER[0] * least, "most": SCATTER[1] * most}
    return Outcome.without_interval("averages", beside["least"] <= value <= beside["most"], value, **beside)


def check_powers(rows: Rows, most_w: float) -> Outcome:
    """The check that each kind draws from 0 to ``most_w``, by the least chi² with which all would lie in between.

    Its estimate is of the kind that is farthest beyond a bound: by how much, in W; below 0 if none is.
    """
    ran = np.flatnonzero(rows.seconds > 0)
    means, covariance = rows.energies.moments(rows.together(np.eye(len(rows.seconds))[ran]))
    power_w, scale = means / rows.seconds[ran], rows.seconds[ran]
    covariance = covariance / np.outer(scale, scale)
    beyond_w = np.maximum(-power_w, power_w - most_w)
    worst = int(np.argmax(beyond_w))
    value, half = float(beyond_w[worst]), 1.96 * float(np.sqrt(covariance[worst, worst]))
    estimate, beside = (value, value - half, value + half), {"most": most_w, "least": IMPROBABLE}
    if value <= 0:
        return Outcome("powers", True, estimate, 1.0, beside)
    covariance += 1e-9 * np.diag(covariance.diagonal())  # of kinds that always run at once
    white = solve_triangular(np.linalg.cholesky(covariance), np.eye(len(ran)), lower=True)
    found = lsq_linear(white, white @ power_w, (0.0, most_w), method="bvls")  # which knows the active bounds exactly
    probability = float(chdtrc(max(np.count_nonzero(found.active_mask), 1), 2 * found.cost))
    return Outcome("powers", probability >= IMPROBABLE, estimate, probability, beside)
