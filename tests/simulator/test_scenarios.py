"""Recordings with known truth: reproducible, complete, and nothing of the truth in what is recorded."""

import numpy as np
import pytest

from scenarios import GROUPS, draw


@pytest.fixture(scope="module", params=GROUPS)
def drawn(request):
    return request.param, *draw(4, request.param, 2.0)


@pytest.mark.thorough
def test_the_truth_sums_to_the_whole(drawn):
    _group, scene, _, truth = drawn
    kernels = truth.drawn.kernel_j.sum()
    assert kernels + truth.drawn.idle_j + truth.drawn.foreign_j == pytest.approx(truth.total_j, rel=1e-9)
    for parts in (truth.kind_j.sum(), sum(truth.operator_j.values()), truth.iteration_j.sum()):
        assert parts == pytest.approx(kernels, rel=1e-9)
    assert set(truth.operator_j) == set(scene.kinds.operators)
    assert truth.idle_w * truth.drawn.idle_s == pytest.approx(truth.drawn.idle_j)


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_seed_draws_the_same_again(drawn):
    group, _, recording, truth = drawn
    _, again, same = draw(4, group, 2.0)
    assert np.array_equal(again.rows, recording.rows)
    assert np.array_equal(again.start_ns, recording.start_ns)
    assert np.array_equal(same.kind_j, truth.kind_j)
    _, other, _ = draw(5, group, 2.0)
    assert not np.array_equal(other.rows, recording.rows)
