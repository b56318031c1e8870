"""Windows that were recorded on an H100 which changed its state eight times (docs/results/clocks-h100.md)."""

from pathlib import Path

import numpy as np
import pytest

from jouletrace.experiments.arms import REFERENCE
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.levels import Observed
from jouletrace.run import tables

pytestmark = pytest.mark.thorough

UPPER_MHZ, THIRD_MHZ = 1980.0, 1995.0


def windows(counted=True):
    with np.load(Path(__file__).parent / "data" / "h100_states.npz") as data:
        columns = {name: data[name].tolist() for name in data.files}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for i, row in enumerate(rows):
        row["order"], row["unit"] = i, None if np.isnan(row["unit"]) else int(row["unit"])
        row["counted_mhz"] = row["counted_mhz"] if counted and not np.isnan(row["counted_mhz"]) else None
    return tables.from_rows(rows, "windows")


@pytest.fixture(scope="module")
def seen():
    return Observed.of(windows())


def references(seen):
    return np.array([arm.kind == REFERENCE for arm in seen.arm]) & np.isfinite(seen.counted_mhz)


def test_references_of_one_stretch_ran_in_one_state(seen):
    state = np.searchsorted([UPPER_MHZ, THIRD_MHZ], seen.counted_mhz)
    mine = references(seen)
    for stretch in np.unique(seen.stretches.number[mine]):
        assert len(set(state[mine & (seen.stretches.number == stretch)])) == 1
    assert set(state[mine]) == {0, 1, 2}


def test_the_driver_told_one_clock_all_along(seen):
    assert set(seen.clock_mhz[references(seen)]) == {1980.0}


def test_in_the_upper_state_an_iteration_takes_less_time_and_more_energy(seen):
    mine = references(seen)
    for block in (0, 1, 5):
        here = mine & (seen.block == block)
        upper = here & (seen.counted_mhz > UPPER_MHZ)
        lower = here & (seen.counted_mhz < UPPER_MHZ)
        assert 0.994 < seen.time_s[upper].mean() / seen.time_s[lower].mean() < 0.997
        assert 1.004 < seen.energy_j[upper].mean() / seen.energy_j[lower].mean() < 1.012


def test_times_within_a_stretch_agree_ten_times_better_than_states_do(seen):
    mine = references(seen)
    off = [
        np.ptp(seen.time_s[mine & (seen.stretches.number == number)]) / seen.time_s[mine].mean()
        for number in np.unique(seen.stretches.number[mine])
    ]
    assert np.median(off) < 0.001


def test_most_windows_between_two_states_are_placed_by_their_clock(seen):
    by_time = Observed.of(windows(counted=False))
    assert seen.stretches.between.sum() < by_time.stretches.between.sum()
    assert seen.stretches.between.mean() <= 0.11


def test_parts_still_make_the_whole():
    table = windows()
    parts = sorted({row["unit"] for row in table.to_pylist() if row["unit"] is not None and row["unit"] < 17})
    found = estimate_parts(table, parts)
    assert found.closure.low < 1 < found.closure.high
    assert found.closure.half_width < 0.035
    assert found.clock_spread_mhz == pytest.approx(14, abs=0.5)
