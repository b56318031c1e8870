"""Windows in which the board itself ran at another speed."""

import numpy as np
import pyarrow as pa
import pytest

from covering import fewest
from experiment_lab import Lab
from jouletrace.experiments import allocate, contrasts
from jouletrace.experiments.arms import DETACH, GAPS, NULL, REFERENCE, REMOVE, REPEAT, STEP, Arm
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.levels import Levels, Observed
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.steady import stretches
from jouletrace.run import tables

pytestmark = pytest.mark.thorough

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


def found(table):
    seen = Observed.of(table)
    return stretches(seen.arm, seen.block, seen.middle_s, seen.time_s, seen.energy_j, seen.counted_mhz)


def apart(table):
    return set(np.flatnonzero(found(table).between).tolist())


def test_an_ordinary_experiment_keeps_all_its_windows_and_a_block_is_one_stretch():
    stretch = found(windows())
    assert not stretch.between.any()
    assert len(set(stretch.number)) == 2


def test_what_lies_between_two_references_that_differ_is_no_stretchs():
    # Windows 0, 4 and 6 are references: the board may have changed before, in or after 1 to 3, and 5.
    assert apart(windows(fast={3, 4})) == {1, 2, 3, 5}


def test_what_lies_between_references_that_agree_is_kept_in_a_stretch_of_its_own():
    stretch = found(windows(fast=set(range(2, 8))))
    assert set(np.flatnonzero(stretch.between)) == {1, 2, 3, 7, 8}
    assert len({stretch.number[i] for i in (0, 5, 9)}) == 3
    assert len({stretch.number[i] for i in (4, 5, 6)}) == 1


def test_a_change_of_energy_alone_is_one():
    rows = windows().to_pylist()
    for row in rows[12:18]:
        row["energy_j"] *= 1.025
    assert apart(tables.from_rows(rows, "windows")) == {17}


def test_windows_without_an_energy_go_by_time():
    rows = [row | {"energy_j": None} for row in windows(fast={3, 4}).to_pylist()]
    assert apart(tables.from_rows(rows, "windows")) == {1, 2, 3, 5}


def test_a_block_of_launch_alone_does_not_pass_for_a_cap():
    rows = windows(fast={3, 4}).to_pylist()
    gaps = [
        row | {"variant": Arm(GAPS, None, 0, spin_ns=200_000).variant, "unit": None, "block": 2} for row in rows[:4]
    ]
    slower = [row | {"energy_j": row["energy_j"] * 1.007} for row in [*rows, *gaps]]  # the root of both stays
    for row in slower:
        if row["order"] not in {3, 4}:
            row["energy_j"] /= 1.007
    assert apart(tables.from_rows(slower, "windows")) == {1, 2, 3, 5}


def test_a_reference_without_a_sensible_energy_is_no_change_of_the_board():
    rows = windows().to_pylist()
    rows[4]["energy_j"], rows[6]["energy_j"] = 0.0, -1.0
    assert apart(tables.from_rows(rows, "windows")) == set()


def test_a_block_that_is_slower_as_a_whole_is_as_good_as_another():
    assert apart(windows(slow_block=True)) == set()


def under_a_cap(plain):
    """As if variants had been run at equal clocks too."""
    return tables.from_rows([*plain, *windows(spin_ns=500_000, seed=5).to_pylist()], "windows")


def test_under_a_cap_the_loop_may_wander():
    rng = np.random.default_rng(2)
    rows = windows().to_pylist()
    for row in rows:  # by 2 % in power, and time with the square root of it
        power = np.exp(0.02 * rng.standard_normal())
        row["energy_j"] *= power**0.5
        row["end_ns"] = row["start_ns"] + round((row["end_ns"] - row["start_ns"]) * power**-0.5)
    assert apart(under_a_cap(rows)) == set()


def test_under_a_cap_a_board_that_runs_faster_at_the_same_power_has_changed():
    rows = windows().to_pylist()
    for row in rows[5:12]:
        row["energy_j"] *= 0.99
        row["end_ns"] = row["start_ns"] + round((row["end_ns"] - row["start_ns"]) * 0.99)
    assert apart(under_a_cap(rows)) == {5}


def test_costs_are_those_of_a_board_that_did_not_change_and_the_table_says_that_it_did():
    found = estimate_parts(windows(fast=set(range(5, 9)), seed=1), [PART, 2])
    assert "windows_unsteady" in found.flags
    assert found.windows == 24
    for part in (PART, 2):
        cost = found.parts[part].cost.energy_j
        assert cost.value == pytest.approx(0.04, rel=0.08)
        assert cost.low <= 0.04 <= cost.high
    assert found.reference.energy_j.value == pytest.approx(0.4, rel=1e-2)


def test_what_has_only_such_windows_has_a_wide_interval_and_is_measured_again_first():
    twice = {3, 4, 12, 13}  # all windows of part 1 lie between references that differ
    found = estimate_parts(windows(fast=twice), [PART, 2])
    one, other = (found.parts[part].cost.energy_j for part in (PART, 2))
    assert one.low <= 0.04 <= one.high
    assert one.half_width > 3 * other.half_width
    seen = Observed.of(windows(fast=twice))
    first = allocate.needs(Levels(seen, seen.energy_j), [PART, 2], PlanSettings())[0]
    assert first.arm.part == PART


