"""A sampler whose samples' times aren't known: readings count as averages, and bad timelines are refused."""

import numpy as np
import pytest

from jouletrace.analysis.kernel_powers import ALIKE
from jouletrace.attribution import Kind, Prior, activity_of, attribute_program
from jouletrace.attribution.checks import PRIOR_SHARE, check_averages, of_each
from jouletrace.attribution.fit import END_S, LEAD_S, explained
from jouletrace.sensor import HOPPER_SENSOR, Response, on_grid
from scenarios import draw

pytestmark = pytest.mark.thorough
RESPONSE, IDLE_W = Response.sampled(HOPPER_SENSOR, 0.02), (130.0, 30.0)


def averaged(group, seed, start=lambda t: t, keep=None, names=None, seconds=8.0, hole=0.0):
    """Rows of a simulated program by its readings as averages, the check of them, and the truth."""
    activity, readings, truth = timed(group, seed, start, keep, names, seconds)
    lasts_s = activity.finish_s - activity.begin_s
    since_s = activity.begin_s + lasts_s * drawn(len(readings)).uniform(0.1, 0.5)
    readings = readings.take(~readings.between(since_s, since_s + hole * lasts_s))
    rows, check, whole = solved(activity, readings)
    return rows, check, truth, whole, readings


def timed(group, seed, start=lambda t: t, keep=None, names=None, seconds=8.0):
    """The timeline of a simulated program, its readings, and the truth."""
    _, recording, truth = draw(seed, group, seconds=seconds)
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    kept = slice(None) if keep is None else keep(len(recording.kind))
    begin, length = start(recording.start_ns)[kept], (recording.end_ns - recording.start_ns)[kept]
    kind = recording.kind[kept] if names is None else names(recording.kind[kept])
    return activity_of(begin, begin + length, kind, kinds, readings.origin_ns), readings, truth


def solved(activity, readings):
    """Rows by the readings as averages, the check of them, and the span of the first row."""
    span = [activity.begin_s + LEAD_S, activity.finish_s - END_S]
    used, rows = solved_by(activity, readings, span)
    return rows, check_averages(rows, activity, used, IDLE_W[0], RESPONSE, HOPPER_SENSOR), span


def solved_by(activity, readings, span, **beliefs):
    """The readings that the timeline explains, and rows by these as averages, that of a span first."""
    used, prior = readings.take(explained(activity, readings)), Prior(known_idle_w=IDLE_W, **beliefs)
    return used, attribute_program(used.time_s, used.value, [span], activity, response=RESPONSE, prior=prior)


def judged(groups, seeds, **more):
    """Rows that the readings halve and those of them that hold, wholes and processes that hold, programs that pass."""
    halved, held, wholes, processes, programs = 0, 0, 0, 0, 0
    for group in groups:
        for seed in seeds:
            rows, check, truth, whole, readings = averaged(group, seed, **more)
            if not check.passed:
                continue
            of_process = [np.arange(len(rows.seconds)) % 2 == number for number in (0, 1)]
            amounts = rows.together(np.vstack([np.eye(len(rows.seconds)), *of_process]))
            _, low, high = rows.energies.interval(amounts)
            true_j = np.nan_to_num(truth.kind_w) * rows.seconds
            true_j = np.append(true_j, [true_j[mine].sum() for mine in of_process])
            holds, kinds = (low <= true_j) & (true_j <= high), len(rows.seconds)
            mine = (rows.seconds > 0) & (np.diag(rows.after) <= PRIOR_SHARE**2 * np.diag(rows.before))
            edges_ns = 1e9 * np.array(whole) + readings.origin_ns - truth.power.begin_ns
            _, first, last = (float(one[0]) for one in rows.energies.interval(np.eye(1, len(amounts[0]))))
            halved, held, programs = halved + mine.sum(), held + holds[:kinds][mine].sum(), programs + 1
            wholes += first <= np.diff(truth.power.energy_j(edges_ns))[0] <= last
            processes += holds[kinds:].sum()
    return halved, held, wholes, processes, programs


def test_rows_by_averages_hold_and_so_do_processes_and_the_whole():
    """20 programs of five groups, of which one in ten may fail the check; kinds are of two processes."""
    groups = ("long_varied", "drift", "pauses", "large_fixed", "cap")
    halved, held, wholes, processes, programs = judged(groups, range(30, 34))
    assert programs >= 18
    assert halved >= 100
    assert held >= 0.92 * halved
    assert wholes >= 0.85 * programs
    assert processes >= 0.9 * 2 * programs


def test_rows_of_a_program_of_a_second_hold():
    halved, held, wholes, processes, programs = judged(("long_varied", "drift", "pauses"), range(30, 36), seconds=1.0)
    assert programs >= 15
    assert halved >= 60
    assert held >= 0.92 * halved
    assert wholes >= 0.85 * programs
    assert processes >= 0.85 * 2 * programs


