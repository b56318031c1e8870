"""Operators and modules of all kernels, learned where operators are marked for a share of time."""

import numpy as np
import pytest

import traced_program
from jouletrace.tracer import labels_of, read
from row_writer import Writer


def named(folder):
    """The operator and the module of each launch, in order."""
    (traced,) = read(folder)
    labels, label = labels_of(traced.work)
    return [labels[one] for one in label]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_operators_and_modules_of_all_kernels_are_those_that_launched_them(tmp_path, seed):
    truth = traced_program.write(tmp_path, seed)
    assert np.mean([one == true for one, true in zip(named(tmp_path), truth, strict=True)]) > 0.99


def test_a_kernel_that_nothing_is_known_of_keeps_its_module(tmp_path):
    with Writer(tmp_path, 1) as writer:
        module, other = writer.mark(0, "m", "fc"), writer.mark(0, "m", "own")
        writer.row(1, 2, "gemm", correlation=1, owner=writer.mark(module, "o", "aten::mm"), sampled=True)
        writer.row(3, 4, "rope", correlation=2, owner=other, sampled=True)  # of no operator
        for number, (name, owner) in enumerate((("gemm", module), ("rope", other), ("rope", module), ("gemm", 0)), 3):
            writer.row(2 * number, 2 * number + 1, name, correlation=number, owner=owner)
    assert named(tmp_path) == [("aten.mm", "fc"), ("", "own"), ("aten.mm", "fc"), ("", "own"), ("", "fc"), ("", "")]


def test_kernels_of_other_threads_are_no_neighbours(tmp_path):
    rng = np.random.default_rng(1)
    with Writer(tmp_path, 1) as writer:
        first, second = (writer.mark(0, "o", f"aten::{name}") for name in ("add", "mul"))
        truth = []
        for number in range(1, 2001):
            sampled = number < 500
            at = 10 * number
            if rng.random() < 0.5:  # noise of a second thread
                writer.row(at, at + 1, f"noise {rng.integers(1000)}", correlation=number, thread=2)
                truth.append(("", ""))
                continue
            place = sum(1 for one in truth if one[0]) % 4
            kernel, owner = (("gemm", 0), ("elementwise", first), ("norm", 0), ("elementwise", second))[place]
            owner = owner or writer.mark(0, "o", f"aten::{kernel}")
            truth.append((("aten.gemm", "aten.add", "aten.norm", "aten.mul")[place], ""))
            writer.row(at, at + 1, kernel, correlation=number, owner=owner if sampled else 0, sampled=sampled)
    assert named(tmp_path) == truth


@pytest.mark.parametrize("known", [True, False])
def test_equal_layers_keep_their_names(tmp_path, known):
    """Of backward, modules are known only where operators are marked."""
    with Writer(tmp_path, 1) as writer:
        number = 0
        for iteration in range(4):
            number += 1
            writer.row(10 * number, 10 * number + 5, "in", correlation=number, owner=writer.mark(0, "m", "first"))
            for layer in ("block_0", "block_1", "block_2", "block_3", "block_4"):
                for kernel in ("gemm", "split", "norm", "add"):
                    number += 1
                    module = writer.mark(0, "m", f"{layer}.{kernel}")
                    operator = writer.mark(module if known else writer.mark(module, "b", "B"), "o", f"aten::{kernel}")
                    sampled = iteration < 2
                    owner = operator if sampled else module if known else 0
                    writer.row(10 * number, 10 * number + 5, kernel, correlation=number, owner=owner, sampled=sampled)
    found = named(tmp_path)
    kernels = ("gemm", "split", "norm", "add")
    assert (
        found == [("", "first"), *((f"aten.{op}", f"block_{layer}.{op}") for layer in range(5) for op in kernels)] * 4
    )


def test_launches_of_which_nothing_is_known_are_learned_with_their_modules(tmp_path):
    """After torch's profiler, kernels come without their threads and owners."""
    with Writer(tmp_path, 1) as writer:
        number = 0
        for step in range(6):
            for module, op in (("first", "mm"), ("first", "relu"), ("second", "mm"), ("second", "norm")):
                number += 1
                owner = writer.mark(writer.mark(0, "m", module), "o", f"aten::{op}") if step < 3 else 0
                about = {"correlation": number, "owner": owner, "sampled": step < 3, "thread": int(step < 3)}
                writer.row(10 * number, 10 * number + 5, "gemm" if op == "mm" else op, **about)
    once = [("aten.mm", "first"), ("aten.relu", "first"), ("aten.mm", "second"), ("aten.norm", "second")]
    assert named(tmp_path) == 6 * once


@pytest.mark.parametrize(
    ("modules", "named_as"),
    [
        (("h.0.mlp", "h.1.mlp"), "h.*.mlp"),
        (("down.conv1", "down.conv2"), "down.conv*"),
        (("down.act", "down.gate"), "down.act|gate"),
        (("a.n", "b.n", "c.n", "d.n"), "a|b|c|…"),
        (("0", "1"), ""),
    ],
)
def test_modules_that_cannot_be_distinguished_are_named_by_what_they_are(tmp_path, modules, named_as):
    rng = np.random.default_rng(1)
    with Writer(tmp_path, 1) as writer:
        for number in range(1, 401):
            module = writer.mark(0, "m", modules[rng.integers(len(modules))])
            owner = writer.mark(writer.mark(module, "b", "MmBackward0"), "o", "aten::mm")
            sampled = number < 300
            writer.row(number, number + 1, "gemm", correlation=number, owner=owner if sampled else 0, sampled=sampled)
    assert named(tmp_path)[-1][1] == named_as


def test_launches_of_a_module_or_of_none_are_of_none(tmp_path):
    """In backward modules are known only where operators are marked: some of these launches are of no module's."""
    with Writer(tmp_path, 1) as writer:
        backward = writer.mark(writer.mark(0, "m", "ResNet"), "b", "B")
        for number in range(1, 31):
            owner = writer.mark(backward if number % 2 else 0, "o", "aten::mm") if number <= 20 else 0
            writer.row(10 * number, 10 * number + 5, "gemm", correlation=number, owner=owner, sampled=number <= 20)
    assert named(tmp_path) == [("aten.mm", "ResNet"), ("aten.mm", "")] * 10 + [("aten.mm", "")] * 10
