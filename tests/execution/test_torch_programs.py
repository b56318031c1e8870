"""Listing and repeating operators with torch, on the CPU; and with a tracer made of torch's own dispatch."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from jouletrace.errors import BrokenOffError, NotPossibleError  # noqa: E402
from jouletrace.execution import (  # noqa: E402
    UNKNOWN,
    operator_marks,
    torch_programs,
    variants,
)
from jouletrace.execution.excitation import Excitation  # noqa: E402
from jouletrace.execution.marks import CallMarks  # noqa: E402
from jouletrace.execution.operator_marks import repeated  # noqa: E402
from jouletrace.execution.steps.operators import OperatorMode, op_name  # noqa: E402
from jouletrace.execution.torch_programs import CpuTraceable, GpuTraceable  # noqa: E402
from jouletrace.profiler.detail.kernel_recording import rows_of  # noqa: E402
from jouletrace.tracer import Launched, ProcessTrace  # noqa: E402
from jouletrace.workloads import Built  # noqa: E402
from jouletrace.workloads.base import OPTIMIZER, marked  # noqa: E402

CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.act(self.fc(x))


def built(module=None, call=None, **facts):
    torch.manual_seed(0)
    module = module or nn.Sequential(Block(), Block())
    x = torch.randn(4, 8)

    def once(i):
        with torch.inference_mode():
            return module(x)

    return Built(call or once, module, [((x,), {})], {"name": "toy", **facts})


def training():
    torch.manual_seed(0)
    module = nn.Sequential(Block(), Block())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    x = torch.randn(4, 8)

    def once(i):
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()

    return built(module, once)


class Shared(nn.Module):
    """Calls one module twice, adds between the calls, and ends with an operator of its own."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(self.block(x) + 1.0).tanh()


def shared():
    return built(nn.Sequential(Shared(), Shared()))


class Everything(OperatorMode):
    """Sees operators as a tracer sees kernels, with the marks that are open."""

    def __init__(self):
        super().__init__(CPU)
        self.rows, self.ranges, self.calls = [], [], []
        self.push, self.pop = self.ranges.append, self.ranges.pop

    def enter_call(self, operator):
        self.calls.append(operator)
        return len(self.calls) - 1

    def leave_call(self, depth):
        del self.calls[depth:]

    def operator(self, func, args, kwargs):
        start = time.time_ns()
        out = func(*args, **kwargs)
        mark = self.calls[-1] if self.calls else ""
        self.rows.append((op_name(func), start, time.time_ns(), mark, tuple(self.ranges)))
        return out


def distinct(values, first=()):
    known = {value: k for k, value in enumerate(dict.fromkeys([*first, *values]))}
    return list(known), np.array([known[value] for value in values])


def traced(call):
    with Everything() as seen:
        call(seen)
    ops, start, end, marks, ranges = zip(*seen.rows, strict=True)
    (names, name), (labels, label), (paths, path) = distinct(ops), distinct(marks, [""]), distinct(ranges, [()])
    known = {"labels": [(one, "") for one in labels], "label": label, "sampled": label > 0}
    work = Launched.from_columns(names, name, np.array(start), np.array(end), paths=paths, path=path, **known)
    return ProcessTrace(1, "toy", None, ["GPU-0"], work, [(start[0], end[-1])])


def silent():
    return CallMarks(Everything())


@pytest.fixture
def on_cpu(monkeypatch):
    """GpuTraceable with operators of the CPU for kernels."""
    monkeypatch.setattr(torch_programs, "trace", traced)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: None)


def step_of(work, mode="eager"):
    return SimpleNamespace(mode=mode, launch=lambda: work.call(0))


@pytest.mark.parametrize("traceable", [CpuTraceable, lambda work: GpuTraceable(work, step_of(work), CPU)])
def test_calls_state_their_flops_and_bytes(on_cpu, traceable):
    product, gelu, _, *_ = traceable(built()).listing().calls
    assert (product.flops, product.bytes_moved) == (2 * 4 * 8 * 8, 4 * (4 * 8 + 8 * 8 + 8 + 4 * 8))
    assert (gelu.flops, gelu.bytes_moved) == (0, 4 * 2 * 4 * 8)


def test_an_operator_that_cant_be_counted_is_listed():
    table, numbers = torch.eye(8).to_sparse(), torch.randn(8, 4)
    calls = CpuTraceable(built(call=lambda _: table @ numbers)).listing().calls
    assert [(call.flops, call.bytes_moved) for call in calls if call.op == "aten.mm"] == [(0, 0)]


