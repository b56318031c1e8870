"""Checks of a lock, and those of rows in plain words; and one verdict of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Activity, Kind
from jouletrace.attribution.fit import END_S, Fit, fit
from jouletrace.attribution.lock import Lock
from jouletrace.attribution.observer import Sampled
from jouletrace.attribution.outcome import IMPROBABLE, Outcome
from jouletrace.attribution.rows import BUSY_IDLE_W
from jouletrace.run.readings import Readings
from jouletrace.sensor.sampler import Track

EVIDENCE = 20.0
"""Logarithm of the likelihood ratio against another sample rate. The true rate has 51 and more in recordings of known
rate; between false rates the ratio stays below 12 (docs/results/accuracy-programs.md)."""

UNSEEN = 0.03
"""Share of the time that readings attribute to other kinds than ran. Simulated programs reach 0.014 in 10 s; programs
locked to a multiple of the sample period, whose rows miss, reach 0.034 and more."""

HOLD_S = 2.0
"""Length of the blocks that are held out in turn."""

HELD_OUT_RATIO = 0.9
"""Largest prediction error of held-out readings relative to that of a model of busy and idle alone."""

PLACEBO = 1.15
"""Smallest residual at a wrong phase relative to that at the true one."""

SHORTEST_S, COVERED = 5.0, 0.8
"""Least length of a recording, and least share of it with readings."""

DROPPED = 1e-3
"""Largest share of missing kernels."""

OF_RECORDING = ("length", "traced")
"""Checks of the recording itself, which no other sample rate or phase would pass."""


@dataclass(frozen=True)
class Check:
    """One test of a table."""

    name: str  # short, for machines
    passed: bool  # whether it did
    says: str  # in a sentence, with the figures
    advice: str = ""  # what to do if it didn't; "" if it did


def check_lock(lock: Lock) -> Check:
    """Whether the sample rate is unambiguous."""
    found = lock.search
    assert found is not None
    says = (
        f"the residual is {found.residual_w:.3g} W at {found.rate_hz:.1f} samples per second of the power sensor, "
        f"and {found.runner_up_w:.3g} W at the second best rate (evidence {found.evidence:.0f}, needed {EVIDENCE:.0f})"
    )
    advice = (
        "record for longer (profile: --detail-time 60), or first another program on this GPU, whose sample rate is "
        "then stored"
    )
    return Check("sample_rate", found.evidence >= EVIDENCE, says, advice)


def check_seen(fitted: Fit) -> Check:
    """Whether samples cover kinds in proportion to their time; a step locked to the sensor hides a part of itself."""
    table, _ = fitted.activity.integrals(fitted.time_s[[0, -1]], np.zeros(len(fitted.activity.column)))
    ran = (table[1] - table[0]) / (fitted.time_s[-1] - fitted.time_s[0])
    missed = float(np.abs(fitted.seen - ran).sum() / 2)
    says = f"the readings misplace {missed:.1%} of the time among kinds of kernels (at most {UNSEEN:.0%})"
    return Check("seen", missed <= UNSEEN, says, "steps are aliased with the sensor: record with pauses between them")


def said_of_rest(outcome: Outcome) -> Check:
    """The check that the power between kernels is that of an idle GPU (``rows.check_rest``), in words."""
    value, low, _ = outcome.estimate
    says = f"between kernels the GPU draws {value:.0f} ± {value - low:.0f} W (at most {BUSY_IDLE_W:.0f} W)"
    advice = "kernels are missing from the timeline, or another process uses the GPU"
    return Check("rest", outcome.passed, says, advice)


def check_held_out(fitted: Fit, readings: Readings) -> Check:
    """Whether powers and phase from half of the readings predict the other half better than busy and idle alone.

    Response, delay and length of the average are those of all readings; powers, clock, drift and place are refitted.
    """
    if fitted.time_s[-1] - fitted.time_s[0] < 2 * HOLD_S:
        return Check("held_out", False, "the recording is too short to hold readings out", "record for longer")
    turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 0
    kinds = _prediction_error(fitted, fitted.activity, readings, turn)
    plain = _prediction_error(fitted, _busy(fitted.activity), readings, turn)
    says = (
        f"held-out readings are predicted to {kinds:.3g} W by kernels and to {plain:.3g} W by busy and idle alone "
        f"(at most {HELD_OUT_RATIO:g} times that)"
    )
    return Check(
        "held_out",
        kinds < HELD_OUT_RATIO * plain,
        says,
        "record for longer; otherwise kernels differ little in power, or the sensor is unknown",
    )


def check_placebo(fitted: Fit, readings: Readings) -> Check:
    """Whether the phase matters: samples half a period later must have a larger residual."""
    assert isinstance(fitted.observer, Sampled)
    track = fitted.observer.track
    late = replace(
        fitted.observer, track=Track(track.start_s + 0.5 / track.rate_hz, track.rate_hz, track.count, track.shift_s)
    )
    wrong = fit(fitted.activity, late, readings, fit_place=False).residual_rms_w
    says = (
        f"samples half a period later have a residual of {wrong:.3g} W in place of {fitted.residual_rms_w:.3g} W "
        f"(at least {PLACEBO:g} times that)"
    )
    return Check(
        "placebo", wrong > PLACEBO * fitted.residual_rms_w, says, "record for longer, or with pauses between iterations"
    )


def said_of_powers(outcome: Outcome, most_w: float) -> Check:
    """The check that this GPU can draw the powers (``rows.check_powers``), in words."""
    says = (
        f"powers of kernels are as far outside of 0 to {most_w:.0f} W, which this GPU can draw, by chance with a "
        f"probability of {outcome.probability:.1g} (at least {IMPROBABLE:g})"
    )
    return Check("powers", outcome.passed, says, "use sums of rows, which are better known")


def checks(lock: Lock, readings: Readings, kernels: int, dropped: int) -> list[Check]:
    """The checks of a recording; those of the sample clock need a sampling sensor."""
    fitted = lock.fit
    span = fitted.activity.finish_s - fitted.activity.begin_s
    covered = len(fitted.time_s) * float(np.median(np.diff(fitted.time_s))) / (span - fitted.begun_s - END_S)
    long = Check(
        "length",
        span >= SHORTEST_S and covered >= COVERED,
        f"the recording lasts {span:.1f} s, of which {min(covered, 1):.0%} have readings",
        f"record for at least {SHORTEST_S:.0f} s, and power all the while",
    )
    missed = dropped / (dropped + kernels)
    traced = Check(
        "traced",
        missed <= DROPPED,
        f"the tracer missed {missed:.2%} of the kernels (at most {DROPPED:.2%})",
        "trace with larger buffers",
    )
    asked = [long, traced, check_seen(fitted), check_held_out(fitted, readings)]
    if lock.search is not None:
        asked.insert(2, check_lock(lock))  # the cause before its effects
        asked.append(check_placebo(fitted, readings))
    return asked


def verdict(found: list[Check]) -> str:
    """One line: whether rows of kernels can be trusted, and if not, what to do and why."""
    failed = [check for check in found if not check.passed]
    if not failed:
        return f"trust: yes, {len(found)} of {len(found)} checks passed"
    return f"trust: no, {failed[0].advice}: {failed[0].says}"


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


def _busy(activity: Activity) -> Activity:
    """The timeline with all kinds as one."""
    return replace(activity, column=np.zeros_like(activity.column), kinds=(Kind("busy"),), members=((0,),), part=(0,))
