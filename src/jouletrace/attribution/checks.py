"""Whether to believe a table: few checks, in plain words, and one verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Activity, Kind
from jouletrace.attribution.fit import TAIL_S, Fit, fit
from jouletrace.attribution.lock import Lock
from jouletrace.attribution.rows import total
from jouletrace.errors import BadInputError
from jouletrace.sensor.observer import Sampled
from jouletrace.sensor.readout import Readings
from jouletrace.sensor.sampler import Sensor, Track

EVIDENCE = 20.0
"""Logarithm of the likelihood ratio against another sample rate. In recordings of known rate the true one had 51 and
more; between false ones it stays below 12 (docs/results/attribution-h100.md)."""

FOREIGN = 0.5
"""Sum of what the response's bins differ by from the known one. Simulated sensors with other responses and averages
came to 0.39, and their intervals held (docs/results/attribution-sim.md)."""

UNSEEN = 0.03
"""Share of the time that readings saw of other kinds than ran. Simulated programs came to 0.014 in 10 s; those whose
steps are held at a multiple of the sample period, and whose rows miss, to 0.034 and more."""

HOLD_S = 2.0
"""Blocks that are held out in turn."""

GAIN = 0.9
"""What held-out readings leave, over what busy against idle leaves of them, in a model that holds."""

PLACEBO = 1.15
"""What another phase must leave at least, over what the true one leaves."""

CLOSE = 0.02
SHORTEST_S, COVERED = 5.0, 0.8
"""Of a recording, and the share of it that has readings."""

DROPPED = 1e-3
"""Share of the kernels that may be missing."""

BUSY_REST_W = 280.0
"""Between kernels no GPU draws this: then kernels are missing, something else runs, or the phase is wrong."""


@dataclass(frozen=True)
class Check:
    """One question that a table must answer.

    Attributes:
        name: Short, for machines.
        passed: Whether it did.
        says: In a sentence, with the figures.
        advice: What to do if it didn't; "" if it did.
    """

    name: str
    passed: bool
    says: str
    advice: str = ""


def check_lock(lock: Lock) -> Check:
    """Whether the sensor's sample rate is found without doubt."""
    found = lock.found
    assert found is not None
    says = (
        f"the power sensor takes {found.rate_hz:.1f} samples per second: {found.left_w:.1f} W are left, "
        f"{found.other_w:.1f} W at the best other rate (evidence {found.evidence:.0f}, needed {EVIDENCE:.0f})"
    )
    return Check(
        "sample_rate", found.evidence >= EVIDENCE, says, "record for longer, or with pauses between iterations"
    )


def check_sensor(lock: Lock) -> Check:
    """Whether the sensor is like the ones that are known: rows with another response were tried only to some extent."""
    observer, expected = lock.fit.observer, lock.expected
    assert isinstance(observer, Sampled)
    assert isinstance(expected, Sensor)
    moved, averages = float(np.abs(observer.change).sum()), observer.sensor.averages
    says = (
        f"the response of a sample differs by {moved:.2f} from the known one (at most {FOREIGN:.2f}), "
        f"its average is over {averages} samples (expected: {expected.averages})"
    )
    return Check(
        "sensor", moved <= FOREIGN, says, "this board's sensor isn't known: there are no rows of kernels for it"
    )


def check_seen(fitted: Fit) -> Check:
    """Whether readings saw kinds for as long as they ran: steps in time with a sensor show it the same part of each."""
    table, _ = fitted.activity.integrals(fitted.time_s[[0, -1]], np.zeros(len(fitted.activity.kind)))
    ran = (table[1] - table[0]) / (fitted.time_s[-1] - fitted.time_s[0])
    missed = float(np.abs(fitted.seen - ran).sum() / 2)
    says = f"the sensor saw {missed:.1%} of the time of other kernels than ran (at most {UNSEEN:.0%})"
    return Check("seen", missed <= UNSEEN, says, "steps are in time with the sensor: record with pauses between them")


def check_rest(fitted: Fit) -> Check:
    """Whether the GPU rests between kernels, as far as that can be seen."""
    rest, error = float(fitted.power_w[-1]), fitted.errors95 * float(np.sqrt(fitted.covariance[-2, -2]))
    says = f"between kernels the GPU draws {rest:.0f} ± {error:.0f} W"
    advice = "kernels are missing from the timeline, or another process uses the GPU"
    return Check("rest", rest - error <= BUSY_REST_W, says, advice)


