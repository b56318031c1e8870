"""Loads that repeat themselves synchronously with a sensor's samples: which figures are flagged, and which are not."""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.aliasing import FLAG
from jouletrace.sensor.kinds import KINDS
from live_runs import marked, unit
from records import channel, iterations, make_run, phases, readings, windows

STEP_S = 0.01
LOOP_S = 0.0101
"""Not in tune with the sensor's 20 ms: ranges within the steps can be distinguished."""


def flagged(run, id, metric="energy_total_j"):
    return FLAG in run.result(metric, id).flags


def range_flagged(run, name):
    return flagged(run, unit(run, name)["id"])


def sampled(sampling_s):
    return [channel(sampling_s=sampling_s)]


@pytest.mark.parametrize(("sampling_s", "aliased"), [(0.01, True), (0.005, True), (0.0123, False), (None, False)])
def test_iterations_as_long_as_the_samples_are_apart_are_flagged(sampling_s, aliased):
    edges = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]
    run = analyse(
        make_run(
            readings(400.0, 11, noise=0.3),
            spans=phases(("latency", 4.0, 5.0), ("energy", 5.0, 9.0)) + iterations(100, STEP_S, 4.0),
            window_rows=windows(edges, replays=50),
            channels=sampled(sampling_s),
        )
    )
    assert [flagged(run, 0, metric) for metric in ("energy_total_j", "power_w")] == [aliased, aliased]
    assert not flagged(run, 0, "iteration_time_s")


def test_the_rate_that_a_recording_determined_replaces_that_of_the_kind():
    """An iteration 2 % longer than the time between samples of the kind: this GPU has that period, or another."""
    edges = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]
    run = make_run(
        readings(400.0, 11, noise=0.3),
        spans=phases(("latency", 4.0, 5.0), ("energy", 5.0, 9.0)) + iterations(100, STEP_S, 4.0),
        window_rows=windows(edges, replays=50),
        channels=sampled(STEP_S / 1.02),
    )
    assert flagged(analyse(run), 0)
    for off, said in ((0.0, True), (0.02, False)):
        run.stored["sample_rate_hz"] = {run.devices[0].id: {"value": (1 + off) / STEP_S}}
        assert flagged(analyse(run), 0) is said


# recorded steps


