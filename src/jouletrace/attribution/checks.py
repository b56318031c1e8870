"""Which fit of a recording to trust: ranges of rates, windows and phases are tried until one passes all checks.

These are of the recording, of its sample rate and phase, and of what it predicts. Then which sums of a program's rows
the readings resolve, and whether sensor and powers are possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag, solve_triangular
from scipy.optimize import lsq_linear
from scipy.special import chdtrc

from jouletrace.arrays import Floats, Mask
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import END_S, LEAD_S, Fit, drift_of, fit
from jouletrace.attribution.lock import EVIDENCE, Attempts, Lock, lock, rephased
from jouletrace.attribution.observer import Sampled
from jouletrace.attribution.outcome import IMPROBABLE, Outcome
from jouletrace.attribution.program import ProgramEnergies
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.sampler import SampleTimes
from jouletrace.sensor.shares import Response, Timeline, shares

UNSEEN = 0.03
"""Share of the time that readings attribute to other kinds than ran. Simulated programs reach 0.014 in 10 s; programs
locked to a multiple of the sample period, whose rows miss, reach 0.034 and more."""

HOLD_S = 2.0
"""Length of the blocks that are held out in turn."""

HELD_OUT_RATIO, PLACEBO = 0.9, 1.15
"""Largest prediction error of held-out readings relative to that of a model of busy and idle alone; and smallest
residual at a wrong phase relative to that at the true one."""

SHORTEST_S, COVERED, DROPPED = 5.0, 0.8, 1e-3
"""Least length of a recording, least share of it with readings, and largest share of missing kernels."""

SURE_EVIDENCE = 50.0
"""Evidence from which a rate isn't compared with those that could be taken for it."""

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

OF_RECORDING, OF_PLACE = ("length", "traced"), ("length", "sample_rate", "placebo")
"""Checks of the recording itself, which no other sample rate or phase would pass, and of whether the samples' times are
known."""


def trusted(
    activity: Activity, sensors: Iterable[Sensor | Means], readings: Readings, kernels: int, dropped: int
) -> tuple[Lock, list[Outcome]]:
    """The lock that passes all checks with the most evidence, else the one with the most evidence; and its checks.

    A rate that is 50 Hz off, by the rate of the readout, can pass with weak evidence: then the rates that could be
    taken for it are searched. Later ones of ``sensors`` are tried where none passes. A place without the evidence that
    it needs isn't followed. Of ``kernels`` that ran the tracer missed ``dropped`` more. A recording that is too short
    or lacks kernels is refused at any rate, and searched once.
    """
    tried: list[tuple[bool, float, Lock, list[Outcome]]] = []
    earlier, ranges = Attempts(), list(sensors)
    while ranges:
        sensor = ranges.pop(0)
        for locked in attempts(activity, sensor, readings, earlier):
            asked = checks(locked, readings, kernels, dropped)
            passed = all(check.passed for check in asked)
            evidence = locked.search.evidence if locked.search is not None else SURE_EVIDENCE
            tried.append((passed, evidence, locked, asked))
            if passed:
                break
            if not all(check.passed for check in asked if check.code in OF_RECORDING):
                return locked, asked
        if tried[-1][0]:
            ranges, searched = [], locked.search
            if isinstance(sensor, Sensor) and searched and not sensor.aliased and evidence < SURE_EVIDENCE:
                ranges = [sensor.around(searched.rate_hz, aliased=True)]
    best = max(tried, key=lambda attempt: attempt[:2])
    return best[2], best[3]


def attempts(
    activity: Activity, sensor: Sensor | Means, readings: Readings, earlier: Attempts | None = None
) -> Iterator[Lock]:
    """Locks to check in turn: later ones from other parts of the recording and other phases. Fits have local minima.

    None begins where one did that is ``earlier``. Args, Raises: As for ``lock``.
    """
    earlier = earlier or Attempts()
    for inner in (False, True):
        before = list(earlier.locks)
        locked = lock(activity, sensor, readings, inner, earlier)
        if any(locked.fit is old.fit for old in before):
            continue
        yield locked
        if locked.search is None:
            return
        if locked.search.evidence >= EVIDENCE:
            yield rephased(locked, readings)


