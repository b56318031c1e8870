"""Readings that Prometheus repeats count once; those of a GPU that repeat since they are rounded count as they did."""

import numpy as np
import pytest

from held_logs import Collector, Load, answer, asked, check_intervals, imported, logs, period_s
from jouletrace.analysis import analyse


@pytest.mark.thorough
@pytest.mark.parametrize(("collector_s", "row_s"), [(30, 1), (30, 15), (120, 5)])
def test_intervals_are_those_of_each_reading_once(tmp_path, collector_s, row_s):
    check_intervals(tmp_path, collector_s, row_s, answer)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "collector",
    [{"noise_w": 0.0}, {"step_w": 1.0}, {"late_s": 0.5}, {"restarts": True}],
    ids=str,
)
@pytest.mark.parametrize("row_s", [1, 5, 15])
def test_the_period_is_that_of_the_collector(tmp_path, row_s, collector):
    repeated, _, _ = logs(tmp_path, 3, 30, row_s, answer, **collector)
    assert period_s(repeated) == pytest.approx(30, rel=0.1)
    assert "readings_repeated" in {warning.code for warning in repeated.warnings}


@pytest.mark.thorough
def test_rows_may_be_missing_and_those_of_two_gpus_have_periods_of_their_own(tmp_path):
    rng = np.random.default_rng(5)
    series = []
    for collector_s in (30.0, 0.1):
        load = Load.drawn(rng, 4000)
        rows_s = np.arange(0.0, 3600, 2.0)
        rows_s = rows_s[rng.random(len(rows_s)) > 0.05]
        series.append((rows_s, asked(*Collector(collector_s).readings(rng, load, 3600), rows_s)))
    run = imported(answer(tmp_path / "two.json", *series))
    assert [period_s(run, device) for device in (0, 1)] == pytest.approx([30, 2], rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_sensor_that_is_polled_live_has_the_period_of_its_changes(tmp_path, calibrated):
    """One that answers each second where every 100 ms are stated."""
    rng, rows_s = np.random.default_rng(4), np.arange(0.0, 120, 0.05)
    run = imported(
        answer(tmp_path / "log", (rows_s, asked(*Collector(1.0).readings(rng, Load.drawn(rng, 200), 120), rows_s)))
    )
    (channel,) = run.channels
    run.kind, run.warnings, channel.period_s = "monitor", [], 0.1
    channel.response = {**channel.response, "period_s": 0.1} if calibrated else {}
    analyse(run)
    assert (run.channels[0].period_s, period_s(run)) == pytest.approx((1.0, 1.0), rel=0.01)
    assert [one.code for one in run.warnings].count("readings_repeated") == 1
    analyse(run)
    assert [one.code for one in run.warnings].count("readings_repeated") == 1


@pytest.mark.thorough
def test_a_gpu_whose_reading_is_frozen_for_minutes_has_no_period_of_minutes(tmp_path):
    rng, rows_s = np.random.default_rng(2), np.arange(0.0, 3600)
    watts = asked(*Collector(0.1).readings(rng, Load.drawn(rng, 4000), 3600), rows_s)
    watts[1200:1800] = watts[1200]
    assert period_s(imported(answer(tmp_path / "frozen.json", (rows_s, watts)))) == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("changes", [0.003, 0.02, 0.2])
def test_rows_of_a_gpu_at_rest_that_reads_whole_watts_are_readings(tmp_path, seed, changes):
    """Minutes at 62 W, then 63: half a watt of rounding, and next to nothing else, within 1.2."""
    rng, rows_s = np.random.default_rng(seed), np.arange(0.0, 3600)
    run = imported(answer(tmp_path / "rest.json", (rows_s, 62.0 + (rng.random(3600) < changes))))
    assert period_s(run) == 1.0
    assert run.result("power_w", 1).half_width < 1.2 * 1.96 / np.sqrt(12)


@pytest.mark.thorough
def test_so_are_they_where_it_works_at_times(tmp_path):
    """Ten minutes at 62 W and one at 300 W that scatter by 2 W, in turn."""
    rng, rows_s = np.random.default_rng(7), np.arange(0.0, 7200)
    watts = np.where(rows_s % 660 < 600, 62.0, np.round(300 + 2 * rng.standard_normal(7200)))
    assert period_s(imported(answer(tmp_path / "works.json", (rows_s, watts)))) == 1.0
