"""Blocks, budgets, where the next windows go, and pauses."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.experiments import commons, pacing, plan
from jouletrace.experiments.arms import DETACH, GAPS, NULL, REFERENCE, REMOVE, REPEAT, SLOPE, SPIKE, STEP, TOGETHER
from jouletrace.experiments.parts import Part
from jouletrace.experiments.plan import PlanSettings

PARTS = [Part(i, (f"u{i}",), "mm", "", "", 1) for i in range(1, 13)]
SHARE = {1: 0.4, 2: 0.1, **dict.fromkeys(range(3, 13), 0.05)}
SETTINGS = PlanSettings()


def open_up(paced=None, refused=(), seed=0, settings=SETTINGS):
    return plan.opening(PARTS, SHARE, paced, refused, settings, np.random.default_rng(seed))


def test_every_block_has_references_around_all_others_a_null_experiment_and_the_untouched_step():
    for block in open_up():
        kinds = [arm.kind for arm in block.order]
        assert kinds[0] == kinds[-1] == REFERENCE
        assert NULL in kinds
        assert STEP in kinds
        gaps = np.diff([i for i, kind in enumerate(kinds) if kind == REFERENCE])
        assert gaps.max() <= SETTINGS.reference_every + 1
        assert block.captures <= SETTINGS.hold + 2


def test_the_first_round_removes_and_repeats_every_part():
    counts = Counter(arm for block in open_up() for arm in block.order)
    removed = {arm.part: n for arm, n in counts.items() if arm.kind == REMOVE}
    repeated = {arm.part for arm in counts if arm.kind == REPEAT}
    assert removed == {part.id: 2 for part in PARTS}
    assert repeated == {part.id for part in PARTS}
    assert sum(arm.kind == SPIKE for arm in counts) == SETTINGS.spikes
    assert sum(arm.kind == TOGETHER for arm in counts) == SETTINGS.pairs


def test_the_order_is_random_but_the_seeds_own():
    assert open_up(seed=1) == open_up(seed=1)
    assert open_up(seed=1) != open_up(seed=2)


def test_a_spike_has_another_multiplicity_than_the_repetition_and_is_no_giant():
    arms = {arm for block in open_up() for arm in block.order}
    repeated = {arm.part: arm.multiplicity for arm in arms if arm.kind == REPEAT}
    for spike in (arm for arm in arms if arm.kind == SPIKE):
        assert spike.multiplicity > repeated[spike.part]
        assert SHARE[spike.part] <= 0.2


def test_repeats_of_a_small_part_add_up_to_a_signal():
    assert plan.copies({1: 0.4}, 1) == 1
    assert plan.copies({1: 0.01}, 1) * 0.01 == pytest.approx(0.08)
    assert plan.copies({1: -1e-5}, 1) == 8


def test_what_was_refused_is_not_planned_and_repetition_stands_in():
    blocks = open_up(refused={(REMOVE, 4), (REPEAT, 5)})
    arms = {(arm.kind, arm.part) for block in blocks for arm in block.order}
    assert (REMOVE, 4) not in arms
    assert (REPEAT, 4) in arms
    assert (REPEAT, 5) not in arms


def test_under_a_cap_parts_are_removed_without_a_pause_and_all_else_with_one():
    paced = (lambda arm: 1000 + (arm.part or 0), commons.paced(1000, (1400, 1500, 1600)))
    blocks = open_up(paced)
    plain = {arm.kind for block in blocks if not block.spin_ns for arm in block.order}
    assert plain == {REFERENCE, NULL, STEP, REMOVE, DETACH}
    rest = {arm for block in blocks if block.spin_ns for arm in block.order}
    assert {arm.kind for arm in rest} == {REFERENCE, NULL, SLOPE, REMOVE, DETACH, REPEAT, SPIKE, TOGETHER}
    assert all(arm.spin_ns == 1000 + (arm.part or 0) for arm in rest if arm.kind == REMOVE)


def test_launch_alone_has_a_block_of_its_own():
    block = plan.gap_block([50, 100], np.random.default_rng(0))
    assert {arm.kind for arm in block.order} == {GAPS}
    assert len(set(Counter(block.order).values())) == 1


def test_a_blocks_length_counts_settling_windows_ramps_and_captures():
    block = open_up()[0]
    base = plan.seconds(block, SETTINGS, 0.0, capped=False)
    assert base == pytest.approx(SETTINGS.settle_s + len(block.order) * (SETTINGS.window_s + SETTINGS.ramp_s))
    assert plan.seconds(block, SETTINGS, 0.5, capped=False) == pytest.approx(base + 0.5 * block.captures)
    capped = plan.seconds(block, SETTINGS, 0.0, capped=True)
    assert capped > base + SETTINGS.capped_settle_s - SETTINGS.settle_s


@pytest.mark.parametrize(
    "wrong", [{"budget_s": 0}, {"hold": 0}, {"window_s": -1}, {"removal": False, "repetition": False}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInputError, match="experiment: "):
        replace(SETTINGS, **wrong)


# ---- pauses


def trial(pause_s, energy_j, time_s, clock=1980.0):
    return pacing.Trial(pause_s, energy_j, time_s, clock)


def test_a_step_whose_clock_a_pause_does_not_raise_is_not_capped():
    assert pacing.cap_acts(trial(0, 5, 0.006, 1975), trial(0.01, 6, 0.016)) is False
    assert pacing.cap_acts(trial(0, 5, 0.006, 1600), trial(0.01, 6, 0.016)) is True
    assert pacing.cap_acts(trial(0, 5, 0.006, float("nan")), trial(0.01, 6, 0.016)) is None


def test_the_pause_brings_mean_power_to_the_wanted_share_of_the_cap():
    # 900 W at the highest clock, 5 ms; the pause draws 170 W; the cap is at 700 W.
    found = pacing.pace(trial(0, 4.2, 0.006, 1600), trial(0.01, 6.2, 0.015), trial(0.01, 1.7, 0.01))
    for fraction in (0.95, 0.8):
        pause_s = found.pause_s(fraction)
        assert (4.5 + 170 * pause_s) / (0.005 + pause_s) == pytest.approx(fraction * 700)
    assert found.pause_s(0.9, added=0.2) > found.pause_s(0.9)
    assert np.isnan(found.pause_s(0.2))


def test_a_pause_that_draws_as_much_as_the_step_is_no_use():
    assert pacing.pace(trial(0, 4.2, 0.006, 1600), trial(0.01, 13.5, 0.015), trial(0.01, 9.0, 0.01)) is None


def test_a_pause_is_chosen_out_of_step_with_the_sensor():
    pauses = np.linspace(4e-3, 6e-3, 21)
    chosen = pacing.off_readings(6e-3, pauses, 0.5, 0.02)
    turns = 0.02 / (6e-3 + chosen)
    assert abs(turns - round(turns)) > 0.1
    assert abs(2 * turns - round(2 * turns)) > 0.1


def test_a_window_fills_whole_sensor_periods_if_it_can():
    replays = pacing.whole_periods(0.0106, 0.5, 0.02)
    assert 0.5 <= replays * 0.0106 <= 0.6
    assert abs(replays * 0.0106 / 0.02 - round(replays * 0.0106 / 0.02)) < 0.05
    assert pacing.whole_periods(2.0, 0.5, 0.02) == 1