def check_length(activity: Activity, time_s: Floats, begun_s: float) -> Outcome:
    """The check that a recording is long enough for a place: with readings all the while, and more of them than powers.

    They are used from ``begun_s`` on.
    """
    span, powers = activity.finish_s - activity.begin_s, len(activity.members)
    covered = len(time_s) * float(np.median(np.diff(time_s))) / (span - begun_s - END_S)
    long = span >= SHORTEST_S and covered >= COVERED and time_s[-1] - time_s[0] >= 2 * HOLD_S
    beside = {"covered": min(covered, 1.0), "readings": len(time_s), "powers": powers, "least": SHORTEST_S}
    return Outcome.without_interval("length", long and powers <= len(time_s), span, **beside)


def check_traced(kernels: int, dropped: int) -> Outcome:
    """The check that the tracer missed few kernels."""
    missed = dropped / (dropped + kernels)
    return Outcome.without_interval("traced", missed <= DROPPED, missed, most=DROPPED)


def check_lock(lock: Lock) -> Outcome:
    """The check that one sample rate alone fits, by its evidence."""
    searched = lock.search
    assert searched is not None
    beside = {"residual_w": searched.residual_w, "rate_hz": searched.rate_hz, "runner_up_w": searched.runner_up_w}
    return Outcome.without_interval(
        "sample_rate", searched.evidence >= EVIDENCE, searched.evidence, least=EVIDENCE, **beside
    )


def check_seen(fitted: Fit) -> Outcome:
    """The check that samples cover kinds in proportion to their time; a step locked to the sensor hides a part."""
    ran = fitted.activity.timeline.seconds(fitted.time_s[[0, -1]])[0] / np.ptp(fitted.time_s)
    missed = float(np.abs(fitted.seen - np.append(ran, 1 - ran.sum())).sum() / 2)
    return Outcome.without_interval("seen", missed <= UNSEEN, missed, most=UNSEEN)


def check_held_out(fitted: Fit, readings: Readings) -> Outcome:
    """The check that powers and phase from half of the readings predict the other half better than busy and idle.

    Response, delay and length of the average are those of all readings; powers, clock, drift and place are refitted.
    """
    turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 0
    kinds = _prediction_error(fitted, fitted.activity, readings, turn)
    plain = _prediction_error(fitted, fitted.activity.as_one(), readings, turn)
    return Outcome.without_interval(
        "held_out", kinds < HELD_OUT_RATIO * plain, kinds, plain_w=plain, most=HELD_OUT_RATIO
    )


def check_placebo(fitted: Fit, readings: Readings) -> Outcome:
    """The check that the phase matters: samples half a period later must have a larger residual."""
    assert isinstance(fitted.observer, Sampled)
    late = replace(fitted.observer, track=fitted.observer.track.later(0.5))
    wrong = fit(fitted.activity, late, readings, fit_place=False).residual_rms_w
    right = fitted.residual_rms_w
    return Outcome.without_interval("placebo", wrong > PLACEBO * right, wrong, residual_w=right, least=PLACEBO)


def checks(lock: Lock, readings: Readings, kernels: int, dropped: int) -> list[Outcome]:
    """The checks of a recording; those of the sample clock need a sampling sensor.

    Of a recording that is unfit itself there are no others, nor of a rate without evidence.
    """
    fitted = lock.fit
    begun_s = max(LEAD_S, fitted.observer.reach_s)
    asked = [check_length(fitted.activity, fitted.time_s, begun_s), check_traced(kernels, dropped)]
    if not all(check.passed for check in asked):
        return asked
    if lock.search is not None:
        asked.append(check_lock(lock))  # the cause before its effects
        if not asked[-1].passed:
            return asked
    asked += [check_seen(fitted), check_held_out(fitted, readings)]
    return asked if lock.search is None else [*asked, check_placebo(fitted, readings)]


