"""Whose each recorded kernel is: matching by launch sequence, with what may go wrong in it."""

import numpy as np
import pytest

from jouletrace.execution.calls import PLAIN, UNKNOWN, Call, Variant, match, variants

NAMES = (0, 1, 0, 2, 3)
CALLS = [
    Call("aten.addmm", "a", "layer.0", "1", "forward", (0,), 30e-6, number=0),
    Call("aten.gelu", "b", "layer.0", "1", "forward", (1,), 20e-6, number=1),
    Call("aten.addmm", "a", "layer.1", "1", "forward", (0,), 30e-6, number=2),
    Call("aten.softmax", "c", "layer.1", "1", "forward", (2, 3), 50e-6, number=3),
]


def sequence(log):
    """Names of kernels, calls and copies of iterations as they were run."""
    rows = []
    for variant in log:
        for place, call in enumerate(CALLS):
            for turn in range(variant.times if place == variant.place else 1):
                rows += [(name, place, turn > 0) for name in call.kernels]
    names, calls, copies = zip(*rows, strict=True)
    return np.array(names), np.array(calls), np.array(copies)


def drawn(count, seed=1):
    rng = np.random.default_rng(seed)
    choices = variants(CALLS, rng)
    return [choices[i] for i in rng.integers(0, len(choices), count)]


def test_every_kernel_of_plain_and_repeated_iterations_finds_its_call():
    log = drawn(300)
    names, calls, copies = sequence(log)
    found = match(names, CALLS, log)
    assert (found.call == calls).all()
    assert (found.copy == copies).all()
    assert found.unmatched == 0
    assert found.iteration[-1] == len(log) - 1


@pytest.mark.parametrize("share", [0.002, 0.02])
def test_dropped_records_cost_their_own_iterations_alone(share):
    log = drawn(400)
    names, calls, _ = sequence(log)
    kept = np.random.default_rng(2).random(len(names)) >= share
    found = match(names[kept], CALLS, log)
    right = found.call == calls[kept]
    wrong = ~right & (found.call != UNKNOWN)
    assert right.mean() > 1 - 12 * share
    assert wrong.mean() < 6 * share


def test_kernels_that_nobody_listed_are_unknown_and_harm_no_others():
    log = [PLAIN] * 50
    names, calls, _ = sequence(log)
    at = np.arange(3, len(names), 17)
    found = match(np.insert(names, at, UNKNOWN), CALLS, log)
    strange = np.insert(np.zeros(len(names), bool), at, True)
    assert (found.call[strange] == UNKNOWN).all()
    assert (found.call[~strange] == calls).all()


def test_a_recording_of_other_kernels_is_unknown_and_ends_soon():
    names = np.random.default_rng(3).integers(10, 20, 20_000)
    assert match(names, CALLS, [PLAIN] * 4_000).unmatched == 1


def test_variants_repeat_each_kind_of_call_in_two_lengths():
    drawn_once = variants(CALLS, np.random.default_rng(0), places=1)
    assert drawn_once[0] == PLAIN
    assert len(drawn_once) == 1 + 2 * 3  # of the two products one stands for both
    fixed = [Call("aten.add_", "a", "", "", "forward", (0,), 1e-6, repeatable=False)]
    assert variants(fixed, np.random.default_rng(0)) == [PLAIN]
    assert all(2 <= variant.times <= 32 for variant in drawn_once[1:])
    assert Variant(0, 3) != Variant(0, 2)
