"""From a table of windows to what each part costs: exact numbers, and everything that can be missing."""

import math

import numpy as np
import pytest

from jouletrace.experiments.arms import DETACH, GAPS, NULL, REFERENCE, REMOVE, REPEAT, SLOPE, SPIKE, STEP, TOGETHER, Arm
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.pinned import pin
from jouletrace.run import tables

pytestmark = pytest.mark.thorough

A, B, C = 1, 2, 3
COST = {A: (3.0, 0.003), B: (1.0, 0.002), C: (0.4, 0.001)}
LAUNCH = (0.1, 0.001)
WHOLE = tuple(sum(c[i] for c in COST.values()) + LAUNCH[i] for i in (0, 1))
START = 1_767_225_600_000_000_000


def truth(arm):
    """Energy and time of an iteration."""
    left = dict.fromkeys(COST, 1)
    if arm.kind == GAPS:
        left = dict.fromkeys(COST, 0)
    for part in (arm.part, arm.partner):
        if part is not None:
            left[part] = abs(arm.multiplicity)
    pause = arm.spin_ns / 1e9
    energy = LAUNCH[0] + 170 * pause + sum(n * COST[p][0] for p, n in left.items())
    return energy, LAUNCH[1] + pause + sum(n * COST[p][1] for p, n in left.items())


PLAIN = [
    *[Arm(REFERENCE)] * 2,
    Arm(STEP),
    Arm(NULL),
    *[Arm(REMOVE, p, 0) for p in COST],
    *[Arm(REPEAT, p, 3) for p in COST],
    Arm(SPIKE, B, 5),
    Arm(TOGETHER, A, 0, B),
    Arm(GAPS, None, 0, spin_ns=100_000),
    Arm(GAPS, None, 0, spin_ns=200_000),
]
PAUSE = 4_000_000
PACED = [
    *[Arm(REFERENCE, spin_ns=PAUSE)] * 2,
    Arm(NULL, spin_ns=PAUSE),
    Arm(SLOPE, spin_ns=6_000_000),
    *[Arm(REMOVE, p, 0, spin_ns=PAUSE + 300_000 * p) for p in COST],
    *[Arm(REPEAT, p, 3, spin_ns=PAUSE + 100_000 * p) for p in COST],
]


def table(arms, blocks=6, noise=0.001, seed=0, alter=lambda arm, row: row):
    rng = np.random.default_rng(seed)
    rows = []
    for block in range(blocks):
        for at in rng.permutation(len(arms)):
            arm = arms[at]
            energy, seconds = truth(arm)
            replays = max(1, round(0.5 / seconds))
            start = START + len(rows) * 700_000_000
            row = {
                "variant": arm.variant,
                "unit": arm.part,
                "multiplicity": float(arm.multiplicity),
                "block": block,
                "order": len(rows),
                "replays": replays,
                "start_ns": start,
                "end_ns": start + round(replays * seconds * 1e9),
                "energy_j": energy * replays * math.exp(noise * rng.standard_normal()),
                "clock_mhz": 1980.0,
            }
            rows.append(alter(arm, row))
    return tables.from_rows([row for row in rows if row], "windows")


def holds(estimate, value):
    return estimate.low <= value <= estimate.high