@pytest.mark.slow
def test_rows_of_a_record_that_lacks_two_fifths_of_the_time_hold():
    """The energy of the hole is known by kinds alone: wholes hold less often."""
    halved, held, _, processes, programs = judged(("long_varied", "drift", "pauses"), range(30, 35), hole=0.4)
    assert programs >= 12
    assert halved >= 60
    assert held >= 0.92 * halved
    assert processes >= 0.85 * 2 * programs


def alike(group, seed, **more):
    """Rows of a simulated program all of whose kernels count as one kind, and the true energies of kinds."""
    activity, readings, truth = timed(group, seed, **more)
    _, rows = solved_by(activity.as_one(), readings, [activity.begin_s, activity.finish_s], spread=ALIKE)
    rows = of_each(rows, activity.seconds[:-1] @ activity.shares, Prior.power_w[1])
    return rows, np.nan_to_num(truth.kind_w) * rows.seconds


@pytest.mark.parametrize("seconds", [1.0, pytest.param(8.0, marks=pytest.mark.slow)])
def test_kernels_as_one_kind_hold_together_and_each(seconds):
    held = together = kinds = wide = 0
    for group in ("long_varied", "drift", "pauses", "cap"):
        for seed in range(100, 106):
            rows, true_j = alike(group, seed, seconds=seconds)
            count = len(true_j)
            mean, low, high = rows.energies.interval(rows.together(np.vstack([np.ones(count), np.eye(count)])))
            true_j = np.append(true_j.sum(), true_j)
            holds = (low <= true_j) & (true_j <= high)
            together, held, kinds = together + holds[0], held + holds[1:].sum(), kinds + count
            assert mean[1:].sum() == pytest.approx(mean[0])
            assert high[0] - mean[0] < 0.06 * mean[0]
            wide += (np.diag(rows.after) > PRIOR_SHARE**2 * np.diag(rows.before)).sum()
    assert together >= 0.85 * 24  # 95 % in 12 seeds more
    assert held >= 0.95 * kinds
    assert wide >= 0.9 * kinds  # so they are stated together, and only one that takes nearly all the time alone


def test_one_kind_has_a_row_by_averages():
    rows, check, truth, *_ = averaged("one_kind", 1)
    _, low, high = rows.energies.interval(rows.together([1.0]))
    assert check.passed
    assert low[0] <= truth.kind_w[0] * rows.seconds[0] <= high[0]


def test_one_kernel_that_lasts_all_the_time_has_a_row():
    """A load of 8 s whose readings scatter by 1 W."""
    rng = drawn(4)
    time_s = 0.02 * np.arange(500)
    on_w = 120.0 + 400.0 * (1 - np.exp(-np.maximum(time_s - 1.0, 0) / RESPONSE.rise_s)) * (time_s < 9.0)
    on_w += np.where((time_s > 1.0) & (time_s < 9.0), 1.0 * rng.standard_normal(500), 0.0)
    readings = on_grid((1e9 * (time_s + RESPONSE.delay_s)).astype(np.int64), on_w)
    times = np.array([1_000_000_000]), np.array([9_000_000_000])
    activity = activity_of(*times, np.zeros(1, int), [Kind("product")], readings.origin_ns)
    rows, check = solved(activity, readings)[:2]
    _, low, high = rows.energies.interval(rows.together([1.0]))
    assert check.passed
    assert low[0] <= 8.0 * 520.0 <= high[0]
    assert high[0] - low[0] < 0.05 * low[0]


def later(by_ns):
    return {"start": lambda t: t + by_ns}


def drawn(count):
    return np.random.default_rng(count)


FAULTS = {
    "5 ms late": later(5_000_000),
    "5 ms early": later(-5_000_000),
    "0.3 s late": later(300_000_000),
    "10 ms late from the middle on": {"start": lambda t: t + np.where(t > (t[0] + t[-1]) // 2, 10_000_000, 0)},
    "times at random": {"start": lambda t: t + drawn(1).integers(-400_000, 400_000, len(t))},
    "a tenth of the kernels missing": {"keep": lambda count: drawn(2).random(count) > 0.1},
    "names permuted": {"names": lambda kind: drawn(3).permutation(kind)},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_timeline_that_is_wrong_leaves_another_scatter_than_samples_do(fault):
    for seed in (3, 4):
        assert averaged("long_varied", seed)[1].passed
        assert not averaged("long_varied", seed, **FAULTS[fault])[1].passed


@pytest.mark.parametrize(("group", "seed"), [("foreign_load", 1), ("foreign_load", 2), ("locked_period", 1)])
def test_another_process_and_steps_in_time_with_the_samples_are_seen_by_their_scatter(group, seed):
    assert not averaged(group, seed)[1].passed