def test_calls_have_their_module_their_shapes_and_their_kernels(on_cpu):
    work = built()
    listing = GpuTraceable(work, step_of(work), CPU).listing()
    assert [(call.op, call.module) for call in listing.calls] == [
        ("aten.addmm", "Sequential.0.fc"),
        ("aten.gelu", "Sequential.0.act"),
        ("aten.add", "Sequential.0"),
        ("aten.addmm", "Sequential.1.fc"),
        ("aten.gelu", "Sequential.1.act"),
        ("aten.add", "Sequential.1"),
    ]
    assert listing.calls[0].shapes == "f32[8] f32[4,8] f32[8,8]"
    assert [listing.names[call.kernels[0]] for call in listing.calls] == [call.op for call in listing.calls]
    assert all(call.repeatable for call in listing.calls)


@pytest.mark.thorough
@pytest.mark.parametrize("iteration_s", [1e-3, 20e-3])
@pytest.mark.parametrize("make", [built, training, shared])
def test_a_recording_is_matched_whole_and_copies_are_known(on_cpu, make, iteration_s):
    """Several repeats lie inside each other where a module and one that it calls are repeated."""
    work = make()
    program = GpuTraceable(work, step_of(work), CPU)
    listing = program.listing()
    drawn = tuple(variants(listing.calls, np.random.default_rng(0), iteration_s))
    seconds = []
    found = program.record(listing, Excitation(0.05, 0.2, drawn), 1e-3, seconds.append)
    assert found.unknown == 0
    assert found.copy.any()
    assert found.iterations == found.iteration[-1] + 1
    plain = np.bincount(found.call[~found.copy], minlength=len(listing.calls))
    assert (plain == found.iterations * np.array([len(call.kernels) for call in listing.calls])).all()
    assert sum(seconds) >= 0.25


def test_phases_of_training_are_known_and_what_writes_is_not_repeated(on_cpu):
    work = training()
    listing = GpuTraceable(work, step_of(work), CPU).listing()
    assert {call.phase for call in listing.calls} >= {"forward", "backward"}
    assert {call.module for call in listing.calls if call.phase == "backward"} >= {"Sequential.0.fc", "Sequential.1.fc"}
    writing = [call for call in listing.calls if call.op.endswith("_") and "zero" not in call.op]
    assert not any(call.repeatable for call in writing)


def test_repeating_leaves_the_result_as_it_is(on_cpu):
    work = built()
    program = GpuTraceable(work, step_of(work), CPU)
    listing = program.listing()
    plain = work.call(0)
    drawn = variants(listing.calls, np.random.default_rng(0))
    runs = program._made_ready(silent(), listing, Excitation(0, 1, tuple(drawn)))
    for variant in drawn[1:]:
        assert torch.equal(runs[variant](), plain)


def test_the_mode_is_on_in_one_call_of_one_module_alone(monkeypatch, on_cpu):
    work = shared()
    listing = GpuTraceable(work, step_of(work), CPU).listing()
    under = []
    operator = operator_marks.Repeater.operator
    monkeypatch.setattr(
        operator_marks.Repeater,
        "operator",
        lambda self, func, args, kwargs: under.append(op_name(func)) or operator(self, func, args, kwargs),
    )
    second = [call for call in listing.calls if call.module == "Sequential.1.block.fc"][1]
    repeated(lambda: work.call(0), work.module, CPU, silent(), [(second, 3)])
    assert under == ["aten.addmm"]
    own = next(call for call in listing.calls if call.module == "Sequential.1" and call.op == "aten.tanh")
    under.clear()
    repeated(lambda: work.call(0), work.module, CPU, silent(), [(own, 3)])
    assert len(under) == len(listing.calls) // 2
    assert not any("forward" in vars(module) for module in work.module.modules())


def test_what_a_mark_is_around_is_repeated_under_the_mode_as_a_whole(on_cpu):
    work = built()
    plain = work.call

    def once(i):
        with marked(OPTIMIZER):
            torch.ones(4, 4).sin()
        return plain(i)

    work.call = once
    listing = GpuTraceable(work, step_of(work), CPU).listing()
    sine = next(call for call in listing.calls if call.op == "aten.sin")
    assert (sine.module, sine.inner) == (OPTIMIZER, UNKNOWN)
    assert torch.equal(repeated(lambda: work.call(0), work.module, CPU, silent(), [(sine, 3)]), plain(0))