def test_parts_gaps_and_checks_come_out_as_they_were_put_in():
    found = estimate_parts(table(PLAIN), list(COST))
    for part, (energy, seconds) in COST.items():
        cost = found.parts[part].cost
        assert holds(cost.energy_j, energy)
        assert cost.energy_j.half_width < 0.02
        assert cost.energy_j.method == "removal"
        assert cost.time_s.value == pytest.approx(seconds, rel=1e-4)
        assert holds(found.parts[part].repetition.energy_j, energy)
        assert found.parts[part].flags == ()
        assert found.parts[part].matched is None
    assert holds(found.gaps.energy_j, LAUNCH[0])
    assert found.gaps.time_s.value == pytest.approx(LAUNCH[1], rel=1e-3)
    assert holds(found.closure, 1)
    assert found.closure.half_width < 0.02
    assert found.closure_time.value == pytest.approx(1, abs=1e-4)
    assert found.closure_matched is None
    assert holds(found.perturbation, 1)
    assert holds(found.null, 1)
    assert found.untouched.energy_j.value == pytest.approx(WHOLE[0], rel=0.002)
    assert [(s.part, s.copies, s.passed) for s in found.spikes] == [(B, 4, True)]
    assert found.spikes[0].recovered.value == pytest.approx(1, abs=0.02)
    assert [(a.parts, a.passed) for a in found.additivity] == [((A, B), True)]
    assert found.flags == ()
    assert 0 < found.resolvable_j < 0.02


def test_closure_is_over_the_users_step_and_not_over_the_reference():
    """A step whose reference takes 5 % more: the parts make the whole step, and the perturbation shows."""

    def dearer(arm, row):
        more = 0.05 * WHOLE[0] * row["replays"] if arm.kind != STEP else 0.0
        return {**row, "energy_j": row["energy_j"] + more}

    found = estimate_parts(table(PLAIN, alter=dearer), list(COST))
    everything = sum(found.parts[part].cost.energy_j.value for part in COST) + found.gaps.energy_j.value
    assert found.perturbation.value == pytest.approx(1.05, abs=0.005)
    assert found.closure.value == pytest.approx(everything / found.untouched.energy_j.value, rel=1e-3)
    assert found.closure.value > 1.03


def test_intervals_cover_over_seeds():
    hits = []
    for seed in range(25):
        found = estimate_parts(table(PLAIN, blocks=3, seed=seed), list(COST))
        hits += [holds(found.parts[part].cost.energy_j, COST[part][0]) for part in COST]
        hits.append(holds(found.closure, 1))
    assert 0.92 <= np.mean(hits) <= 1


def test_with_a_pause_figures_are_those_at_equal_clocks_whatever_pause_a_variant_has():
    found = estimate_parts(table([*PLAIN, *PACED]), list(COST))
    assert found.pause_s == 0.004
    for part, (energy, seconds) in COST.items():
        matched = found.parts[part].matched
        assert holds(matched.energy_j, energy)
        assert matched.energy_j.value == pytest.approx(energy, abs=0.03)
        assert matched.time_s.value == pytest.approx(seconds, rel=1e-3)
    assert holds(found.closure_matched, 1)


def test_a_cap_that_was_not_paced_away_is_flagged():
    def hold(arm, row):
        return {**row, "clock_mhz": 1900.0 if arm.kind == REMOVE and arm.part == A else 1800.0}

    found = estimate_parts(table(PLAIN, alter=hold), list(COST))
    assert found.flags == ("capped_not_paced",)
    assert found.clock_spread_mhz == pytest.approx(100)
    assert "clock_not_matched" in found.parts[A].flags


def test_clocks_are_held_against_each_other_as_counted_and_within_states_of_the_board():
    def hold(arm, row):
        upper = row["block"] % 2 == 1  # all run 13 MHz faster there
        off = 40.0 if arm.kind == REMOVE and arm.part == A else 0.0
        return {**row, "clock_mhz": 1980.0, "counted_mhz": 1851.0 + off + 13.0 * upper}

    found = estimate_parts(table([*PLAIN, *PACED], alter=hold), list(COST))
    assert found.clock_spread_mhz == pytest.approx(40)
    assert found.flags == ("clock_not_matched",)
    assert "clock_not_matched" in found.parts[A].flags
    assert "clock_not_matched" not in found.parts[B].flags
    without = table([*PLAIN, *PACED], alter=lambda arm, row: {**hold(arm, row), "counted_mhz": None})
    assert estimate_parts(without, list(COST)).clock_spread_mhz == 0
    # Without a pause nothing is meant to run at one clock, and no cap acts on what is told one.
    plain = estimate_parts(table(PLAIN, alter=hold), list(COST))
    assert plain.clock_spread_mhz == 0
    assert plain.flags == ()


