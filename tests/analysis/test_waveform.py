"""Power inside an iteration: it adds up to the rows, holds the truth of simulated GPUs, and is kept in the Run."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from energy_tables import recorded_of
from jouletrace.analysis import analyse, parts
from jouletrace.analysis.waveform import BIN_NS, edges_of, table_of, typical, waveform_of
from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.lock import lock
from jouletrace.bundled import bundled_runs
from jouletrace.run import Run, load, tables
from jouletrace.sensor import HOPPER_SENSOR, on_grid
from scenarios import draw


@pytest.fixture(scope="module")
def recorded():
    """The Run that ships, and the powers of its analysis."""
    made = []

    def kept(run, powers, iterations):
        made.append(powers)
        return table_of(run, powers, iterations)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "table_of", kept)
        run = analyse(next(entry.run for entry in bundled_runs() if "layers" in entry.name))
    return run, made[0]


@pytest.mark.thorough
def test_its_integral_is_the_energy_of_its_iteration(recorded):
    run, powers = recorded
    found = waveform_of(run)
    assert found.has_power.all()
    whole = powers.recorded.rows([found.edges_ns[[0, -1]]]).energies.interval()[0][1]
    assert found.energy_j == pytest.approx(whole, rel=1e-4)
    mean = run.result("energy_total_j").value * run.result("closure_kernels").value
    assert found.energy_j == pytest.approx(mean, rel=0.02)  # iterations differ by their clocks


@pytest.mark.thorough
@pytest.mark.parametrize("group", ["large_fixed", pytest.param("eager", marks=pytest.mark.slow)])
def test_its_band_holds_what_a_simulated_gpu_drew(group):
    """Launches scatter by 3 % about their kind, so the truth is the mean over iterations."""
    _, recording, truth = draw(3, group, seconds=8.0)
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    near = (truth.sensor.rate_hz - 3, truth.sensor.rate_hz + 3)
    fitted = lock(activity, replace(HOPPER_SENSOR, rates_hz=near), readings).fit
    _, first = np.unique(recording.iteration, return_index=True)
    begins = recording.start_ns[first[len(first) // 10 :]]
    some = list(pairwise(begins))[:: len(begins) // 8][:8]
    edges = np.stack([np.linspace(begin, end, 51).astype(np.int64) for begin, end in some])
    spans = np.stack([edges[:, :-1], edges[:, 1:]], axis=-1)
    found = recorded_of(fitted).rows(spans - readings.origin_ns)
    seconds = np.diff(spans)[..., 0] / 1e9
    low, high = (
        one[1 : spans[..., 0].size + 1].reshape(seconds.shape) / seconds for one in found.energies.interval()[1:]
    )
    real = (spans - truth.clock_offset_ns - truth.power.begin_ns).astype(float)
    drew = truth.power.mean_w(real[..., 0].ravel(), real[..., 1].ravel()).reshape(seconds.shape)
    low, high, drew = (one.mean(axis=0) for one in (low, high, drew))
    assert np.ptp(drew) > 100
    assert np.mean((low <= drew) & (drew <= high)) >= 0.9
    assert np.median(high - low) < 0.2 * np.median(drew)


def test_the_iteration_is_a_plain_one_of_median_length(recorded):
    run, _ = recorded
    found = waveform_of(run)
    length = int(found.edges_ns[-1] - found.edges_ns[0])
    assert length == pytest.approx(1e9 * run.result("iteration_time_s").value, rel=0.02)
    assert not pc.any(found.kernels["copy"]).as_py()
    count = sum(unit["count"] for unit in run.units.to_pylist() if unit["level"] == "kernel")
    assert len(found.kernels) == count
    assert np.ptp(np.diff(found.edges_ns)) <= 1
    assert len(found.power_w) == round(length / BIN_NS)


def activity(rows):
    run = Run()
    columns = ("start_ns", "end_ns", "unit", "site", "copy")
    run.activity = tables.from_rows([dict(zip(columns, row, strict=True)) for row in rows], "activity")
    return run


def test_iterations_with_copies_and_the_last_one_are_left_out():
    starts = [0, 1000, 2100, 3300, 4200, 5600]
    rows = [(at + 10 * unit, at + 10 * unit + 5, unit, None, False) for at in starts for unit in (1, 2)]
    rows += [(1030, 1035, 2, None, True), (7, 8, 9, 4, False)]  # a copy; a kernel that isn't in each iteration
    assert typical(activity(rows), len(starts)) == (2110, 3310)  # of 900, 1000, 1200 and 1400 ns the third
    assert typical(activity(rows[:2]), 1) is None
    assert typical(activity([(0, 5, 1, None, False)] * 3), 2) is None


@pytest.mark.parametrize(("length", "bins"), [(7, 7), (1_000_000, 50), (6_649_000, 66), (371_000_000, 500)])
def test_bins_are_of_a_tenth_of_a_millisecond_within_bounds(length, bins):
    edges = edges_of(1_795_347_272_085_704_237, 1_795_347_272_085_704_237 + length)
    assert len(edges) - 1 == bins
    assert edges[-1] - edges[0] == length
    assert np.diff(edges).min() > 0


@pytest.mark.thorough
def test_it_is_kept_and_computed_again(recorded, tmp_path):
    run, _ = recorded
    again = load(run.save(str(tmp_path / "run.zip")))
    assert again.waveform.equals(run.waveform)
    again.waveform = tables.empty("waveform")
    assert analyse(again).waveform.equals(run.waveform)


def test_a_run_without_a_trusted_recording_has_none(recorded):
    run, _ = recorded
    other = replace(run, samples=tables.empty("samples"))
    assert waveform_of(analyse(other)) is None
    assert len(other.waveform) == 0
    assert waveform_of(Run()) is None


def test_a_table_of_absurdly_many_bins_is_no_waveform(recorded):
    run, _ = recorded
    assert waveform_of(replace(run, waveform=pa.concat_tables([run.waveform] * 20))) is None
