"""Idle and working level of a log: which readings count, and that intervals hold."""

import datetime
import sys

import numpy as np
import pytest

from covering import fewest
from energy_signals import wander
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks" / "estimator"))
import logs as simulated

METRICS = ("power_idle_w", "power_working_w", "power_difference_w")
BEGIN = datetime.datetime(2026, 8, 12, 16, 0)


def imported(folder, power, step_s=1.0, name="power.draw [W]", board="NVIDIA A100-SXM4-80GB", used=None):
    """The Run of a log of nvidia-smi, read each ``step_s``, with its utilisation if it is given."""
    at = [BEGIN + datetime.timedelta(seconds=k * step_s) for k in range(len(power))]
    ends = ["\n"] * len(at) if used is None else [f", {share:.0f} %\n" for share in used]
    rows = (
        f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03d}, {board}, {watts:.4f} W{end}"
        for time, watts, end in zip(at, power, ends, strict=True)
    )
    path = folder / "log.csv"
    path.write_text(f"timestamp, name, {name}{', utilization.gpu [%]' * (used is not None)}\n" + "".join(rows))
    return analyse(read_files([path]))


def levels(folder, power, **how):
    run = imported(folder, power, **how)
    return [run.result(metric, 1) for metric in METRICS]


@pytest.mark.parametrize("ramp", [0, 6])
def test_a_log_is_split_in_two_levels_and_the_ramp_dropped(tmp_path, ramp):
    power = np.repeat([62.0, 180.0, 62.0], [40, 80, 30])
    power[40 : 40 + ramp] = np.linspace(75, 175, ramp)
    idle, working, difference = levels(tmp_path, power + np.random.default_rng(2).normal(0, 0.5, 150))
    assert idle.value == pytest.approx(62, abs=0.4)
    assert working.value == pytest.approx(180, abs=0.4)
    assert difference.low < 118 < difference.high
    assert difference.half_width < 0.5
    assert working.n <= 80 - ramp


def test_a_log_of_one_level_is_not_split(tmp_path):
    assert {one.reason for one in levels(tmp_path, np.random.default_rng(0).normal(62, 1, 200))} == {"one_level"}


@pytest.mark.parametrize(
    ("low", "used", "reason"),
    [
        (300.0, (98, 98), "used_throughout"),
        (90.0, (98, 98), "used_throughout"),
        (90.0, (0, 0), "used_throughout"),
        (90.0, (0, 98), None),
        (150.0, (0, 98), None),  # of a light load
        (150.0, None, "not_at_rest"),
        (100.0, None, None),
    ],
)
def test_idle_is_a_level_at_which_the_gpu_is_not_in_use_or_as_far_as_that_is_unknown_a_low_one(
    tmp_path, low, used, reason
):
    """Of a GPU that works at two levels, the lower isn't idle power."""
    shares = None if used is None else np.repeat([used[0], used[1], used[0]], [40, 40, 40])
    power = np.repeat([low, 320.0, low], [40, 40, 40]) + np.random.default_rng(0).normal(0, 0.5, 120)
    assert {one.reason for one in levels(tmp_path, power, used=shares)} == {reason}


def test_a_level_of_0_w_is_one_level(tmp_path):
    power = np.repeat([0.0, 300.0], [40, 80])
    with np.errstate(all="raise"):
        assert {one.reason for one in levels(tmp_path, power, used=np.full(120, 90.0))} == {"used_throughout"}


@pytest.mark.thorough
@pytest.mark.parametrize("idle_s", [300, 1200, 20_000])
def test_power_at_work_may_swing_by_more_than_it_is_above_idle(tmp_path, idle_s):
    """A job whose power swings between 230 and 670 W, of which idle power is no part."""
    time = np.arange(0, 3000 + idle_s, 5.0)
    swing = 180 * np.sin(2 * np.pi * time / 47) + 40 * np.sin(2 * np.pi * time / 700)
    power = np.where(time < 3000, 450 + swing, 70.0) + np.random.default_rng(1).normal(0, 1.5, len(time))
    idle, working, _ = levels(tmp_path, power, step_s=5.0)
    assert idle.value == pytest.approx(70, abs=0.5)
    assert working.low < 450 < working.high
    assert idle.half_width < 2


def test_power_that_takes_all_values_has_no_level(tmp_path):
    rng = np.random.default_rng(3)
    for power in (np.linspace(70, 500, 400), rng.uniform(70, 500, 400), 285 + 215 * np.sin(np.arange(400) / 17)):
        assert {one.reason for one in levels(tmp_path, power)} == {"one_level"}


