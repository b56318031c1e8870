"""A simulated GPU with the calibrated parameters of a real one does what the real one did."""

import re
import sys

import numpy as np
import pytest

from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import reality
import sensor_models
from recordings import FOLDER, RECORDS, recording

pytestmark = pytest.mark.thorough


def test_every_figure_of_the_documentation_is_drawn_by_the_script_and_there():
    root = FOLDER.parent.parent
    shown = {
        name for page in (root / "docs").rglob("*.md") for name in re.findall(r"figures/(\w+)\.svg", page.read_text())
    }
    drawn = set(re.findall(r'^    "(\w+)": \w+,$', (root / "benchmarks" / "figures.py").read_text(), re.MULTILINE))
    there = {path.stem for path in (root / "docs" / "figures").glob("*.svg")}
    by_export = {"waveform", "canary"}  # docs/how-to/layers.md and docs/results/canary.md have the commands
    assert shown - by_export == drawn == there - by_export
    assert by_export <= there


def test_recordings_are_small_enough_to_be_kept():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_500_000


@pytest.mark.parametrize("name", RECORDS)
def test_a_recording_is_a_record_every_20_ms_of_a_load_with_known_levels(name):
    source = recording(name)
    assert np.median(np.diff(source.time_ns)) == pytest.approx(20e6, rel=0.01)
    assert np.all(np.diff(source.edge_ns) > 0)
    assert len(source.level) == len(source.edge_ns) + 1
    assert source.level[0] == source.level[-1] == 0
    assert 0.3 < source.other_half().mean() < 0.7
    late = source.time_ns - source.read_ns
    assert late.min() > -4_000_000
    assert late.max() < 12_000_000


def test_the_response_estimated_on_the_copies_is_an_exponential_of_13_ms():
    response = reality.calibrated()
    assert response.rise_s == pytest.approx(0.0128, abs=0.0006)
    assert response.delay_s == pytest.approx(0.0164, abs=0.0008)
    assert response.window_s < 0.006
    assert response.modelled


def test_pulses_below_the_cap_come_out_of_the_simulated_gpu_as_recorded():
    found = reality.copies()
    assert found.rms_w < 4.5
    assert found.on_time_rms_w < 3
    assert found.median_w < 1.5
    assert found.explained > 0.999


def test_a_boxcar_of_25_ms_would_not_do():
    source = recording("h100_copies")
    boxcar = reality.board().with_given(record_lag_s=0.0039, record_window_s=0.025, record_rise_s=1e-6)
    found = reality.likeness("boxcar", source, reality.fitted_levels(source, boxcar)[0], source.other_half())
    assert found.on_time_rms_w > 3 * reality.copies().on_time_rms_w


def test_the_step_of_four_segments_comes_out_as_recorded():
    found = reality.segments()
    assert found.rms_w < 33
    assert found.on_time_rms_w < 23
    assert found.explained > 0.97


@pytest.mark.slow
def test_square_waves_under_the_cap_come_out_as_recorded_down_to_bursts_of_10_ms():
    found = reality.squares()
    assert [part.n > 100 for part in found] == [True] * 3
    assert max(part.rms_w for part in found) < 48
    assert min(part.explained for part in found) > 0.97
    assert max(part.median_w for part in found) < 15


def test_readings_on_the_recorded_gpus_are_taken_at_half_slots_whatever_their_stamps_say():
    by_slot = sensor_models.Levels(recording("h100_segments"))
    by_stamp = sensor_models.Levels(recording("h100_segments"))
    by_stamp.time = (recording("h100_segments").time_ns - recording("h100_segments").time_ns[0]) / 1e9
    everything = np.ones(len(by_slot.power), bool)
    shape = np.array([0.003, 0.002, 0.0125])
    rms = [float(np.std(levels.residual(shape, everything))) for levels in (by_slot, by_stamp)]
    assert rms[1] > 1.3 * rms[0]


@pytest.mark.parametrize(
    "name", [name if name == "h100_copies" else pytest.param(name, marks=pytest.mark.slow) for name in RECORDS]
)
def test_an_exponential_explains_more_than_a_boxcar_on_every_recording(name):
    levels = sensor_models.Levels(recording(name))
    boxcar, exponential = levels.fit("boxcar"), levels.fit("exponential")
    assert 1 - exponential.explained < 0.65 * (1 - boxcar.explained)
    assert 0.011 < exponential.rise_s < 0.014
    assert 0.002 < exponential.lag_s < 0.005
