"""Runs recorded on H100s: what readings tell of the sensor's sampling, and what knowing that is worth."""

from pathlib import Path

import numpy as np
import pytest

from jouletrace.energy.sampling_rate import repetitions, sampling_rate
from jouletrace.experiments.arms import GAPS, PACE, SCREEN, Arm
from jouletrace.experiments.estimate import Estimator
from jouletrace.run import tables

pytestmark = pytest.mark.thorough

RATES_HZ = {"e": 1228.6, "f": 1228.6, "g": 1239.15}
MEMORY_S, READOUT_S, NOMINAL_HZ = 0.045, 0.02, 1230.0
BLOCKS = {"e": [139, 140, 141, 142, 143, 144, 147, 148, 149, 150, 151], "f": [*range(139, 151)]}


@pytest.fixture(scope="module")
def recorded():
    with np.load(Path(__file__).parent / "data" / "h100_sampling.npz") as data:
        return {name: data[name] for name in data.files}


def rate(recorded, run, early=False):
    windows = []
    columns = (recorded[f"{run}_{name}"] for name in ("variant", "block", "replays", "start_ns", "end_ns"))
    for variant, block, replays, start, end in zip(*columns, strict=True):
        if not variant.startswith(GAPS) and not (early and block >= 0 and variant != "untouched"):
            windows.append((int(start), int(end), (end - start) / 1e9 / replays))
    some = repetitions(1000 * recorded[f"{run}_stamp_us"], recorded[f"{run}_power_w"].astype(float), windows, MEMORY_S)
    return sampling_rate(some, READOUT_S, NOMINAL_HZ)


def windows(recorded, run):
    names = ("variant", "unit", "multiplicity", "block", "replays", "start_ns", "end_ns", "energy_j", "counted_mhz")
    columns = {name: recorded[f"{run}_{name}"].tolist() for name in names}
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for i, row in enumerate(rows):
        row["order"], row["unit"] = i, None if np.isnan(row["unit"]) else int(row["unit"])
        row["counted_mhz"] = None if np.isnan(row["counted_mhz"]) else row["counted_mhz"]
    return tables.from_rows(rows, "windows")


def parts(table):
    arms = [
        Arm.read(*row)
        for row in zip(*(table[name].to_pylist() for name in ("variant", "unit", "multiplicity")), strict=True)
    ]
    known = {arm.part for arm in arms if arm and arm.kind not in (GAPS, PACE, SCREEN) and arm.part is not None}
    return sorted(part for part in known if part < 200)  # modules removed as a whole come after


@pytest.mark.parametrize("run", ["e", "f"])
def test_each_run_on_a_board_tells_the_same_rate(recorded, run):
    assert rate(recorded, run).rate_hz == pytest.approx(RATES_HZ[run], abs=0.2)


@pytest.mark.parametrize("run", ["e", "f", "g"])
def test_windows_before_the_experiment_tell_it_well_enough(recorded, run):
    found = rate(recorded, run, early=True)
    assert found.rate_hz == pytest.approx(RATES_HZ[run], abs=found.sure_hz)


@pytest.mark.parametrize("run", ["e", "f"])
def test_knowing_the_rate_makes_intervals_of_equal_layers_narrower_and_they_still_hold_each_other(recorded, run):
    table, known = windows(recorded, run), rate(recorded, run)
    half, costs = {}, {}
    for sampling in (None, known):
        found = Estimator(table, sampling=sampling).findings(parts(table))
        costs[sampling] = [found.parts[part].cost.energy_j for part in BLOCKS[run]]
        half[sampling] = np.median([cost.half_width for cost in costs[sampling]])
        assert found.closure.low <= 1 <= found.closure.high
    assert half[known] < 0.5 * half[None]
    middle = np.median([cost.value for cost in costs[known]])
    assert np.mean([cost.low <= middle <= cost.high for cost in costs[known]]) >= 0.8


def test_two_runs_agree_on_what_a_layer_costs(recorded):
    level = {}
    for run in ("e", "f"):
        found = Estimator(windows(recorded, run), sampling=rate(recorded, run)).findings(BLOCKS[run])
        level[run] = np.median([found.parts[part].cost.energy_j.value for part in BLOCKS[run]])
    assert level["e"] == pytest.approx(level["f"], rel=0.05)