def _prediction_error(fitted: Fit, activity: Activity, readings: Readings, turn: Mask) -> float:
    """Root mean square error of predicting each half of the readings from the other."""
    wrong = []
    for use in (turn, ~turn):
        half = fit(activity, fitted.observer, readings, use=use)
        tested = readings.between(half.time_s[0], half.time_s[-1]) & ~use
        if not tested.any():
            continue
        time, none = readings.time_s[tested], np.zeros(len(activity.column))
        seen = half.observer.observe(activity, time, half.above_w() - half.steady_w(), none)
        predicted = seen.shares @ half.power_w + seen.value + np.interp(time, half.time_s, half.drift_w)
        wrong.append(readings.value[tested] - predicted)
    return float(np.sqrt(np.mean(np.concatenate(wrong) ** 2))) if wrong else float("inf")


def resolved(rows: ProgramEnergies, amounts: ArrayLike) -> Mask:
    """True for sums of kinds that the readings determine, and not the prior alone; shape (r,).

    A row is a sum of one kind, a pool one of several: kernels that always follow each other may be resolved together
    where none is alone. ``amounts`` are the weights of the kinds, shape (r, kinds).
    """
    amounts = np.atleast_2d(np.asarray(amounts, np.float64))
    mean, low, high = rows.energies.interval(rows.together(amounts))
    before, after = (((amounts @ covariance) * amounts).sum(axis=1) for covariance in (rows.before, rows.after))
    return np.asarray(((high - low) / 2 <= WIDTH * np.abs(mean)) & (after <= PRIOR_SHARE**2 * before))


def of_each(rows: ProgramEnergies, seconds: Floats, sd_w: float) -> ProgramEnergies:
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
    return ProgramEnergies(
        energies=replace(rows.energies, mean_j=rows.energies.mean_j @ made.T, covariance=seen),
        seconds=rows.seconds[0] * share,
        before=common * rows.before[0, 0] + np.diag(variance),
        after=common * WIDER**2 * rows.after[0, 0] + apart,
        by_sensor=common * WIDER**2 * rows.by_sensor[0, 0],
        varies=rows.varies,
    )


def check_rest(rows: ProgramEnergies, rest_s: float) -> Outcome:
    """The check that between kernels, for ``rest_s`` of the first span, the GPU draws what one does that rests.

    Its estimate is that power in W. Where more is drawn, kernels are missing, or another process runs.
    """
    rest = np.zeros(rows.energies.mean_j.shape[1])
    rest[0] = 1.0
    rest -= rows.together(np.ones(len(rows.seconds)))[0]
    value, low, high = (float(end[0]) / max(rest_s, 1e-9) for end in rows.energies.interval(rest))
    return Outcome("rest", low <= BUSY_IDLE_W, (value, low, high), beside={"most": BUSY_IDLE_W})


def check_averages(
    rows: ProgramEnergies, activity: Activity, readings: Readings, idle_w: float, response: Response, sensor: Sensor
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
    for rate_hz, phase in product(np.linspace(*sensor.rates_hz, 6).tolist(), (0.0, 0.5)):
        track = SampleTimes.straight(from_s, activity.finish_s, rate_hz, from_s + phase / rate_hz)
        sampled = Sampled(sensor, track.over(float(time_s[0]) - 10 * response.rise_s, float(time_s[-1])))
        tried = scatter(sampled.observe(activity, time_s, none, none).shares[:, :-1] @ column_w)
        least, most = min(least, tried), max(most, tried)
    most = float(np.linalg.norm([most, response.noise_w, WANDERS * average_w.mean()]))
    value, beside = scatter(readings.value), {"least": SCATTER[0] * least, "most": SCATTER[1] * most}
    return Outcome.without_interval("averages", beside["least"] <= value <= beside["most"], value, **beside)


def check_powers(rows: ProgramEnergies, most_w: float) -> Outcome:
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
    nearest = lsq_linear(white, white @ power_w, (0.0, most_w), method="bvls")  # which knows the active bounds exactly
    probability = float(chdtrc(max(np.count_nonzero(nearest.active_mask), 1), 2 * nearest.cost))
    return Outcome("powers", probability >= IMPROBABLE, estimate, probability, beside)
