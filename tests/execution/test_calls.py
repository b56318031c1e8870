"""Whose each recorded kernel is: by its mark or by its place in its iteration, with what may go wrong in it."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.execution import UNKNOWN, Call, Listing, variants
from jouletrace.execution.excitation import MOST_REPEATS, MOST_TOGETHER, PLAIN, REPEATS_S
from jouletrace.tracer import Launched

CALLS = [
    Call("aten.addmm", "a", "layer.0", "1", "forward", (0,), 30e-6, number=0),
    Call("aten.gelu", "b", "layer.0", "1", "forward", (1,), 20e-6, number=1),
    Call("aten.addmm", "a", "layer.1", "1", "forward", (0,), 30e-6, number=2),
    Call("aten.softmax", "c", "layer.1", "1", "forward", (2, 3), 50e-6, number=3),
]


def sequence(log):
    """Names, calls, copies and iterations of kernels as they were run."""
    rows = []
    for turn, variant in enumerate(log):
        for place, call in enumerate(CALLS):
            for time in range(dict(variant.repeats).get(place, 1)):
                rows += [(name, place, time > 0, turn) for name in call.kernels]
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def drawn(count, seed=1, iteration_s=1e-3):
    rng = np.random.default_rng(seed)
    choices = variants(CALLS, rng, iteration_s)
    return [choices[i] for i in rng.integers(0, len(choices), count)]


def owners(names, iteration, calls=None, copies=None, of=CALLS):
    """The calls of launches, of which none or those given are marked."""
    count = len(names)
    work = Launched.from_columns([str(k) for k in range(30)], np.asarray(names), np.arange(count), np.arange(count) + 1)
    marked = np.full(count, UNKNOWN) if calls is None else calls
    copy = np.zeros(count, bool) if copies is None else copies
    return Listing(of, ["0", "1", "2", "3"]).owners(work, marked, copy, iteration)


@pytest.mark.thorough
@pytest.mark.parametrize("iteration_s", [1e-3, 10e-3])
def test_every_kernel_of_plain_and_repeated_iterations_finds_its_call(iteration_s):
    names, calls, copies, iteration = sequence(drawn(300, iteration_s=iteration_s))
    found = owners(names, iteration, np.where(copies, calls, UNKNOWN), copies)
    assert (found == calls).all()


@pytest.mark.parametrize("share", [0.002, 0.02])
def test_dropped_records_cost_their_own_iterations_alone(share):
    names, calls, copies, iteration = sequence(drawn(400))
    kept = np.random.default_rng(2).random(len(names)) >= share
    names, calls, copies, iteration = (column[kept] for column in (names, calls, copies, iteration))
    found = owners(names, iteration, np.where(copies, calls, UNKNOWN), copies)
    wrong = (found != calls) & (found != UNKNOWN)
    assert (found == calls).mean() > 1 - 2 * share
    assert wrong.mean() < share


def test_iterations_that_branch_share_what_comes_before_and_after():
    """Every third iteration has other kernels in its middle, as one that looks at its data."""
    several = [replace(CALLS[0], kernels=(k % 2,), module=str(k), number=k) for k in range(40)]
    rows = []
    for turn in range(60):
        rows += [(k % 2, k, turn) for k in range(15)]
        rows += [(9, UNKNOWN, turn)] * 3 if turn % 3 == 0 else [(k % 2, k, turn) for k in range(15, 20)]
        rows += [(k % 2, k, turn) for k in range(20, 40)]
    names, calls, iteration = np.array(rows).T
    assert (owners(names, iteration, of=several) == calls).all()


def test_a_marked_call_has_the_kernels_that_are_listed_for_it_alone():
    """An operator may choose another kernel for other shapes, one that is listed for another call, too."""
    names, calls, copies, iteration = sequence(drawn(40))
    other = np.where(names == 0, np.where(np.arange(len(names)) % 2, 1, 9), names)
    found = owners(other, iteration, calls, copies)
    assert (found[other == names] == calls[other == names]).all()
    assert (found[other != names] == UNKNOWN).all()


def test_kernels_beyond_those_of_a_listed_call_are_unknown():
    """Every second iteration runs another expert three times, with the kernels of the listed one."""
    rows = [(name, turn, time) for turn in range(40) for time in range(3 if turn % 2 else 1) for name in (0, 1, 2, 3)]
    names, iteration, _ = np.array(rows).T
    found = owners(names, iteration, of=[CALLS[0], CALLS[1], replace(CALLS[3], number=2)])
    assert (found[iteration % 2 == 0] == [0, 1, 2, 2] * 20).all()
    per_iteration = np.bincount(iteration[found == 0], minlength=40)
    assert per_iteration.max() == 1


def test_kernels_that_no_one_listed_are_unknown_and_harm_no_others():
    names, calls, _, iteration = sequence([PLAIN] * 50)
    at = np.arange(3, len(names), 17)
    found = owners(np.insert(names, at, 9), np.insert(iteration, at, iteration[at]))
    strange = np.insert(np.zeros(len(names), bool), at, True)
    assert (found[strange] == UNKNOWN).all()
    assert (found[~strange] == calls).all()


def test_a_recording_of_other_kernels_is_unknown():
    names = np.random.default_rng(3).integers(10, 20, 20_000)
    assert (owners(names, np.arange(20_000) // 5) == UNKNOWN).all()


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


def test_kernels_of_no_call_are_calls_of_their_own_with_their_time():
    pytest.importorskip("torch")
    from jouletrace.execution.operator_marks import calls_of

    start, length = np.array([5_000_000_000, 5_000_100_000, 5_000_300_000]), np.array([40_000, 70_000, 20_000])
    work = Launched.from_columns(["gemm", "relu"], np.array([0, 1, 0]), start, start + length)
    found = calls_of([], work, np.full(3, UNKNOWN), ["", "fused", ""])
    assert [one.seconds for one in found] == pytest.approx([40e-6, 70e-6, 20e-6])
    assert [one.op for one in found] == ["", "fused", ""]
