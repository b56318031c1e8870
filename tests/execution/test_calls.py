"""Whose each recorded kernel is: matching by launch sequence, with what may go wrong in it."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.execution.traceable import MOST_REPEATS, MOST_TOGETHER, PLAIN, REPEATS_S, UNKNOWN, Call, match, variants

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
            for turn in range(dict(variant.repeats).get(place, 1)):
                rows += [(name, place, turn > 0) for name in call.kernels]
    names, calls, copies = zip(*rows, strict=True)
    return np.array(names), np.array(calls), np.array(copies)


def drawn(count, seed=1, iteration_s=1e-3):
    rng = np.random.default_rng(seed)
    choices = variants(CALLS, rng, iteration_s)
    return [choices[i] for i in rng.integers(0, len(choices), count)]


@pytest.mark.parametrize("iteration_s", [1e-3, 10e-3])
def test_every_kernel_of_plain_and_repeated_iterations_finds_its_call(iteration_s):
    log = drawn(300, iteration_s=iteration_s)
    names, calls, copies = sequence(log)
    found = match(names, CALLS, log)
    assert (found.call == calls).all()
    assert (found.repeat == copies).all()
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


def test_kernels_that_no_one_listed_are_unknown_and_harm_no_others():
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
    assert all(2 <= times <= MOST_REPEATS for variant in drawn_once[1:] for _, times in variant.repeats)


def test_calls_too_short_to_matter_are_left_alone():
    short = Call("aten.neg", "a", "", "", "forward", (1,), 0.5e-6, number=9)
    repeated = {
        place for variant in variants([*CALLS, short], np.random.default_rng(0)) for place, _ in variant.repeats
    }
    assert repeated == {0, 1, 2, 3}


def test_a_long_iteration_has_several_repeats_and_each_is_as_frequent():
    many = [replace(CALLS[0], shapes=str(i), number=i) for i in range(20)]
    found = variants(many, np.random.default_rng(0), 40e-3)
    sizes = [len(variant.repeats) for variant in found[1:]]
    added = 0.15 * 40e-3 / np.mean(REPEATS_S)
    assert max(sizes) == pytest.approx(added, abs=0.5)
    assert MOST_TOGETHER <= len(sizes) <= MOST_TOGETHER + 20
    places = [place for variant in found for place, _ in variant.repeats]
    assert np.ptp(np.bincount(places, minlength=20)) <= 0.2 * len(places) / 20