def test_methods_that_disagree_are_both_shown_and_flagged():
    def warm(arm, row):
        return {**row, "energy_j": row["energy_j"] * 0.97} if arm.kind == REPEAT and arm.part == B else row

    found = estimate_parts(table(PLAIN, alter=warm), list(COST))
    assert found.parts[B].flags == ("methods_disagree",)
    assert holds(found.parts[B].removal.energy_j, 1.0)
    assert found.parts[B].repetition.energy_j.high < found.parts[B].removal.energy_j.low
    assert found.parts[A].flags == ()
    assert found.spikes[0].passed is False


COLD_J = 0.3


def test_what_later_operators_miss_in_the_cache_is_not_taken_off_what_a_part_costs():
    """Without B, and with B detached, what comes after it is dearer."""

    def colder(arm, row):
        cold = arm.part == B and arm.kind in (REMOVE, DETACH)
        return {**row, "energy_j": row["energy_j"] + COLD_J * row["replays"]} if cold else row

    detached = [Arm(DETACH, p, -1) for p in COST]
    found = estimate_parts(table([*PLAIN, *detached], alter=colder), list(COST))
    assert holds(found.parts[B].cost.energy_j, COST[B][0])
    saved = estimate_parts(table(PLAIN, alter=colder), list(COST))
    assert holds(saved.parts[B].cost.energy_j, COST[B][0] - COLD_J)


def test_a_negative_value_is_shown_and_not_clipped():
    def costs_to_remove(arm, row):
        return {**row, "energy_j": row["energy_j"] * 1.15} if arm.kind == REMOVE and arm.part == C else row

    found = estimate_parts(table(PLAIN, alter=costs_to_remove), list(COST))
    assert found.parts[C].cost.energy_j.high < 0


def test_parts_that_do_not_add_up_are_found_out():
    def extra(arm, row):
        return {**row, "energy_j": row["energy_j"] * 1.5} if arm.kind == TOGETHER else row

    found = estimate_parts(table(PLAIN, alter=extra), list(COST))
    assert found.additivity[0].passed is False
    assert found.additivity[0].residual.value < 0


def test_what_the_null_experiment_misses_enters_every_interval():
    def off(arm, row):
        return {**row, "energy_j": row["energy_j"] * 1.01} if arm.kind == NULL else row

    clean, found = (estimate_parts(table(PLAIN, alter=a), list(COST)) for a in (lambda arm, row: row, off))
    assert found.null.low > 1
    for part in COST:
        half = found.parts[part].cost.energy_j.half_width
        assert half > 0.018 * (WHOLE[0] - COST[part][0])
        assert half > 3 * clean.parts[part].cost.energy_j.half_width


def test_drift_is_removed_by_the_references():
    def heat(arm, row):
        return {**row, "energy_j": row["energy_j"] * (1 + 0.001 * row["order"])}

    found = estimate_parts(table(PLAIN, blocks=8, alter=heat), list(COST))
    for part, (energy, _) in COST.items():
        assert found.parts[part].cost.energy_j.value == pytest.approx(1.055 * energy, rel=0.03, abs=0.02)
    assert holds(found.closure, 1)


def test_a_part_without_windows_is_null_with_a_reason_and_closure_with_it():
    without = [arm for arm in PLAIN if arm.part != C]
    found = estimate_parts(table(without), list(COST))
    assert found.parts[C].cost.energy_j.value is None
    assert found.parts[C].cost.energy_j.reason == "not_measured"
    assert found.closure.reason == "not_measured"
    assert holds(found.parts[A].cost.energy_j, 3.0)