OTHER = 0.998
"""The clock at which a step without a part runs, over the reference's: it draws more or less."""


def counted(fast, clock=1.0067, without=()):
    """Windows whose clocks were counted, higher in those that are fast; ``without`` some of them."""
    rng = np.random.default_rng(3)
    rows = windows(fast=fast).to_pylist()
    for row in rows:
        mhz = 1974.2 * (clock if row["order"] in fast else 1.0) * (OTHER if row["variant"] == REMOVE else 1.0)
        row["counted_mhz"] = mhz * (1 + 2e-5 * rng.standard_normal())
    return tables.from_rows([row for row in rows if row["order"] not in without], "windows")


def test_a_window_between_two_references_belongs_to_the_one_whose_clock_it_has():
    # Between references 0 and 4 the board changes before 3. Part 1 is removed, at a clock of its own, in 13 too.
    stretch = found(counted(fast=set(range(3, 24))))
    assert not stretch.between.any()
    assert stretch.number[0] == stretch.number[1] == stretch.number[2]
    assert stretch.number[3] == stretch.number[4] == stretch.number[11]
    assert len(set(stretch.number)) == 3


def test_a_step_with_a_part_detached_runs_at_the_clock_of_the_reference_wherever_else_it_was_seen():
    stretch = found(counted(fast=set(range(3, 24)), without={15}))
    assert not stretch.between.any()
    assert stretch.number[3] == stretch.number[4]


def test_what_runs_at_a_clock_that_is_known_from_nowhere_stays_between():
    assert apart(counted(fast=set(range(3, 24)), without={13})) == {1}
    rows = counted(fast=set(range(3, 24))).to_pylist()
    repeated = Arm(REPEAT, PART, 2)
    rows[2] |= {"variant": repeated.variant, "unit": PART, "multiplicity": 2.0}
    assert apart(tables.from_rows(rows, "windows")) == {2}


def test_a_window_in_which_the_board_changed_stays_between():
    rows = counted(fast=set(range(3, 24))).to_pylist()
    rows[2]["counted_mhz"] *= 1 + 0.0067 / 2
    assert apart(tables.from_rows(rows, "windows")) == {2}


def test_a_window_during_which_the_board_was_elsewhere_is_told_though_both_its_references_agree():
    # 7 and 8 lie between references 6 and 9; the board is in its upper state for 7 alone, and again from 18 on.
    assert apart(counted(fast={7, *range(18, 24)})) == {7}
    assert apart(counted(fast={8, *range(18, 24)})) == {8}


def test_a_single_window_that_may_have_run_in_another_state_tells_nothing_of_its_arm():
    assert 1 in apart(counted(fast=set(range(3, 24)) - {13}))


def test_a_clock_that_wanders_leaves_windows_in_their_stretch():
    rng = np.random.default_rng(4)
    table = tables.from_rows(
        [row | {"counted_mhz": row["counted_mhz"] * (1 + 1e-3 * rng.standard_normal())} for seed in range(4) for row in
         counted(fast=()).to_pylist()], "windows",
    )  # fmt: skip
    assert len(apart(table)) <= 0.05 * len(table)


def test_counters_tell_a_change_that_is_too_small_to_be_seen_in_time_and_energy():
    rows = counted(fast=set(range(5, 24)), clock=1.001).to_pylist()
    same = {row["order"]: row for row in windows().to_pylist()}
    rows = [same[row["order"]] | {"counted_mhz": row["counted_mhz"]} for row in rows]
    stretch = found(tables.from_rows(rows, "windows"))
    assert stretch.number[4] != stretch.number[6]
    uncounted = found(windows())
    assert uncounted.number[4] == uncounted.number[6]


def test_on_a_board_that_jumps_between_states_parts_are_found_and_better_for_its_counters():
    held, off, half, unsteady = [], [], {True: [], False: []}, {True: 0, False: 0}
    for seed in range(6):
        lab = Lab(f"sim:h100?cap=off&states=4&seed={seed}", settings=PlanSettings(budget_s=60, seed=seed))
        lab.run()
        table, true = lab.measured(), lab.in_windows(0)
        blind = table.set_column(
            table.column_names.index("counted_mhz"), "counted_mhz", pa.nulls(len(table), pa.float64())
        )
        for counts, rows in ((True, table), (False, blind)):
            costs = [(part.cost.energy_j, true[id]) for id, part in estimate_parts(rows, list(true)).parts.items()]
            half[counts] += [cost.half_width / truth for cost, truth in costs]
            unsteady[counts] += len(apart(rows))
            if counts:
                held += [cost.low <= truth <= cost.high for cost, truth in costs]
                off += [abs(cost.value / truth - 1) for cost, truth in costs]
    assert sum(held) >= fewest(len(held))
    assert np.mean(off) < 0.03
    assert np.mean(half[True]) < 0.8 * np.mean(half[False])
    assert 0 < unsteady[True] < 0.7 * unsteady[False]


def test_a_part_whose_detached_windows_have_no_energy_is_not_passed_off_as_its_saving():
    rows = windows().to_pylist()
    for row in rows:
        if row["variant"] == DETACH and row["unit"] == PART:
            row["energy_j"] = None
    seen = Observed.of(tables.from_rows(rows, "windows"))
    levels = Levels(seen, seen.energy_j)
    assert levels.missing == [Arm(DETACH, PART, -1)]
    assert contrasts.removal(levels, PART) is None