def test_a_forward_of_the_users_own_is_put_back(on_cpu):
    work = built()
    mine = work.module[0].fc.forward
    work.module[0].fc.forward = mine
    listing = GpuTraceable(work, step_of(work), CPU).listing()
    repeated(lambda: work.call(0), work.module, CPU, silent(), [(listing.calls[0], 3)])
    assert work.module[0].fc.forward is mine


@pytest.mark.thorough
def test_a_graph_captures_each_variant_once(on_cpu, monkeypatch):
    captures = []

    def captured(call, device, pool, stream):
        captures.append(call)
        call()
        return SimpleNamespace(replay=call), None

    monkeypatch.setattr(torch_programs, "capture", captured)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", SimpleNamespace)
    work = built()
    program = GpuTraceable(work, step_of(work, "graph"), CPU)
    listing = program.listing()
    drawn = tuple(variants(listing.calls, np.random.default_rng(0)))
    found = program.record(listing, Excitation(0.02, 0.1, drawn), 1e-3, lambda seconds: None)
    assert len(captures) == len(drawn)
    assert found.unknown == 0  # what ran as it was captured, which belongs to no iteration, isn't part of it
    assert found.copy.any()


def test_compiled_code_has_kernels_without_operators(on_cpu):
    work = built()
    listing = GpuTraceable(work, step_of(work, "compile"), CPU).listing()
    assert {call.op for call in listing.calls} == {""}
    assert "compiler" in listing.note
    assert variants(listing.calls, np.random.default_rng(0))[1:] == []


def test_kernels_of_a_compiler_state_the_operators_that_they_fuse(on_cpu, monkeypatch):
    def compiled(call):
        made = traced(call)
        gelu = np.array([name == "aten.gelu" for name in made.work.names])[made.work.name]
        work = replace(made.work, labels=[("", ""), ("add+gelu", "")], label=gelu.astype(int))
        return replace(made, work=work)

    monkeypatch.setattr(torch_programs, "trace", compiled)
    work = built()
    program, excitation = GpuTraceable(work, step_of(work, "compile"), CPU), Excitation(0.02)
    listing = program.listing()
    assert {call.op for call in listing.calls} == {"", "add+gelu"}
    rows = rows_of(listing, program.record(listing, excitation, 1e-3, lambda seconds: None), excitation)
    units = rows.units.table().to_pylist()
    (op,) = (unit for unit in units if unit["op"] and unit["level"] == "op")
    assert (op["name"], op["count"], op["module"], op["shapes"], op["phase"]) == ("add+gelu", 2, None, None, None)
    kernels = {unit["name"]: unit for unit in units if unit["level"] == "kernel"}
    assert kernels["aten.gelu"]["parent"] == op["id"]
    assert kernels["aten.addmm"]["op"] is None
    assert "site" not in {unit["level"] for unit in units}
    assert rows.activity["site"].null_count == len(rows.unit)


def test_an_exception_in_the_model_ends_in_one_line(on_cpu):
    work = built()
    program = GpuTraceable(work, step_of(work), CPU)
    listing = program.listing()
    calls = iter(range(3))

    def breaks(i):
        if next(calls, None) is None:
            raise ValueError("enough\nof this")
        return None

    work.call = breaks
    with pytest.raises(BrokenOffError, match="toy: its forward raised ValueError: enough"):
        program.record(listing, Excitation(5.0), 1e-3, lambda seconds: None)


def test_a_tracer_that_is_refused_says_why(on_cpu, monkeypatch):
    def refused(call):
        raise NotPossibleError("kernel tracing: another profiler holds CUPTI in this process: end it first")

    monkeypatch.setattr(torch_programs, "trace", refused)
    work = built()
    with pytest.raises(NotPossibleError, match="another profiler holds CUPTI"):
        GpuTraceable(work, step_of(work), CPU).listing()


def test_a_cpu_times_its_operators():
    work = built()
    program = CpuTraceable(work)
    listing = program.listing()
    found = program.record(listing, Excitation(0.1), 1e-3, lambda seconds: None)
    assert [call.op for call in listing.calls][:3] == ["aten.addmm", "aten.gelu", "aten.add"]
    assert found.unknown == 0
    assert found.iterations > 3
    assert (found.work.end_ns >= found.work.start_ns).all()