def check_held_out(fitted: Fit, readings: Readings) -> Check:
    """Whether powers and phase from half of the readings foretell the other half better than busy and idle alone."""
    if fitted.time_s[-1] - fitted.time_s[0] < 2 * HOLD_S:
        return Check("held_out", False, "the recording is too short to hold readings out", "record for longer")
    turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 0
    kinds = _foretold(fitted, fitted.activity, readings, turn)
    plain = _foretold(fitted, _busy(fitted.activity), readings, turn)
    says = f"held-out readings: {kinds:.1f} W are left by kernels, {plain:.1f} W by busy and idle alone"
    return Check(
        "held_out",
        kinds < GAIN * plain,
        says,
        "record for longer; else kernels differ little in power, or the sensor isn't known",
    )


def check_placebo(fitted: Fit, readings: Readings) -> Check:
    """Whether the phase matters: samples half a period later must leave more."""
    assert isinstance(fitted.observer, Sampled)
    track = fitted.observer.track
    late = replace(
        fitted.observer, track=Track(track.start_s + 0.5 / track.rate_hz, track.rate_hz, track.count, track.shift_s)
    )
    wrong = fit(fitted.activity, late, readings, free=False).left_rms_w
    says = f"samples half a period later leave {wrong:.1f} W in place of {fitted.left_rms_w:.1f} W"
    return Check(
        "placebo", wrong > PLACEBO * fitted.left_rms_w, says, "record for longer, or with pauses between iterations"
    )


def check_whole(fitted: Fit, untraced_j: float, iterations: int) -> Check:
    """Whether the rows add up to what the program draws when nobody traces it.

    Args:
        fitted: Of the traced recording.
        untraced_j: Energy of an iteration without tracing.
        iterations: In the traced recording.

    Raises:
        BadInputError: If one of the two is 0 or less.
    """
    if not (untraced_j > 0 and iterations > 0):
        raise BadInputError(f"untraced run: {untraced_j} J and {iterations} iterations; both have to be above 0")
    whole = total(fitted).value or 0.0
    ratio = whole / iterations / untraced_j
    says = f"the rows add up to {ratio:.3f} of the energy of an untraced iteration"
    return Check("whole", abs(ratio - 1) <= CLOSE, says, "tracing slows this program: read its shares, not its joules")


def checks(
    lock: Lock, readings: Readings, untraced_j: float | None = None, iterations: int = 0, dropped: int = 0
) -> list[Check]:
    """All that can be asked of a recording; only part of it of a sensor that averages.

    Args:
        lock: Of the recording.
        readings: The record.
        untraced_j: Energy of an iteration without tracing, if it was measured.
        iterations: In the recording.
        dropped: Kernels that the tracer knows it missed.
    """
    fitted = lock.fit
    span = fitted.activity.finish_s - fitted.activity.begin_s
    covered = len(fitted.time_s) * float(np.median(np.diff(fitted.time_s))) / (span - fitted.begun_s - TAIL_S)
    long = Check(
        "length",
        span >= SHORTEST_S and covered >= COVERED,
        f"the recording lasts {span:.1f} s, of which {min(covered, 1):.0%} have readings",
        f"record for at least {SHORTEST_S:.0f} s, and power all the while",
    )
    missed = dropped / (dropped + len(fitted.activity.start_s))
    traced = Check(
        "traced", missed <= DROPPED, f"the tracer missed {missed:.1%} of the kernels", "trace with larger buffers"
    )
    asked = [long, traced, check_rest(fitted), check_seen(fitted), check_held_out(fitted, readings)]
    if lock.found is not None:
        asked[2:2] = [check_lock(lock), check_sensor(lock)]  # the cause before its effects
        asked.append(check_placebo(fitted, readings))
    return asked if untraced_j is None else [*asked, check_whole(fitted, untraced_j, iterations)]


def verdict(found: list[Check]) -> str:
    """One line: whether there may be rows of kernels, and if not why and what to do."""
    failed = [check for check in found if not check.passed]
    if not failed:
        return f"trust: yes, {len(found)} of {len(found)} checks passed"
    return f"trust: no, {failed[0].says}; {failed[0].advice}"


def _foretold(fitted: Fit, activity: Activity, readings: Readings, turn: NDArray[np.bool_]) -> float:
    """Root mean square of what readings differ from what a fit to the others foretells, both ways round."""
    wrong = []
    for use in (turn, ~turn):
        half = fit(activity, fitted.observer, readings, use=use)
        tested = readings.between(half.time_s[0], half.time_s[-1]) & ~use
        time, none = readings.time_s[tested], np.zeros(len(activity.kind))
        seen = half.observer.observe(activity, time, half.above_w() - half.steady_w(), none)
        foretold = seen.kinds @ half.power_w + seen.value + np.interp(time, half.time_s, half.drift_w)
        wrong.append(readings.watts[tested] - foretold)
    return float(np.sqrt(np.mean(np.concatenate(wrong) ** 2)))


def _busy(activity: Activity) -> Activity:
    """The same with all kinds as one."""
    return replace(activity, kind=np.zeros_like(activity.kind), kinds=(Kind("busy"),), members=((0,),), part=(0,))
