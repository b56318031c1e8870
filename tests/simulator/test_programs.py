"""Simulated programs do what their names say."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.simulator.programs import (
    SPIN,
    Kinds,
    draw_kinds,
    eager_vit_like,
    fixed_order,
    from_timeline,
    jitter_ns,
    large_operators,
    lay_out,
    overlapping,
    repeated_in_place,
    transformer_graph_like,
    varied_order,
    with_pauses,
    with_spins,
)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def three_kinds():
    """Two kernels of one operator, and one of another."""
    operators = ("linear", "linear", "norm")
    return Kinds(("a", "b", "c"), operators, operators, np.array([50e3, 20e3, 30e3]), np.array([800.0, 600.0, 400.0]))


def test_a_fixed_order_repeats_its_step_and_counts_calls(rng):
    plan = fixed_order(rng, 0.1, three_kinds())
    assert plan.kind[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert plan.call[:6].tolist() == [0, 0, 1, 2, 2, 3]
    assert plan.iteration[:6].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_varied_order_shuffles_each_step(rng):
    steps = varied_order(rng, 0.1, three_kinds()).kind.reshape(-1, 3)
    assert np.array_equal(np.sort(steps, axis=1), np.tile([0, 1, 2], (len(steps), 1)))
    assert len(np.unique(steps, axis=0)) == 6


def test_durations_scatter_by_what_was_measured(rng):
    relative = jitter_ns(np.array([5e3, 13e3, 0.3e6, 2.7e6])) / [5e3, 13e3, 0.3e6, 2.7e6]
    assert relative == pytest.approx([0.033, 0.016, 0.0021, 0.0006], rel=0.1)
    kinds = draw_kinds(rng, 4, 5e3, 3e6)
    plan = fixed_order(rng, 2.0, kinds)
    for kind in range(4):
        lasted = plan.duration_ns[plan.kind == kind]
        assert lasted.mean() == pytest.approx(kinds.duration_ns[kind], rel=0.01)
        assert lasted.std() == pytest.approx(jitter_ns(kinds.duration_ns[kind]), rel=0.2)


def test_pauses_come_before_steps_only(rng):
    plan = fixed_order(rng, 0.2, three_kinds())
    extra = with_pauses(rng, plan, 1e6).gap_ns - plan.gap_ns
    assert np.all(extra[plan.kind != 0] == 0)
    paused = extra[plan.kind == 0]
    assert paused.min() > 0
    assert 0.9e6 < paused.max() < 1e6
    assert paused.mean() == pytest.approx(0.5e6, rel=0.1)


def test_spins_stand_between_calls_and_change_nothing_else(rng):
    plan = fixed_order(rng, 0.1, three_kinds())
    spun = with_spins(rng, plan)
    assert spun.kinds.names[-1] == SPIN
    assert spun.kind[:10].tolist() == [3, 0, 1, 3, 2, 3, 0, 1, 3, 2]
    own = spun.kind < 3
    assert np.array_equal(spun.duration_ns[own], plan.duration_ns)
    assert np.all(np.diff(spun.call)[np.flatnonzero(~own[1:])] > 0)
    length = spun.duration_ns[~own]
    assert length.min() >= 1e3
    assert 18e3 < length.max() <= 20e3


def test_one_call_of_each_step_is_repeated_whole(rng):
    repeated = repeated_in_place(rng, fixed_order(rng, 0.5, three_kinds()), times=(2, 5))
    steps = {tuple(repeated.kind[repeated.iteration == step]) for step in range(200)}
    assert steps == {(0, 1, 0, 1, 2), (0, 1) * 5 + (2,), (0, 1, 2, 2), (0, 1) + (2,) * 5}


def test_copies_scatter_on_their_own(rng):
    repeated = repeated_in_place(rng, fixed_order(rng, 0.5, three_kinds()), times=(4, 10))
    assert len(np.unique(repeated.duration_ns)) == len(repeated.duration_ns)


def test_a_timer_holds_steps_at_their_period(rng):
    scene = lay_out(fixed_order(rng, 1.0, three_kinds(), sync_ns=0), 1.0, every_ns=150_000.4)
    first = scene.start_ns[scene.kind == 0] - scene.start_ns[0]
    assert np.abs(first - 150_000.4 * np.arange(len(first))).max() <= 2


def test_a_period_shorter_than_a_step_is_refused(rng):
    with pytest.raises(BadInputError, match="take longer than their period of 90000 ns"):
        lay_out(fixed_order(rng, 0.1, three_kinds()), 0.1, every_ns=90_000)


def test_too_few_seconds_are_refused(rng):
    with pytest.raises(BadInputError, match="no step"):
        lay_out(fixed_order(rng, 1e-6, three_kinds()), 1e-6)
    with pytest.raises(BadInputError, match="above 0"):
        fixed_order(rng, 0, three_kinds())


def test_an_eager_model_is_busy_27_percent(rng):
    scene = lay_out(eager_vit_like(rng, 2.0), 2.0)
    length = scene.end_ns - scene.start_ns
    span = scene.end_ns[-1] - scene.start_ns[0]
    assert length.sum() / span == pytest.approx(0.27, abs=0.02)
    assert 3e3 < np.median(length) < 30e3
    assert np.all(scene.start_ns[1:] >= scene.end_ns[:-1])


def test_a_graph_has_150_short_kernels_in_a_step(rng):
    scene = lay_out(transformer_graph_like(rng, 1.0), 1.0)
    per_step = np.bincount(scene.iteration)
    assert np.all(per_step == per_step[0])
    assert 140 <= per_step[0] <= 160
    period = np.median(np.diff(scene.start_ns[:: per_step[0]]))
    assert 0.7e6 < period < 1.0e6
    assert np.percentile(scene.end_ns - scene.start_ns, [1, 99]) == pytest.approx([3e3, 9e3], rel=0.35)


def test_large_operators_are_eight_of_up_to_3_ms(rng):
    plan = large_operators(rng, 1.0)
    assert len(plan.kinds) == 8
    assert plan.kinds.duration_ns.min() > 0.15e6
    assert plan.kinds.duration_ns.max() < 3.6e6


def test_streams_overlap_for_parts(rng):
    scene = overlapping(rng, 1.0, draw_kinds(rng, 6, 0.1e6, 1e6))
    moments = np.linspace(scene.start_ns[0], scene.end_ns[-1], 20_001).astype(np.int64)
    running = np.searchsorted(scene.start_ns, moments, "right") - np.searchsorted(
        np.sort(scene.end_ns), moments, "right"
    )
    assert set(running) == {0, 1, 2}
    assert np.all(np.bincount(running) / len(running) > 0.05)
    assert set(scene.stream) == {0, 1}
    assert np.all(np.diff(scene.start_ns) >= 0)


def test_a_timeline_stays_as_it_was_recorded():
    scene = from_timeline([5_000_900, 5_000_000], [100, 300], [1, 0], ["a", "b"], [300, 400])
    assert scene.start_ns.tolist() == [5_000_000, 5_000_900]
    assert scene.end_ns.tolist() == [5_000_300, 5_001_000]
    assert scene.kind.tolist() == [0, 1]
    assert scene.kinds.duration_ns.tolist() == [300, 100]


@pytest.mark.parametrize(("start", "kind", "power"), [([], [], [1.0]), ([1, 2], [0], [1.0]), ([1], [0], [1.0, 2.0])])
def test_a_timeline_of_unequal_lengths_is_refused(start, kind, power):
    with pytest.raises(BadInputError, match="timeline needs"):
        from_timeline(start, start, kind, ["a"], power)
