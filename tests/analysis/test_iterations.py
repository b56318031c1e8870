"""From a record and windows to joules an iteration."""

import numpy as np
import pytest

from jouletrace.analysis import energies_per_iteration, fill
from jouletrace.analysis.iterations import of_variant, per_iteration, together
from records import channel, make_run, readings, windows

SECONDS = [(2.0, 3.0), (3.0, 4.0), (4.0, 5.0), (5.0, 6.0)]


@pytest.mark.thorough
def test_windows_of_a_steady_load_hold_its_power_times_their_time():
    run = make_run(readings(300.0, 10), window_rows=windows(SECONDS))
    fill(run)
    assert run.windows["energy_j"].to_pylist() == pytest.approx([300.0] * 4, rel=1e-6)
    assert run.windows["time_s"].to_pylist() == pytest.approx([1.0] * 4)
    assert energies_per_iteration(run) == pytest.approx([30.0] * 4, rel=1e-6)


def test_clock_and_temperature_are_means_within_the_window():
    channels = [channel(), channel("clock_sm_mhz"), channel("temperature_c")]
    clock = readings(lambda t: np.where(t < 3.0, 1000.0, 1980.0), 10, name="clock_sm_mhz", period_s=0.1)
    heat = readings(lambda t: 40.0 + t, 10, name="temperature_c", period_s=0.5)
    run = make_run(readings(300.0, 10) + clock + heat, channels=channels, window_rows=windows([(1.5, 2.9), (4.0, 5.0)]))
    fill(run)
    assert run.windows["clock_mhz"].to_pylist() == pytest.approx([1000.0, 1980.0])
    assert run.windows["temperature_c"].to_pylist() == pytest.approx([42.0, 44.5], abs=0.3)


@pytest.mark.thorough
def test_a_window_in_a_hole_has_no_energy_and_says_why():
    run = make_run(readings(300.0, 10, without=[(3.2, 3.8)]), window_rows=windows(SECONDS))
    fill(run)
    energy, flags = run.windows["energy_j"].to_pylist(), run.windows["flags"].to_pylist()
    assert energy[1] is None
    assert "hole_in_record" in flags[1]
    assert [energy[i] for i in (0, 2, 3)] == pytest.approx([300.0] * 3, rel=1e-3)
    assert len(energies_per_iteration(run)) == 3


def test_a_window_outside_the_record_has_no_energy():
    run = make_run(readings(300.0, 10), window_rows=windows([(2.0, 3.0), (9.5, 10.5)]))
    fill(run)
    assert run.windows["energy_j"].to_pylist()[1] is None
    assert "outside_record" in run.windows["flags"].to_pylist()[1]


def test_without_power_windows_still_have_their_time():
    run = make_run([], channels=[], window_rows=windows(SECONDS))
    assert fill(run) == {}
    assert run.windows["time_s"].to_pylist() == pytest.approx([1.0] * 4)
    assert run.windows["energy_j"].to_pylist() == [None] * 4


@pytest.mark.thorough
def test_the_flushes_alone_are_taken_off():
    edges = [(2.0, 3.0), (3.5, 4.5), (5.0, 6.0)]
    flushes = [(3.0, 3.5), (4.5, 5.0), (6.0, 6.5)]

    def watts(t):
        flushing = ((t >= 3.0) & (t < 3.5)) | ((t >= 4.5) & (t < 5.0)) | ((t >= 6.0) & (t < 6.5))
        return np.where(flushing, 200.0, 400.0)

    rows = windows(edges, replays=10) + windows(flushes, replays=10, variant="flush")
    run = make_run(readings(watts, 10), window_rows=rows)
    # 400 J less 100 J, and 1 s less 0.5 s, over 10 iterations
    assert energies_per_iteration(run) == pytest.approx([30.0] * 3, rel=1e-3)
    assert per_iteration(run, "time_s")[0] == pytest.approx([0.05] * 3)


def test_windows_come_in_the_order_in_which_they_ran():
    rows = windows(SECONDS)
    run = make_run(readings(lambda t: 100.0 * np.floor(t), 10), window_rows=rows[::-1])
    fill(run)
    assert of_variant(run, "untouched")["order"].to_pylist() == [0, 1, 2, 3]
    assert np.all(np.diff(per_iteration(run, "energy_j")[0]) > 0)


def test_columns_together_leave_out_windows_that_miss_one():
    run = make_run(readings(300.0, 10, without=[(3.2, 3.8)]), window_rows=windows(SECONDS))
    fill(run)
    (energy, time), block = together(run, "energy_j", "time_s")
    assert len(energy) == len(time) == len(block) == 3
    assert len(per_iteration(run, "time_s")[0]) == 4


def test_no_windows_give_nothing():
    run = make_run(readings(300.0, 10))
    assert fill(run) == {}
    assert len(energies_per_iteration(run)) == 0
