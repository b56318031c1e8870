"""Recordings with known truth: reproducible, complete, and nothing of the truth in what is recorded."""

from dataclasses import fields

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.simulator import GROUPS, draw, simulate
from jouletrace.simulator.power import Board
from jouletrace.simulator.programs import Kinds, fixed_order, lay_out
from jouletrace.simulator.sensors import Response, SamplingSensor, WindowSensor


@pytest.fixture(scope="module", params=GROUPS)
def drawn(request):
    return request.param, *draw(4, request.param, 2.0)


def test_the_truth_sums_to_the_whole(drawn):
    _group, scene, _, truth = drawn
    kernels = truth.drawn.kernel_j.sum()
    assert kernels + truth.drawn.idle_j + truth.drawn.foreign_j == pytest.approx(truth.total_j, rel=1e-9)
    for parts in (truth.kind_j.sum(), sum(truth.operator_j.values()), truth.iteration_j.sum()):
        assert parts == pytest.approx(kernels, rel=1e-9)
    assert set(truth.operator_j) == set(scene.kinds.operators)
    assert truth.idle_w * truth.drawn.idle_s == pytest.approx(truth.drawn.idle_j)


def test_mean_powers_are_near_the_steady_ones(drawn):
    group, scene, _, truth = drawn
    ratio = (truth.kind_w - scene.idle_w) / (scene.kinds.power_w - scene.idle_w)
    assert (truth.drawn.foreign_j > 0) == (group == "foreign_load")
    low, high = (0.3, 2.0) if group in ("overlap", "cap") else (0.6, 1.3)
    assert np.all((ratio[truth.kind_s > 0] > low) & (ratio[truth.kind_s > 0] < high))


def test_a_recording_has_two_seconds_of_readings_and_all_kernels(drawn):
    _, scene, recording, truth = drawn
    assert recording.rows.dtype == np.int64
    assert 100 < len(recording.rows) < 200
    assert np.all(np.diff(recording.rows[:, 0]) >= 0)
    assert scene.begin_ns < recording.rows[0, 0] * 1_000
    assert recording.rows[-1, 0] * 1_000 < scene.finish_ns + 25e6
    assert len(recording.start_ns) == len(scene)
    assert np.array_equal(recording.kind, scene.kind[truth.traced])
    off = recording.start_ns - scene.start_ns[truth.traced] - truth.clock_offset_ns
    assert np.abs(off).max() == 300 if len(scene) > 2_000 else np.abs(off).max() <= 300
    assert np.all(recording.end_ns >= recording.start_ns)


def test_a_recording_knows_no_truth(drawn):
    recording = drawn[2]
    for name in (field.name for field in fields(recording)):
        value = getattr(recording, name)
        assert (isinstance(value, np.ndarray) and value.dtype == np.int64) or all(isinstance(v, str) for v in value)


def test_a_seed_draws_the_same_again(drawn):
    group, _, recording, truth = drawn
    _, again, same = draw(4, group, 2.0)
    assert np.array_equal(again.rows, recording.rows)
    assert np.array_equal(again.start_ns, recording.start_ns)
    assert np.array_equal(same.kind_j, truth.kind_j)
    _, other, _ = draw(5, group, 2.0)
    assert not np.array_equal(other.rows, recording.rows)


def test_hidden_parameters_fill_their_ranges():
    sensors = [draw(seed, "one_kind", 0.3)[2].sensor for seed in range(40)]
    rates = [sensor.rate_hz for sensor in sensors]
    assert 1205 <= min(rates) < 1212
    assert 1248 < max(rates) <= 1255
    delays = [sensor.delay_ns for sensor in sensors]
    assert 3.1e6 <= min(delays) < 3.2e6
    assert 3.6e6 < max(delays) <= 3.7e6


def test_a_locked_period_is_a_multiple_of_the_sampling_period():
    scene, _, truth = draw(2, "locked_period", 2.0)
    first = scene.start_ns[np.flatnonzero(np.diff(scene.iteration, prepend=-1))]
    period = np.polyfit(np.arange(len(first)), first - first[0], 1)[0]
    samples = period * 1e-9 * truth.sensor.rate_hz
    assert samples == pytest.approx(round(samples), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_cap_binds_in_its_group(seed):
    scene, _, truth = draw(seed, "cap", 4.0)
    busy = np.array([scene.start_ns[0] + 0.3e9, scene.end_ns[-1] - 0.1e9]) - scene.begin_ns
    mean = np.diff(truth.power.energy_j(busy)) / np.diff(busy) * 1e9
    assert mean[0] == pytest.approx(truth.board.limit_w, rel=0.08)
    assert (scene.end_ns - scene.start_ns).mean() > scene.kinds.duration_ns.mean()


def test_foreign_responses_are_none_of_the_known_sensor():
    averaging = {draw(seed, "foreign_response", 0.5)[2].sensor.averaging for seed in range(30)}
    assert {(one.samples, one.blocks) for one in averaging} == {(16, False), (8, False), (32, False), (24, True)}


def test_another_sensor_can_record_the_same_program():
    part_time = WindowSensor.part_time(np.random.default_rng(1))
    scene, recording, truth = draw(4, "long_varied", 2.0, part_time)
    assert truth.sensor is part_time
    assert len(recording.rows) == pytest.approx(28, abs=3)
    assert np.array_equal(scene.start_ns, draw(4, "long_varied", 2.0)[0].start_ns)


def test_a_tracer_can_miss_kernels_and_be_off():
    rng = np.random.default_rng(1)
    kinds = Kinds(("a",), ("a",), ("a",), np.array([50e3]), np.array([500.0]))
    scene = lay_out(fixed_order(rng, 1.0, kinds), 1.0)
    sensor = SamplingSensor(1230.0, Response.draw(rng, "box"))
    ran, recording, truth = simulate(rng, scene, Board.ideal(1), sensor, clock_offset_ns=50_000, dropped=0.1)
    assert len(recording.kind) / len(ran) == pytest.approx(0.9, abs=0.01)
    assert np.abs(recording.end_ns - ran.end_ns[truth.traced] - 50_000).max() <= 300
    assert len(truth.drawn.kernel_j) == len(ran)


def test_an_unknown_group_is_refused():
    with pytest.raises(BadInputError, match="did you mean eager"):
        draw(1, "eagre")