def loop(jitter=0.0, n=800):
    """Steps in an epoch, each with a forward of a third of it; the epoch's evaluation, which has no steps."""
    rng = np.random.default_rng(1)
    seconds = LOOP_S * (1 + rng.normal(0, jitter, n))
    ends = 1.0 + np.cumsum(seconds)
    ends[n // 2 :] += 0.7  # a pause within them
    last = float(ends[-1])
    spans = [("range", "epoch", 1.0, last), ("range", "evaluation", last, last + 1.0)]
    for end, took in zip(ends.tolist(), seconds.tolist(), strict=True):
        spans.append(("range", "forward", end - took + 0.001, end - took + 0.004, 1))
        spans.append(("iteration", "step", end - took, end, 1))
    return spans, last + 2.0


@pytest.mark.parametrize(
    ("sampling_s", "jitter", "aliased"),
    [(LOOP_S, 0.0, True), (LOOP_S, 0.02, True), (LOOP_S / 2, 0.0, True), (LOOP_S, 0.06, False), (0.0123, 0.0, False)],
)
def test_regular_steps_of_a_program_are_checked_like_iterations(sampling_s, jitter, aliased):
    spans, seconds = loop(jitter)
    run = marked(spans, 300.0, seconds, channels=sampled(sampling_s))
    assert range_flagged(run, "epoch/step") == aliased
    assert range_flagged(run, "epoch/forward") == aliased, "it comes as often as the step"
    assert range_flagged(run, "epoch") == aliased, "it consists of them"
    assert not range_flagged(run, "evaluation")
    (device,) = (row for row in run.units.to_pylist() if row["level"] == "device")
    assert [flagged(run, device["id"], metric) for metric in ("energy_total_j", "power_w")] == [aliased, aliased]


def test_few_steps_in_a_long_recording_flag_themselves_alone():
    spans, _ = loop(n=60)
    run = marked(spans, 300.0, 40.0, channels=sampled(LOOP_S))
    assert range_flagged(run, "epoch/step")
    (device,) = (row for row in run.units.to_pylist() if row["level"] == "device")
    assert not flagged(run, device["id"])


def test_each_thread_has_a_period_of_its_own():
    first = [("iteration", "step", at, at + 0.01, None, "one") for at in np.arange(1.0, 6.0, 0.01).tolist()]
    second = [("iteration", "step", at, at + 0.01, None, "two") for at in np.arange(7.0033, 12.0, 0.01).tolist()]
    assert range_flagged(marked([*first, *second], 300.0, 14.0, channels=sampled(0.01)), "step")


def test_where_the_samples_are_not_known_nothing_is_reported():
    spans, seconds = loop()
    assert not range_flagged(marked(spans, 300.0, seconds), "epoch/step")


@pytest.mark.parametrize(("step_s", "aliased"), [(0.02, True), (0.0137, False)])
def test_steps_synchronous_with_the_readings_are_flagged_too(step_s, aliased):
    spans = [("iteration", "step", at, at + step_s) for at in (1.0 + step_s * np.arange(100)).tolist()]
    hopper = [channel(response=KINDS["hopper"].response.to_dict())]
    assert range_flagged(marked(spans, 300.0, 5.0, channels=hopper), "step") == aliased


# generation

PIECES = {"prefill": 0.013, "decode short": 0.008, "decode long": 0.0083, "between": 0.011}
DECODE = (1_000_001, 1_000_002)


def generated(sampling_s, long_s=0.0083):
    """Eleven forwards: a prompt, ten tokens at two lengths, and a millisecond beside each; steps of 9.0 and 9.3 ms."""
    took = {**PIECES, "decode long": long_s}
    whole_s = took["prefill"] + 5 * took["decode short"] + 5 * took["decode long"] + took["between"]
    kinds = [("prefill", 1, 16), ("decode", 5, 17), ("decode", 5, 26), ("between forwards", 1, None)]
    segments = [
        {"unit": 1_000_000 + i, "phase": phase, "weight": weight, "times": 1, "length": length}
        for i, (phase, weight, length) in enumerate(kinds)
    ]
    rows, at = [], 1.0
    for _ in range(8):
        for number, seconds in enumerate([whole_s, *took.values()]):
            replays = round(0.5 / seconds)
            (row,) = windows([(at, at + replays * seconds)], replays=replays, variant="segment")
            rows.append(row | ({"unit": 999_999 + number} if number else {"variant": "untouched"}))
            at += replays * seconds + 0.1
    rows = [row | {"order": order} for order, row in enumerate(rows)]
    generation = {"prompt": 16, "steps": 11, "tokens": 11, "cache": "dynamic", "segments": segments}
    run = make_run(
        readings(400.0, at + 2, noise=0.3),
        spans=phases(("energy", 1.0, at)),
        window_rows=rows,
        channels=sampled(sampling_s),
        workload={"name": "toy", "items": 1, "generation": generation},
    )
    return analyse(run)


def flagged_phases(run):
    units = [row for row in run.units.to_pylist() if row["level"] in ("phase", "length")]
    return {row["name"] for row in units if flagged(run, row["id"])}


def test_a_forward_that_is_aliased_while_it_is_measured_flags_its_length_and_its_phase():
    run = generated(0.98 * PIECES["decode short"])
    assert flagged_phases(run) == {"decode", "one token, 17 in the dynamic cache"}
    assert not flagged(run, 0), "in the whole its steps take a millisecond more"
    unit = next(row["id"] for row in run.units.to_pylist() if row["name"] == "decode")
    metrics = ("energy_total_j", "energy_active_j", "power_w", "energy_per_token_j", "time_s", "tokens_per_s")
    assert [flagged(run, unit, metric) for metric in metrics] == [True, True, True, True, False, False]


def test_decode_steps_that_are_aliased_within_an_iteration_flag_the_whole_and_no_piece():
    run = generated(PIECES["decode short"] + 0.001)
    assert flagged_phases(run) == set()
    assert [flagged(run, 0, metric) for metric in ("energy_total_j", "power_w", "energy_per_token_j")] == 3 * [True]


def test_decode_steps_that_grow_much_longer_are_not_regular():
    assert not flagged(generated(PIECES["decode short"] + 0.001, long_s=0.012), 0)


def test_another_distance_of_samples_flags_nothing():
    run = generated(0.0097)
    assert not flagged(run, 0)
    assert flagged_phases(run) == set()


def test_a_prefill_that_is_aliased_flags_the_prefill():
    assert flagged_phases(generated(PIECES["prefill"])) == {"prefill"}
