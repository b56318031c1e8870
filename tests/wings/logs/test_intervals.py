"""Energies of logs whose readings show little of the time between them: they hold, or say what is missing."""

import datetime

import numpy as np
import pytest

from commands import done
from covering import fewest
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files

BEGIN = datetime.datetime(2026, 8, 12, 16, 0)


def imported(folder, at_s, power, board="NVIDIA A100-SXM4-80GB"):
    """The Run of a log of nvidia-smi, read at these times."""
    rows = []
    for second, watts in zip(at_s, power, strict=True):
        time = BEGIN + datetime.timedelta(seconds=round(float(second), 3))
        rows.append(f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03d}, {board}, {watts:.2f} W\n")
    path = folder / "log.csv"
    path.write_text("timestamp, name, power.draw [W]\n" + "".join(rows))
    return analyse(read_files([path]))


def load(rng, mean_s, periodic, step_s, count=200):
    """Times and momentary readings of a load between two levels, and its mean power between the first and the last."""
    low, high = rng.uniform(80, 150), rng.uniform(200, 400)
    gaps = np.resize(mean_s * np.array([0.4, 0.6]), 9000) if periodic else rng.gamma(4.0, mean_s / 4, 9000)
    edges = np.append(0.0, np.cumsum(gaps)) - rng.uniform() * mean_s
    watts = np.where(np.arange(len(gaps)) % 2, low, high)
    at = 5.0 + step_s * np.arange(count)
    values = watts[np.searchsorted(edges, at, side="right") - 1] + 0.3 * rng.standard_normal(count)
    energy = np.append(0.0, np.cumsum(watts * np.diff(edges)))
    return at, values, float(np.diff(np.interp(at[[0, -1]], edges, energy))[0] / (at[-1] - at[0]))


@pytest.mark.thorough
@pytest.mark.parametrize("step_s", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("periodic", [False, True])
def test_intervals_of_loads_that_change_between_readings_hold(tmp_path, step_s, periodic):
    """Changes each second and a half or six: some in the rhythm of the log, nearly."""
    hits, trials, half = 0, 16, []
    for seed in range(trials):
        rng = np.random.default_rng([seed, periodic])
        at, values, truth_w = load(rng, (1.57, 6.3)[seed % 2] * step_s, periodic, step_s)
        power = imported(tmp_path, at, values).result("power_w", 1)
        assert power.method == "record"
        hits += power.low <= truth_w <= power.high
        half.append(power.half_width / power.value)
    assert hits >= fewest(trials)
    assert np.median(half) < 0.08


@pytest.mark.parametrize("power", [np.full(60, 80.0), np.repeat([80.0, 300.0], 30)], ids=["equal", "one change"])
def test_equal_readings_have_an_energy_and_a_remark(tmp_path, power):
    run = imported(tmp_path, np.arange(60.0), power)
    found = run.result("energy_total_j", 1)
    assert found.value == pytest.approx(float(power.mean()) * 59, rel=5e-3)
    assert "equal_readings" in found.flags


def test_a_load_in_the_rhythm_of_the_log_has_no_energy_and_says_what_to_do(tmp_path):
    """On for four tenths of each 0.1 s; the log comes each second, late or early by up to 3 ms, and slips slowly."""
    rng = np.random.default_rng(2)
    late = np.round(0.003 * rng.uniform(-1, 1, 200), 3)
    cycles = ((np.arange(200) + late - 5e-5 * np.arange(200)) / 0.1 + 0.03) % 1
    run = imported(tmp_path, np.arange(200) + late, np.where(cycles < 0.4, 300.0, 100.0))
    found = run.result("energy_total_j", 1)
    assert (found.value, found.reason) == (None, "aliased_with_log")
    run.save(tmp_path / "run")
    said = done("show", str(tmp_path / "run"), "-v").out
    assert "its load repeats in the log's own rhythm" in " ".join(said.split())
    assert "log at another or uneven interval" in " ".join(said.split())


def test_means_over_a_second_and_a_mean_of_unknown_readings_are_distinguished(tmp_path):
    """An H100's power.draw each 0.1 s covers all time: its energy is that of the readings, a load's rhythm or not."""
    power = np.repeat([100.0, 500.0, 100.0], [100, 100, 100])
    read = np.convolve(np.append(np.full(9, 100.0), power), np.full(10, 0.1), "valid")
    means = imported(tmp_path, 0.1 * np.arange(300), read, board="NVIDIA H100 80GB HBM3").result("energy_total_j", 1)
    assert means.half_width < 0.01 * means.value
    assert means.value == pytest.approx(float(power.mean()) * 29.9, rel=0.01)
    assert not {"equal_readings"} & set(means.flags)


def test_a_meter_of_unknown_kind_has_the_mean_of_its_readings_and_a_line_says_what_would_show_more(tmp_path):
    path, power = tmp_path / "meter.csv", 200 + (37 * np.arange(40)) % 23
    path.write_text("time,power_w\n" + "".join(f"{1786553852 + k},{watts}\n" for k, watts in enumerate(power)))
    run = analyse(read_files([path]))
    found = run.result("power_w", 1)
    assert (found.method, found.flags) == ("samples", ())
    assert found.value == pytest.approx(power.mean(), rel=5e-3)
    (warning,) = run.warnings
    assert warning.code == "meter_unknown"
    assert "an energy counter would show more" in warning.message


def test_gpus_that_share_a_hole_err_alike_in_it(tmp_path):
    rows = []
    for k in [*range(700), *range(720, 1400)]:
        time = BEGIN + datetime.timedelta(seconds=5 * k)
        watts = 600 if 400 < k < 1000 else 70
        rows += [f"{time:%Y/%m/%d %H:%M:%S}.000, {i}, NVIDIA H100 80GB HBM3, {watts + i}.00 W\n" for i in range(2)]
    path = tmp_path / "log.csv"
    path.write_text("timestamp, index, name, power.draw [W]\n" + "".join(rows))
    run = analyse(read_files([path]))
    each = [run.result("energy_total_j", unit) for unit in (1, 2)]
    both, truth = run.result("energy_total_j"), 599 * 5 * 530.0 + 1399 * 5 * 70
    assert each[0].value == pytest.approx(truth, abs=6000)
    assert both.half_width == pytest.approx(each[0].half_width + each[1].half_width, rel=5e-3)
    power = run.result("power_w")
    assert power.half_width / power.value == pytest.approx(both.half_width / both.value, rel=1e-3)
    assert both.budget["holes of the record"] == pytest.approx(2 * 530 * 105 / 1.96, rel=2e-3)
