"""Recordings of which all but the last part is held as means of seconds; an hour is a minute here."""

import shutil

import numpy as np
import pytest

import jouletrace as jt
from jouletrace.analysis.conditions import ACTIVITY
from jouletrace.analysis.power import energies
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.seconds import last_hour
from jouletrace.simulator.boards import SimulatedGpu

LOAD, KEPT_S, SECONDS = "sim:h100?load=3.3:600,4.1:150", 30.0, 80.0
NS = 10**9


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Of the same GPU: a Run with means, one with all readings, the GPU, a copy of the first in the midst of it."""
    folder = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOULETRACE_SIMULATED_START", "1790000000")
        (device,) = devices = [SimulatedGpu(LOAD)]

        def copy(readings, work):
            if device.clock.monotonic_ns() > 65 * NS and not (folder / "cut").exists():
                shutil.copytree(folder / "run", folder / "cut")

        run = monitor(devices, duration_s=SECONDS, folder=folder / "run", kept_s=KEPT_S, displays=[copy])
        whole = monitor([SimulatedGpu(LOAD)], duration_s=SECONDS, folder=folder / "whole")
    return run, whole, device, folder


def of_seconds(run, channel):
    """Stamps, values, and the second of each."""
    stamps, values = run.series(run.devices[0].id, channel)
    return stamps, values, -(-stamps // NS)


def test_a_recording_of_less_than_an_hour_holds_all_readings(recorded):
    _, whole, _, folder = recorded
    assert len(of_seconds(whole, "power_w")[0]) > 50 * SECONDS
    assert len(whole.recent) == len(whole.extremes) == 0
    assert not (folder / "whole" / "recent.parquet").exists()


def test_each_second_has_one_mean_and_none_is_lost(recorded):
    run, whole, *_ = recorded
    for channel in ("power_w", "power_instant_w", "temperature_c", "throttle_bits"):
        seconds, expected = of_seconds(run, channel)[2], of_seconds(whole, channel)[2]
        assert seconds.tolist() == np.unique(expected).tolist()


def test_sums_of_means_are_those_of_the_readings(recorded):
    run, whole, *_ = recorded
    stamps, means, _ = of_seconds(run, "power_w")
    time_ns, watts, _ = of_seconds(whole, "power_w")
    sums_j = np.append(0.0, np.cumsum(watts[1:] * np.diff(time_ns) / 1e9))
    each_j = np.diff(np.interp((stamps - time_ns[0]) / 1e9, (time_ns - time_ns[0]) / 1e9, sums_j))
    assert means[1:] * np.diff(stamps) / 1e9 == pytest.approx(each_j, abs=6e-4)  # rounded to 1 mW


def test_extremes_are_the_lowest_and_highest_readings_of_the_second(recorded):
    run, whole, *_ = recorded
    _, watts, second = of_seconds(whole, "power_w")
    rows = [row for row in run.extremes.to_pylist() if row["channel"] == "power_w"]
    assert len(rows) >= SECONDS - 1
    for row in rows:
        there = watts[second == -(-row["time_ns"] // NS)]
        assert (row["low"], row["high"]) == (there.min(), there.max())


def test_states_and_counters_keep_the_last_reading_of_a_second(recorded):
    run, whole, *_ = recorded
    stamps, values, seconds = of_seconds(run, "energy_counter_j")
    every, counts, second = of_seconds(whole, "energy_counter_j")
    last = np.searchsorted(second, seconds, side="right") - 1
    assert stamps.tolist() == every[last].tolist()
    assert values.tolist() == counts[last].tolist()


def test_the_last_part_has_all_readings(recorded):
    run, whole, *_ = recorded
    last = last_hour(run)
    stamps, watts, _ = of_seconds(last, "power_w")
    every, power, _ = of_seconds(whole, "power_w")
    assert (stamps[-1] - stamps[0]) / 1e9 >= KEPT_S - 2
    assert stamps.tolist() == every[-len(stamps) :].tolist()
    assert watts.tolist() == power[-len(stamps) :].tolist()


@pytest.mark.parametrize(
    ("start_s", "end_s"),
    [(0, 79.0), (5.0, 35.0), (10.37, 22.81), (30.2, 75.3), (40.0, 78.0), (70.2, 73.1), (75.05, 75.95)],
)
def test_intervals_hold_before_after_and_across_the_border(recorded, start_s, end_s):
    run, _, device, _ = recorded
    start, end = (run.created_ns + round(edge * NS) for edge in (start_s, end_s))
    energy = energies(run, run.devices[0].id, [start], [end], bursts_ns=[]).estimate()
    assert energy.low <= device.truth.energy_j(start, end) <= energy.high
    assert energy.half_width < 0.05 * energy.value


def test_the_energy_of_the_whole_holds_the_truth_and_is_that_of_all_readings(recorded):
    run, whole, device, _ = recorded
    (phase,) = run.spans.to_pylist()
    energy = run.result("energy_total_j", 1)
    assert energy.low <= device.truth.energy_j(phase["start_ns"], phase["end_ns"]) <= energy.high
    assert energy.value == pytest.approx(whole.result("energy_total_j", 1).value, rel=1e-3)
    assert run.result("time_s", 1).value == pytest.approx(SECONDS, abs=0.1)


def test_a_run_with_means_opens_equal(recorded):
    run, _, _, folder = recorded
    again = jt.load(str(folder / "run"))
    for name in ("samples", "recent", "extremes", "results"):
        assert again.table(name).to_pydict() == run.table(name).to_pydict()
    assert again.warnings == run.warnings


def test_to_show_it_reads_channels_of_its_conditions_alone(recorded, monkeypatch):
    """Clocks, temperature and throttling of the whole; figures are stored."""
    run = jt.load(str(recorded[-1] / "run"))
    read, rows = [], ChannelFile.rows
    monkeypatch.setattr(
        ChannelFile, "rows", lambda file, *named: read.append((file.name, *named)) or rows(file, *named)
    )
    monkeypatch.setattr(ChannelFile, "table", property(lambda file: pytest.fail(f"all of {file.name} was read")))
    assert "kJ" in str(run)
    channels = ("clock_sm_mhz", "clock_memory_mhz", "temperature_c", "throttle_bits", *ACTIVITY.values())
    assert set(read) <= {("samples", run.devices[0].id, channel) for channel in channels}


def test_an_energy_reads_power_alone(recorded, monkeypatch):
    run = jt.load(str(recorded[-1] / "run"))
    read, rows = [], ChannelFile.rows
    monkeypatch.setattr(ChannelFile, "rows", lambda file, *named: read.append(named[1]) or rows(file, *named))
    start, end = (run.created_ns + round(edge * NS) for edge in (10.37, 22.81))
    energies(run, run.devices[0].id, [start], [end], bursts_ns=[])
    assert set(read) == {"power_w"}


def test_what_was_cut_off_keeps_all_that_was_written(recorded):
    run, *_, folder = recorded
    cut = jt.load(str(folder / "cut"))
    (stamps, means, seconds), (_, watts, all_seconds) = (of_seconds(some, "power_w") for some in (cut, run))
    assert stamps[-1] > run.created_ns + 63 * NS
    whole = seconds[:-1]
    assert whole.tolist() == all_seconds[: len(whole)].tolist()
    assert means[:-1].tolist() == watts[: len(whole)].tolist()


def test_a_part_that_was_thinned_and_is_still_there_counts_once(recorded):
    folder = recorded[-1]
    before = jt.load(str(folder / "cut"))
    spool = folder / "cut" / "spool"
    oldest = min(spool.glob("recent.*"))
    late = sorted(spool.glob("recent.*"))[1]
    shutil.copy(oldest, spool / "recent.000000.arrows")
    after = jt.load(str(folder / "cut"))
    (spool / "recent.000000.arrows").unlink()
    assert late.exists()
    assert of_seconds(after, "power_w")[0].tolist() == of_seconds(before, "power_w")[0].tolist()


@pytest.mark.slow
def test_a_recorder_process_thins_too(tmp_path):
    run = monitor([SimulatedGpu(f"{LOAD}&realtime=1")], duration_s=12.0, folder=tmp_path / "run", kept_s=2.0)
    _, _, seconds = of_seconds(run, "power_w")
    assert seconds.tolist() == list(range(seconds[0], seconds[-1] + 1))
    assert len(run.recent) > 0
    assert not run.warnings
    assert jt.load(str(tmp_path / "run")).samples.num_rows == run.samples.num_rows


@pytest.mark.parametrize("seconds", [100.0, pytest.param(2000.0, marks=pytest.mark.slow)])
def test_displays_see_every_part_of_hundreds(seconds):
    """A part is of 4 s here: its reader goes on to the next."""
    seen = []
    run = monitor(
        [SimulatedGpu("sim:h100?load=1000:300")],
        duration_s=seconds,
        interval_s=10.0,
        kept_s=20.0,
        displays=[lambda readings, work: seen.append((readings[0].energy_j, readings[0].hole_s))],
    )
    assert seen[-1] == (pytest.approx(300 * seconds, rel=0.05), 0.0)
    assert len(of_seconds(run, "power_w")[0]) == pytest.approx(seconds, abs=4)
