"""Windows in which the board itself ran at another speed."""

import numpy as np
import pytest

from jouletrace.experiments import allocate, contrasts
from jouletrace.experiments.arms import DETACH, NULL, REFERENCE, REMOVE, STEP, Arm
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.levels import Levels, Observed
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.steady import unsteady
from jouletrace.run import tables

PART = 1
BLOCK = [
    Arm(REFERENCE), Arm(REMOVE, PART, 0), Arm(STEP), Arm(DETACH, PART, -1), Arm(REFERENCE), Arm(NULL), Arm(REFERENCE),
    Arm(REMOVE, 2, 0), Arm(DETACH, 2, -1), Arm(REFERENCE), Arm(STEP), Arm(REFERENCE),
]  # fmt: skip
TIMES = {REMOVE: 0.9}


def windows(fast=(), spin_ns=0, slow_block=False, seed=0):
    """Two blocks of windows, half a second each; those in ``fast`` run 0.7 % faster at 3 % more power."""
    rng = np.random.default_rng(seed)
    rows = []
    for block in (0, 1):
        for arm in BLOCK:
            i = len(rows)
            time_s = 1e-3 * TIMES.get(arm.kind, 1.0) * (1 + 2e-4 * rng.standard_normal())
            time_s *= (0.993 if i in fast else 1.0) * (1.07 if slow_block and block else 1.0)
            power_w = 400 * (1.03 if i in fast else 1.0) * (1 + 2e-3 * rng.standard_normal())
            start = i * 600_000_000
            named = Arm(arm.kind, arm.part, arm.multiplicity, spin_ns=spin_ns)
            rows.append(
                {
                    "variant": named.variant, "unit": arm.part, "multiplicity": float(arm.multiplicity),
                    "block": block, "replays": 500, "start_ns": start, "end_ns": start + round(500e9 * time_s),
                    "energy_j": 500 * time_s * power_w, "clock_mhz": 1980.0, "order": i,
                }
            )  # fmt: skip
    return tables.from_rows(rows, "windows")


def left_out(table):
    seen = Observed.of(table)
    return set(np.flatnonzero(unsteady(seen.arm, seen.block, seen.middle_s, seen.time_s)).tolist())


def test_an_ordinary_experiment_keeps_all_its_windows():
    assert left_out(windows()) == set()


def test_what_lies_between_the_good_references_around_a_bad_one_is_left_out():
    # Window 4 is a reference; 2 (the step) and 5 (a null experiment) are the good ones beside it.
    assert left_out(windows(fast={3, 4})) == {3, 4}


def test_at_the_edge_of_a_block_all_up_to_it_is_left_out():
    assert left_out(windows(fast={0, 1})) == {0, 1}


def test_a_block_that_is_slower_as_a_whole_is_as_good_as_another():
    assert left_out(windows(slow_block=True)) == set()


def test_under_a_cap_only_windows_at_the_highest_clock_are_held_to_one_speed():
    plain, paced = windows(fast={4}), windows(spin_ns=500_000)
    both = tables.from_rows([*plain.to_pylist(), *paced.to_pylist()], "windows")
    assert left_out(both) == set()


def test_costs_are_those_of_the_board_as_it_mostly_is_and_the_table_says_what_was_left_out():
    fast = set(range(5, 9))
    found = estimate_parts(windows(fast=fast, seed=1), [PART, 2])
    assert "windows_unsteady" in found.flags
    assert found.windows == 24 - 4
    for part in (PART, 2):
        cost = found.parts[part].cost.energy_j
        assert cost.value == pytest.approx(0.04, rel=0.08)
        assert cost.low <= 0.04 <= cost.high
    assert found.reference.energy_j.value == pytest.approx(0.4, rel=2e-3)


def test_what_has_only_such_windows_is_kept_and_flagged_and_measured_again_first():
    twice = {3, 4, 15, 16}  # both windows of detaching part 1
    seen = Observed.of(windows(fast=twice))
    levels = Levels(seen, seen.energy_j)
    assert levels.doubtful == {Arm(DETACH, PART, -1)}
    assert contrasts.removal(levels, PART) == {Arm(REMOVE, PART, 0): -1.0, Arm(DETACH, PART, -1): 1.0}
    assert allocate.needs(levels, [PART, 2], PlanSettings())[0].arm == Arm(DETACH, PART, -1)
    found = estimate_parts(windows(fast=twice), [PART, 2])
    assert "unsteady" in found.parts[PART].flags
    assert "unsteady" not in found.parts[2].flags


def test_a_part_whose_detached_windows_have_no_energy_is_not_passed_off_as_its_saving():
    rows = windows().to_pylist()
    for row in rows:
        if row["variant"] == DETACH and row["unit"] == PART:
            row["energy_j"] = None
    seen = Observed.of(tables.from_rows(rows, "windows"))
    levels = Levels(seen, seen.energy_j)
    assert levels.missing == [Arm(DETACH, PART, -1)]
    assert contrasts.removal(levels, PART) is None
