"""Operators and modules of a program, sampled while it runs."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import fake_kernels
from jouletrace.profiler.program import operators
from jouletrace.profiler.program.launch_marks import owners_of
from jouletrace.profiler.program.operators import OperatorSampler
from jouletrace.tracer.labels import labels_of
from jouletrace.tracer.process_trace import ProcessTrace


@torch.library.custom_op("jouletrace_test::gemm", mutates_args=())
def gemm(x: torch.Tensor) -> torch.Tensor:
    """An operator with two kernels."""
    fake_kernels.launch("split", 0)
    fake_kernels.launch("gemm", 0)
    return x.clone()


@torch.library.custom_op("jouletrace_test::norm", mutates_args=())
def norm(x: torch.Tensor) -> torch.Tensor:
    """An operator whose kernel an other one has too."""
    fake_kernels.launch("split", 0)
    return x.clone()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.scale = Mix(), Scale()

    def forward(self, x):
        return self.scale(self.mix(x))


class Mix(nn.Module):
    def forward(self, x):
        return gemm(x)


class Scale(nn.Module):
    def forward(self, x):
        fake_kernels.launch("triton", 0)  # of no operator
        return norm(x)


def test_a_compiler_that_is_being_imported_has_compiled_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", ModuleType("torch._dynamo.utils"))
    assert not operators._compiles()


def test_a_fault_while_looking_ends_sampling_and_nothing_else(monkeypatch):
    def fail():
        raise RuntimeError("odd")

    monkeypatch.setattr(operators, "_compiles", fail)
    sampler = OperatorSampler(lambda label: None, device="cpu")
    sampler.look()
    assert sampler.problem == "sampling failed (RuntimeError: odd)"


@pytest.fixture
def log(monkeypatch):
    if compiler := sys.modules.get("torch._dynamo.utils"):  # what an earlier test compiled is not of this program
        monkeypatch.setitem(compiler.counters["frames"], "total", 0)
    monkeypatch.setattr(operators, "FIRST_S", 0.0)
    monkeypatch.setattr(operators, "WATCHED_S", 0.0)
    return fake_kernels.FakeLog()


def sampled(log, step, iterations=30):
    sampler = OperatorSampler(log.mark, "cpu")
    sampler.look()
    for _ in range(iterations):
        step()
    sampler.end()
    work, number, meaning = log.launched()
    owners = owners_of(work, number, np.array(meaning, np.int64), sampler.labels, [])
    labels, label = labels_of(ProcessTrace(1, "run", None, [], work, owners, []))
    return sampler, [labels[code] for code in label]


def test_kernels_of_all_iterations_are_named_by_those_of_a_few(log):
    model, x = nn.Sequential(Block(), Block(), Block()), torch.randn(3)
    sampler, named = sampled(log, lambda: model(x))
    assert sampler.problem == ""
    iteration = [("jouletrace_test.gemm", "*.mix")] * 2 + [("", ""), ("jouletrace_test.norm", "*.scale")]
    assert named[12:-12] == (iteration * 90)[: len(named) - 24]


def test_equal_layers_whose_numbers_are_part_of_a_word_share_a_label(log):
    model = nn.Sequential()
    for number in range(6):
        model.add_module(f"block_{number}", Block())
    x = torch.randn(3)
    _, named = sampled(log, lambda: model(x))
    inner = named[24:-24]
    assert set(inner) == {("jouletrace_test.gemm", "block_*.mix"), ("jouletrace_test.norm", "block_*.scale"), ("", "")}
    assert inner.count(("", "")) == pytest.approx(0.25 * len(inner))  # those of no operator


def test_the_outermost_module_is_detected_from_within_a_call(log, monkeypatch):
    """Hooks come while an inner module runs; a module within it is called again before the outermost one."""
    now = [0.0]
    monkeypatch.setattr(operators, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(operators, "WATCHED_S", 1.0)
    model, x = nn.Sequential(Block(), Block()), torch.randn(3)
    sampler = OperatorSampler(log.mark, "cpu")
    inner = nn.Identity()
    model[0].mix.register_forward_hook(lambda *_: (sampler.look(), inner(x), inner(x))[0])
    for _ in range(20):
        now[0] += 0.2
        model(x)
    assert {module for _, module in sampler.labels} >= {"*.mix", "*.scale"}


def test_a_program_under_a_mode_of_its_own_is_left_alone(log):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model, x = Block(), torch.randn(3)
    with Own():
        sampler, named = sampled(log, lambda: model(x))
    assert "mode of its own" in sampler.problem
    assert set(named) == {("", "")}


def test_a_fault_of_the_sampler_does_not_reach_the_program(log, monkeypatch):
    monkeypatch.setattr(OperatorSampler, "_begin", lambda *_: 1 / 0)
    model, x = Block(), torch.randn(3)
    sampler, _ = sampled(log, lambda: model(x))
    assert "ZeroDivisionError" in sampler.problem
