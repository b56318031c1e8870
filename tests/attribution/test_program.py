"""Energies of spans and kinds of a program with a timeline, on simulated sensors: do intervals hold?

Each test needs a term of the model: without it, it fails.
"""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import Kind, Sampled, activity_of, attribute_program, check_powers, resolved
from jouletrace.attribution.attribute import attribute
from jouletrace.sensor import HOPPER_SENSOR, SampleResponse, SampleTimes
from simulated_sampler import IDLE_W, Load

POINT = replace(HOPPER_SENSOR, response=SampleResponse(0.0, np.ones(1)))
"""A sensor whose samples last no time."""


def program(rng, seconds, shortest_s=1e-4, longest_s=5e-3, scatter=0.0, kinds=12):
    """Kernels in irregular order, with pauses in one place of ten; ``scatter`` of power between calls of a kind."""
    length_s = np.exp(rng.uniform(np.log(shortest_s), np.log(longest_s), kinds))
    watts = rng.uniform(120.0, 770.0, kinds)
    kind = rng.integers(0, kinds, int(seconds / length_s.mean()))
    run_s = length_s[kind] * rng.uniform(0.98, 1.02, len(kind))
    pause_s = np.where(rng.random(len(kind)) < 0.1, rng.exponential(0.4 * longest_s, len(kind)), 2e-6)
    above = watts[kind] * (1 + scatter * rng.standard_normal(len(kind)))
    load = Load(np.stack([run_s, pause_s], axis=1).ravel(), np.stack([above, 0 * run_s], axis=1).ravel())
    start_ns, end_ns = (np.rint(1e9 * load.edge_s[place:-1:2]).astype(np.int64) for place in (0, 1))
    names = [Kind(f"kernel {k}") for k in range(kinds)]
    return load, activity_of(start_ns, np.append(end_ns, round(1e9 * load.edge_s[-1]))[: len(kind)], kind, names, 0)


def estimated(load, activity, rng, spans=(), averages=16, samples=False, **given):
    """Rows of a simulated recording of the program."""
    times_s, values_w, response = load.record(rng, averages)
    sampled = None
    if samples:
        rate = 1 / (load.sample_s[1] - load.sample_s[0])
        track = SampleTimes.straight(activity.begin_s, activity.finish_s, rate, load.sample_s[0])
        sampled = Sampled(replace(POINT, delay_s=response.delay_s), track)
    inside = (times_s - response.delay_s > activity.begin_s) & (times_s - response.delay_s < activity.finish_s)
    response = replace(response, width_sd=0.02)
    used = times_s[inside], values_w[inside]
    return attribute_program(*used, spans, activity, response=response, sampled=sampled, **given)


