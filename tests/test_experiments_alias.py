"""Pauses that the sensor sees, each in its own way."""

import numpy as np
import pytest

from jouletrace.experiments import contrasts
from jouletrace.experiments.arms import DETACH, NULL, REFERENCE, REMOVE, SLOPE, Arm
from jouletrace.experiments.levels import Levels, Observed

pytestmark = pytest.mark.thorough

MS = 1_000_000
PARTS = range(1, 7)
STEP_J, PART_J, PAUSE_W = 4.0, 0.3, 130.0
PAUSES = (3 * MS, 4 * MS, round(4.6 * MS), round(5.3 * MS))


def experiment(rng, alias, pauses=PAUSES, noise=0.002):
    """One window of each part's arms in four blocks, with what is seen of each arm's pause off by ``alias``."""
    base = pauses[0]
    arms = [Arm(kind, part, m, spin_ns=base) for part in PARTS for kind, m in ((REMOVE, 0), (DETACH, -1))]
    blocks = np.array_split(rng.permutation(len(arms)), 4)
    order, block = [], []
    for i, inside in enumerate(blocks):
        slope = Arm(SLOPE, spin_ns=pauses[1 + i % (len(pauses) - 1)])
        own = [arms[j] for j in inside]
        run = [
            Arm(REFERENCE, spin_ns=base),
            own[0],
            slope,
            Arm(NULL, spin_ns=base),
            *own[1:],
            Arm(REFERENCE, spin_ns=base),
        ]
        order += run
        block += [i] * len(run)
    seen = {arm: alias * rng.standard_normal() for arm in dict.fromkeys(order)}
    for arm in seen:
        if arm.kind == NULL:
            seen[arm] = seen[Arm(REFERENCE, spin_ns=base)]
    true = [STEP_J - (PART_J if arm.kind == REMOVE else 0.0) + PAUSE_W * arm.spin_ns / 1e9 for arm in order]
    energy = np.array([j * (1 + seen[arm]) for j, arm in zip(true, order, strict=True)])
    energy *= 1 + noise * rng.standard_normal(len(order))
    middle = 0.7 * np.arange(len(order))
    flat = np.full(len(order), 0.01)
    return Levels(
        Observed(
            order,
            np.array(block),
            middle,
            energy,
            flat,
            500 * flat,
            np.full(len(order), 1980.0),
            np.full(len(order), np.nan),
        ),
        energy,
    )


def coverage(alias, pauses=PAUSES, boards=40):
    rng = np.random.default_rng(5)
    held, widths = [], []
    for _ in range(boards):
        levels = experiment(rng, alias, pauses)
        for part in PARTS:
            found = levels.estimate(contrasts.removal(levels, part, paced=True), "removal")
            held.append(found.low <= PART_J <= found.high)
            widths.append(found.half_width)
    return np.mean(held), np.median(widths)


def test_several_pauses_tell_how_uncertain_energies_at_equal_clocks_are():
    # 91 % of 200 boards: two degrees of freedom, and a variance that can't be less than nothing.
    held, _ = coverage(0.01)
    assert held >= 0.88
    # With one further pause nothing tells: intervals are those of windows that agree with each other.
    blind, _ = coverage(0.01, PAUSES[:2])
    assert blind < 0.6


def test_without_such_an_error_intervals_stay_as_narrow_as_windows_make_them():
    held, width = coverage(0.0)
    _, plain = coverage(0.0, PAUSES[:2])
    assert held >= 0.93
    assert width < 1.5 * plain


def test_a_pause_costs_what_the_line_through_all_pauses_says():
    levels = experiment(np.random.default_rng(1), 0.0, noise=1e-6)
    assert levels.value(contrasts.per_pause(levels)) * 1e9 == pytest.approx(PAUSE_W, rel=1e-3)
    assert levels.value(contrasts.without_pause(levels)) == pytest.approx(STEP_J, rel=1e-4)
    assert {arm.spin_ns for arm in contrasts.per_pause(levels)} == set(PAUSES)


def test_a_null_experiment_is_off_by_what_its_reference_is():
    levels = experiment(np.random.default_rng(2), 0.01)
    base = PAUSES[0]
    null = levels.ratio({Arm(NULL, spin_ns=base): 1.0}, {Arm(REFERENCE, spin_ns=base): 1.0}, "experiment")
    other = levels.ratio({Arm(DETACH, 1, -1, spin_ns=base): 1.0}, {Arm(REFERENCE, spin_ns=base): 1.0}, "experiment")
    assert null.half_width < other.half_width
