"""Loads that repeat themselves in the rhythm of a sensor's readings or samples: which figures are flagged.

An H100's readings come each 20 ms, of momentary samples at 1150 to 1310 Hz.
"""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.latency import FIRST_TOKEN
from jouletrace.run import ALIASED, tables
from live_runs import marked, unit
from records import channel, iterations, make_run, phases, readings, windows

STEP_S, OTHER_S = 0.01, 0.0137
"""Aliased, and not: half of the time between readings, and no part of it."""

SAMPLE_S = 0.797e-3
"""As long as 1255 samples per second are apart."""


def flagged(run, id, metric="energy_total_j"):
    return ALIASED in run.result(metric, id).flags


def range_flagged(run, name):
    return flagged(run, unit(run, name)["id"])


def hopper():
    return [channel(response={}, sensor="hopper")]


def profiled(step_s, channels):
    """Windows of 0.5 s in a row, of iterations of a load that looks constant."""
    edges = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]
    return make_run(
        readings(lambda t: np.where((t > 4) & (t < 9), 500.0, 120.0), 11, noise=0.3),
        spans=phases(("latency", 4.0, 5.0), ("energy", 5.0, 9.0)) + iterations(round(1 / step_s), step_s, 4.0),
        window_rows=windows(edges, replays=round(0.5 / step_s)),
        channels=channels,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("step_s", "aliased"), [(STEP_S, True), (2 * STEP_S, True), (OTHER_S, False)])
def test_iterations_in_the_rhythm_of_the_readings_are_flagged(step_s, aliased):
    run = analyse(profiled(step_s, hopper()))
    assert [flagged(run, 0, metric) for metric in ("energy_total_j", "power_w")] == [aliased, aliased]
    assert not flagged(run, 0, "iteration_time_s")


@pytest.mark.thorough
def test_a_sensor_that_misses_nothing_is_in_the_rhythm_of_no_load():
    assert not flagged(analyse(profiled(2 * STEP_S, [channel()])), 0)


@pytest.mark.thorough
def test_iterations_as_long_as_samples_are_apart_are_flagged_where_a_recording_determined_the_rate():
    """Of 4 s few rates among those of H100s are so near to the iterations' that no reading shows it: ± is wider."""
    run = profiled(SAMPLE_S, hopper())
    half = {None: analyse(run).result("energy_total_j").half_width}
    for rate_hz, said in ((1 / SAMPLE_S, True), (1222.5, False)):
        run.stored["sample_rate_hz"] = {run.devices[0].id: {"value": rate_hz}}
        assert flagged(analyse(run), 0) is said
        half[said] = run.result("energy_total_j").half_width
    assert half[True] is None
    assert half[None] > 3 * half[False]


# recorded steps


def loop(step_s=2 * STEP_S, jitter=0.0, n=300):
    """Steps in an epoch, each with a forward of a third of it; the epoch's evaluation, which has no steps."""
    rng = np.random.default_rng(1)
    seconds = step_s * (1 + rng.normal(0, jitter, n))
    ends = 1.0 + np.cumsum(seconds)
    ends[n // 2 :] += 0.7  # a pause within them
    last = float(ends[-1])
    spans = [("range", "epoch", 1.0, last), ("range", "evaluation", last, last + 1.0)]
    for end, took in zip(ends.tolist(), seconds.tolist(), strict=True):
        spans.append(("range", "forward", end - took + 0.001, end - took + 0.004, 1))
        spans.append(("iteration", "step", end - took, end, 1))
    return spans, last + 2.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("step_s", "jitter", "aliased"),
    [(2 * STEP_S, 0.0, True), (2 * STEP_S, 0.02, True), (2 * STEP_S, 0.06, False), (OTHER_S, 0.0, False)],
)
def test_regular_steps_of_a_program_are_checked_like_iterations(step_s, jitter, aliased):
    spans, seconds = loop(step_s, jitter)
    run = marked(spans, 500.0, seconds, channels=hopper())
    assert range_flagged(run, "epoch/step") == aliased
    forward = run.result("energy_total_j", unit(run, "epoch/forward")["id"])
    assert forward.value is None or (ALIASED in forward.flags) == aliased, "it comes as often as the step"
    assert range_flagged(run, "epoch") == aliased, "it consists of them"
    assert not range_flagged(run, "evaluation")
    (device,) = (row for row in run.units.to_pylist() if row["level"] == "device")
    assert [flagged(run, device["id"], metric) for metric in ("energy_total_j", "power_w")] == [aliased, aliased]


@pytest.mark.thorough
def test_few_steps_in_a_long_recording_flag_themselves_alone():
    spans, _ = loop(n=60)
    run = marked(spans, 500.0, 40.0, channels=hopper())
    assert range_flagged(run, "epoch/step")
    (device,) = (row for row in run.units.to_pylist() if row["level"] == "device")
    assert not flagged(run, device["id"])


@pytest.mark.thorough
def test_each_thread_has_a_period_of_its_own():
    first = [("iteration", "step", at, at + 0.01, None, "one") for at in np.arange(1.0, 4.0, 0.01).tolist()]
    second = [("iteration", "step", at, at + 0.01, None, "two") for at in np.arange(5.0033, 8.0, 0.01).tolist()]
    assert range_flagged(marked([*first, *second], 500.0, 10.0, channels=hopper()), "step")


# generation


def generated(step_s, tokens=11):
    """Windows of four iterations whose later tokens take ``step_s`` each."""
    run = profiled(0.125, hopper())
    run.workload |= {"task": "generate", "tokens": tokens, "new_tokens": tokens}
    firsts = [row | {"lane": FIRST_TOKEN} for row in iterations(8, 0.125 - (tokens - 1) * step_s, 0.5)]
    run.spans = tables.concat([run.spans, tables.from_rows(firsts, "spans")], "spans")
    return analyse(run)


@pytest.mark.parametrize(("step_s", "aliased"), [(STEP_S, True), (0.0117, False)])
def test_decode_steps_in_the_rhythm_of_the_readings_flag_the_whole(step_s, aliased):
    run = generated(step_s)
    assert [flagged(run, 0, metric) for metric in ("energy_total_j", "power_w", "energy_per_token_j")] == 3 * [aliased]