@pytest.mark.parametrize(
    ("power", "found"),
    [
        ([70.0, 71.0, 70.0, 300.0, 301.0, 300.0], (70.5, 300.5)),
        (np.arange(5.0) + 1, None),
        ([60.0, 60.0, 60.1, 180.0, 180.0], None),
    ],
)
def test_a_log_too_short_to_split_says_so(tmp_path, power, found):
    idle, working, difference = levels(tmp_path, power)
    if found is None:
        assert {one.reason for one in (idle, working, difference)} == {"too_few_values"}
    else:
        assert (idle.value, working.value) == pytest.approx(found, abs=0.5)


@pytest.mark.thorough
def test_intervals_of_levels_hold_what_was_drawn_there(tmp_path):
    """Power wanders between readings, ten of which come in the time after which it has forgotten what it was."""
    hits, trials, half = np.zeros(2), 16, []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        fine = np.repeat([62.0, 180.0], 4000) + 2 * wander(rng, 8000, 10.0, 1.0)
        idle, working, _ = levels(tmp_path, fine[::20] + 0.1 * rng.normal(size=400))
        half.append(idle.half_width)
        for k, level in enumerate((idle, working)):
            hits[k] += level.low <= fine[4000 * k : 4000 * (k + 1)].mean() <= level.high
    assert min(hits) >= fewest(trials)
    assert np.median(half) < 0.5


@pytest.mark.parametrize(
    ("lengths", "idle", "working"), [((40, 80, 30), 68, 78), ((40, 80), 39, 79), ((4, 80, 4), 6, 78)]
)
def test_readings_beside_a_step_may_be_of_its_ramp_and_those_at_the_ends_of_a_log_are_not(
    tmp_path, lengths, idle, working
):
    power = np.concatenate([np.full(n, 180.0 if k % 2 else 62.0) for k, n in enumerate(lengths)])
    rest, work, _ = levels(tmp_path, power)
    assert (rest.value, work.value) == (pytest.approx(62.0), pytest.approx(180.0))
    assert (rest.n, work.n) == (idle, working)


@pytest.mark.parametrize(
    ("low", "high", "high_w", "two"),
    [
        (30, 30, 100.0, True),
        (57, 3, 100.0, False),  # a twentieth of them, of which the ramps are none
        (40, 40, 80.0, False),
        (40, 40, 90.0, True),  # a tenth of the way from 60 to 300 W
    ],
)
def test_two_levels_at_rest_have_some_readings_each_and_a_tenth_of_the_way_to_work_between_them(
    tmp_path, low, high, high_w, two
):
    run = imported(tmp_path, np.repeat([60.0, 300.0, high_w], [low, 80, high]))
    said = [warning.message for warning in run.warnings if warning.code == "idle_levels"]
    assert said == ([f"the power rests at 60 W and at {high_w:.3g} W: idle is the lower level"] if two else [])
    idle = run.result("power_idle_w", 1).value
    assert idle == pytest.approx(60.0) if two else idle > 60.0


def test_readings_between_two_levels_at_rest_count_for_neither(tmp_path):
    """Means over 1 s, ten per second: 72 W, 130 W with a context, 520 W at work, and back."""
    time = np.arange(0, 60, 0.1)
    power = np.select([time < 12, time < 20, time < 40, time < 48], [72.0, 130.0, 520.0, 130.0], 72.0)
    power = power + np.random.default_rng(0).normal(0, 0.3, len(time))
    read = np.append(power[:9], np.convolve(power, np.full(10, 0.1), "valid"))
    idle, _, _ = levels(tmp_path, read, step_s=0.1, board="NVIDIA H100 80GB HBM3")
    assert idle.value == pytest.approx(72.0, abs=0.1)
    assert idle.half_width < 0.3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sensor", "noise", "step_s", "widest"),
    [
        ("25 of 100 ms", "white", 1.0, 10.0),  # W of the level at work
        ("25 of 100 ms", "slow", 1.0, 20.0),
        ("mean over 1 s", "0.5 W", 0.1, 0.2),
        ("mean over 1 s", "slow", 0.1, 30.0),
    ],
)
def test_levels_of_noisy_logs_hold_those_of_the_workload(sensor, noise, step_s, widest):
    """Readings that scatter by 30 to 60 W, of power and of the sensor; that show the time before an edge."""
    trials = 40
    judged = simulated.judged_levels(sensor, noise, step_s, trials, 1)
    given = round(trials * (1 - judged["null"]))
    assert given >= 0.9 * trials
    assert min(judged["holds"]) * given >= fewest(given)
    assert min(judged["of_workload"]) * given >= fewest(given)
    assert judged["half_w"][1] < widest