def judged(seeds, span_s=0.1, averages=16, samples=False, **made):
    """Shares of intervals that hold, of spans and of kinds, and the median half-widths over energy of both."""
    held, kinds_held, half, kinds_half = [], [], [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        load, activity = program(rng, 4.0, **made)
        begin = np.sort(rng.uniform(load.edge_s[0], load.edge_s[-1] - span_s, 25))
        spans = np.stack([begin, begin + span_s], axis=1)
        rows = estimated(load, activity, rng, spans, averages, samples)
        _, low, high = rows.energies.interval()
        starts, ends = load.edge_s[:-1:2], load.edge_s[1::2]
        kind = activity_kinds(activity, starts)
        kinds_j = (load.watts[::2] + IDLE_W) * (ends - starts)
        truth = np.array([load.energy(*span) for span in spans])
        true_kinds = np.bincount(kind, kinds_j, len(activity.kinds))
        held.append((low[:25] <= truth) & (truth <= high[:25]))
        kinds_held.append((low[25:] <= true_kinds) & (true_kinds <= high[25:]))
        half.append((high - low)[:25] / 2 / truth)
        kinds_half.append((high - low)[25:] / 2 / true_kinds)
    return np.mean(held), np.mean(kinds_held), np.median(half), np.median(kinds_half)


def activity_kinds(activity, starts):
    """Kind of the kernel that begins at each of ``starts``."""
    place = np.searchsorted(activity.start_s, starts + 1e-9, side="right") - 1
    return np.array([activity.members[column][0] for column in activity.column[place]])


@pytest.mark.thorough
def test_spans_and_kinds_of_a_program_hold_although_samples_miss_kernels():
    spans, kinds, half, _ = judged(range(4))
    assert spans >= 0.9
    assert kinds >= 0.85
    assert half < 0.03


@pytest.mark.thorough
def test_kernels_far_shorter_than_a_sample_hold():
    spans, kinds, half, _ = judged(range(2), shortest_s=2e-5, longest_s=2e-4)
    assert spans >= 0.9
    assert kinds >= 0.9
    assert half < 0.03


@pytest.mark.thorough
def test_known_samples_make_short_kernels_known():
    spans, kinds, half, kinds_half = judged(range(4), samples=True, shortest_s=2e-5, longest_s=2e-4)
    assert spans >= 0.9
    assert kinds >= 0.85
    assert half < 0.02
    assert kinds_half < 0.15


@pytest.mark.thorough
def test_a_reading_that_has_yet_to_follow_a_step_counts_less():
    spans, kinds, half, _ = judged(range(6), averages=4, shortest_s=1e-2, longest_s=4e-2)
    assert spans >= 0.95
    assert kinds >= 0.93
    assert half < 0.006


@pytest.mark.thorough
def test_calls_of_a_kind_may_differ():
    spans, kinds, _, _ = judged(range(6), shortest_s=3e-3, longest_s=1e-2, scatter=0.15)
    assert spans >= 0.9
    assert kinds >= 0.85


@pytest.mark.thorough
def test_samples_that_miss_most_of_short_kernels_widen_long_spans():
    """The difference between calls of a kind is energy for the tenth of them that a sample meets."""
    spans, _, half, _ = judged(range(4), span_s=1.0, samples=True, shortest_s=5e-5, longest_s=1e-4, scatter=0.2)
    assert spans >= 0.88
    assert half < 0.02


@pytest.mark.thorough
def test_a_timeline_sharpens_short_spans():
    rng = np.random.default_rng(11)
    load, activity = program(rng, 3.0)
    times_s, values_w, response = load.record(rng)
    span = [[1.0, 1.05]]
    _, low, high = attribute(times_s, values_w, span, response=response, bursts=[load.span]).interval()
    _, least, most = estimated(load, activity, np.random.default_rng(11), span).energies.interval()
    assert most[0] - least[0] < 0.5 * (high[0] - low[0])


def test_rows_add_up_to_the_whole():
    rng = np.random.default_rng(12)
    load, activity = program(rng, 3.0)
    rows = estimated(load, activity, rng, [[activity.begin_s, activity.finish_s]])
    mean, _, _ = rows.energies.interval()
    idle_s = activity.finish_s - activity.begin_s - rows.seconds.sum()
    assert mean[1:].sum() + IDLE_W * idle_s == pytest.approx(mean[0], rel=3e-3)
    assert resolved(rows, np.ones(12)).all()


@pytest.mark.thorough
def test_a_sum_is_resolved_where_its_parts_are_not():
    rng = np.random.default_rng(13)
    load, activity = program(rng, 2.0, shortest_s=2e-5, longest_s=1e-4)
    rows = estimated(load, activity, rng)
    assert not resolved(rows, np.eye(12)).all()
    assert resolved(rows, np.ones((1, 12))).all()


def test_powers_that_no_gpu_draws_are_detected():
    rng = np.random.default_rng(14)
    load, activity = program(rng, 4.0)
    rows = estimated(load, activity, rng)
    assert check_powers(rows, 1120.0).passed
    outcome = check_powers(rows, 500.0)
    assert not outcome.passed
    assert outcome.estimate[0] > 0