def test_a_part_that_could_only_be_repeated_is_measured_by_repetition():
    found = estimate_parts(table([arm for arm in PLAIN if (arm.kind, arm.part) != (REMOVE, C)]), list(COST))
    assert found.parts[C].cost.energy_j.method == "repetition"
    assert holds(found.parts[C].cost.energy_j, 0.4)
    assert holds(found.closure, 1)


def test_an_experiment_broken_off_gives_what_it_can():
    found = estimate_parts(table(PLAIN).slice(0, 9), list(COST))
    assert found.windows == 9
    known = [c for c in found.parts.values() if c.cost.energy_j.value is not None]
    assert 0 < len(known) < 3
    nothing = estimate_parts(tables.empty("windows"), list(COST))
    assert nothing.windows == 0
    assert all(cost.cost.energy_j.reason == "not_measured" for cost in nothing.parts.values())


def test_windows_without_energy_are_counted_and_flagged_not_guessed():
    def lose(arm, row):
        return {**row, "energy_j": None} if row["order"] % 10 == 0 else row

    found = estimate_parts(table(PLAIN, alter=lose), list(COST))
    assert found.lost == sum(i % 10 == 0 for i in range(6 * len(PLAIN)))
    assert found.flags == ("windows_lost",)
    assert holds(found.parts[A].cost.energy_j, 3.0)


def test_windows_of_other_passes_change_nothing():
    other = {"variant": "untouched", "replays": 1, "start_ns": START, "end_ns": START + 10, "energy_j": 1e6}
    alone = table(PLAIN).to_pylist()
    mixed = tables.from_rows([other, *alone], "windows")
    assert estimate_parts(mixed, [A]).parts[A] == estimate_parts(table(PLAIN), [A]).parts[A]


# ---- windows under a cap


def capped(arms, rng, spread=0.0, each=4):
    """Arms, powers that wander by 2 %, and clocks."""
    names, power, clock = [], [], []
    for arm in arms:
        level = 700 * math.exp(spread * rng.standard_normal())
        for _ in range(each):
            names.append(arm)
            power.append(level * math.exp(0.02 * rng.standard_normal()) if not arm.spin_ns else 600.0)
            clock.append(1500.0 if not arm.spin_ns else 1980.0)
    return names, np.array(power), np.array(clock)


HELD = [Arm(REFERENCE), Arm(NULL), *[Arm(REMOVE, p, 0) for p in range(1, 20)]]


def test_windows_held_by_a_cap_are_brought_to_its_power():
    names, power, clock = capped([*HELD, Arm(REFERENCE, spin_ns=PAUSE)], np.random.default_rng(1))
    found = pin(names, power, clock)
    plain = np.array([not arm.spin_ns for arm in names])
    assert found.arms == frozenset(HELD)
    assert found.variance == 0
    assert np.exp(found.excess[plain]) == pytest.approx(power[plain] / 700, rel=0.01)
    assert not found.excess[~plain].any()


def test_a_variant_below_the_cap_is_left_as_it_is():
    names, power, clock = capped([*HELD, Arm(REFERENCE, spin_ns=PAUSE)], np.random.default_rng(0))
    free = Arm(REMOVE, 3, 0)
    clock[[arm == free for arm in names]] = 1975.0
    found = pin(names, power, clock)
    assert free not in found.arms
    assert not found.excess[[arm == free for arm in names]].any()


def test_held_variants_that_differ_in_power_say_so():
    names, power, clock = capped([*HELD, Arm(REFERENCE, spin_ns=PAUSE)], np.random.default_rng(0), spread=0.05)
    means = [np.log(power[[arm == held for arm in names]]).mean() for held in HELD]
    assert pin(names, power, clock).variance == pytest.approx(np.var(means, ddof=1), rel=0.2)


def test_without_paced_windows_nothing_is_known_of_a_cap():
    names, power, clock = capped(HELD, np.random.default_rng(0))
    assert not pin(names, power, clock).excess.any()
