"""Workloads on the CPU with operators changed, held to what they compute unchanged."""

from contextlib import contextmanager

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from fake_capture import CPU, Tape
from jouletrace.steps.altered import alter, record_structures
from jouletrace.workloads.base import Built


@contextmanager
def new_memory_is_not_a_number():
    """What isn't computed must show: torch fills new memory with NaN and the highest integers."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def workload(target, *inputs, inference=True):
    def call(_i):
        with torch.inference_mode(inference):
            return target(*inputs)

    module = target if isinstance(target, nn.Module) else None
    return Built(call, module, [(inputs, {})], {"name": "test"})


def captured(built):
    tape = Tape()
    with tape:
        outputs = built.call(0)
    return tape, tensors(outputs)


def tensors(outputs):
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=False)


def check(built, changes, structures=None):
    """The altered workload computes what the plain one does, in the first replay and in later ones."""
    structures = structures or record_structures(built, CPU)
    wanted = [tensor.clone() for tensor in tensors(built.call(0))]
    altered, _ = alter(built, structures, changes, CPU)
    tape, outputs = captured(altered)
    same(wanted, outputs)
    for _ in range(3):
        tape.replay()
        same(wanted, outputs)
    return tape


def units_of(built, op=None):
    return [unit for unit in record_structures(built, CPU)[0].units() if op in (None, unit.op)]
