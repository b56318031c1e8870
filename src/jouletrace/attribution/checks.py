"""Which fit of a recording to trust: ranges of rates, windows and phases are tried until one passes all checks.

These are of the recording, of its sample rate and phase, and of what it predicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import END_S, Fit, fit
from jouletrace.attribution.lock import EVIDENCE, Known, Lock, lock, rephased
from jouletrace.attribution.observer import Sampled
from jouletrace.attribution.outcome import Outcome
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Means, Sensor

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
"""Evidence from which a rate needs no other range to be searched."""

OF_RECORDING, OF_PLACE = ("length", "traced"), ("length", "sample_rate", "placebo")
"""Checks of the recording itself, which no other sample rate or phase would pass, and of whether the samples' times are
known."""


def trusted(
    activity: Activity, sensors: Iterable[Sensor | Means], readings: Readings, kernels: int, dropped: int
) -> tuple[Lock, list[Outcome]]:
    """The lock that passes all checks with the most evidence, else the one with the most evidence; and its checks.

    A rate that is 50 Hz off, by the rate of the readout, can pass with weak evidence: then all ranges of rates that
    ``sensors`` have are searched. A place without the evidence that it needs isn't followed. Of ``kernels`` that ran
    the tracer missed ``dropped`` more. A recording that is too short or lacks kernels is refused at any rate, and
    searched once.
    """
    tried: list[tuple[bool, float, Lock, list[Outcome]]] = []
    known = Known()
    for sensor in sensors:
        for locked in attempts(activity, sensor, readings, known):
            asked = checks(locked, readings, kernels, dropped)
            passed = all(check.passed for check in asked)
            evidence = locked.search.evidence if locked.search is not None else SURE_EVIDENCE
            tried.append((passed, evidence, locked, asked))
            if passed:
                break
            if not all(check.passed for check in asked if check.code in OF_RECORDING):
                return locked, asked
        if tried[-1][0] and tried[-1][1] >= SURE_EVIDENCE:
            break
    best = max(tried, key=lambda one: one[:2])
    return best[2], best[3]


def attempts(
    activity: Activity, sensor: Sensor | Means, readings: Readings, known: Known | None = None
) -> Iterator[Lock]:
    """Locks to check in turn: later ones from other parts of the recording and other phases. Fits have local minima.

    None begins where one did that is ``known``. Args, Raises: As for ``lock``.
    """
    known = known or Known()
    for inner in (False, True):
        before = list(known.locks)
        locked = lock(activity, sensor, readings, inner, known)
        if any(locked.fit is one.fit for one in before):
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
    found = lock.search
    assert found is not None
    beside = {"residual_w": found.residual_w, "rate_hz": found.rate_hz, "runner_up_w": found.runner_up_w}
    return Outcome.without_interval("sample_rate", found.evidence >= EVIDENCE, found.evidence, least=EVIDENCE, **beside)


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
    asked = [check_length(fitted.activity, fitted.time_s, fitted.begun_s), check_traced(kernels, dropped)]
    if not all(check.passed for check in asked):
        return asked
    if lock.search is not None:
        asked.append(check_lock(lock))  # the cause before its effects
        if not asked[-1].passed:
            return asked
    asked += [check_seen(fitted), check_held_out(fitted, readings)]
    return asked if lock.search is None else [*asked, check_placebo(fitted, readings)]


def _prediction_error(fitted: Fit, activity: Activity, readings: Readings, turn: NDArray[np.bool_]) -> float:
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
