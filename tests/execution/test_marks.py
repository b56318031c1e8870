"""A workload whose operators launch kernels of the fake driver: the library's marks say whose each kernel is."""

import json
import subprocess
import sys

import pytest

from preloaded import WithTorch

pytest.importorskip("torch")

PROGRAM = """
import ctypes, json, os
from types import SimpleNamespace
from contextlib import nullcontext
import numpy as np, torch
from torch import nn
from jouletrace.execution import torch_programs
from jouletrace.execution.excitation import Excitation, variants
from jouletrace.execution.steps.operators import OperatorMode, op_name
from jouletrace.workloads.base import Built

cuda, symbols = ctypes.CDLL(os.environ["BUILT"] + "/libcuda.so.1"), {}
cuda.cuInit(0)

class Launching(OperatorMode):  # outermost: every operator launches a kernel of its name
    def operator(self, func, args, kwargs):
        name = op_name(func)
        for part in {"aten.mul": (), "aten.gelu": ("", " second")}.get(name, ("",)):
            cuda.cudaLaunchKernel(symbols.setdefault(name + part, ctypes.create_string_buffer((name + part).encode())))
        return func(*args, **kwargs)

def capture(call, *_):
    graph, clone = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cudaStreamBeginCapture()
    call()
    cuda.cudaStreamEndCapture(ctypes.byref(graph))
    cuda.cudaGraphInstantiate(ctypes.byref(clone), graph)
    return SimpleNamespace(replay=lambda: cuda.cudaGraphLaunch(clone)), None

torch.cuda.device = lambda device: nullcontext()
torch.cuda.synchronize = lambda *device: cuda.cudaDeviceSynchronize()
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
x = torch.randn(4, 8)
turn = 0
def once(i):
    global turn
    turn += 1
    out = model(x * 1.0)
    if HOW == "training":
        out.sum().backward()
    if HOW == "branching" and turn > 3 and turn % 3 == 0:
        for _ in range(3):
            out = torch.nn.functional.silu(out) if turn % 2 else torch.nn.functional.gelu(out)
work = Built(once, model, [((x,), {})], {"name": "toy"})
torch.cuda.graph_pool_handle, torch.cuda.Stream, torch_programs.capture = lambda: 1, SimpleNamespace, capture
step = SimpleNamespace(mode="graph" if HOW == "graph" else "eager", launch=lambda: once(0))
program = torch_programs.GpuTraceable(work, step, torch.device("cpu"))
from jouletrace.tracer.in_process import InProcess
earlier = InProcess(operators=False)
earlier.push("train")
earlier.pop()
earlier.end()
with Launching(torch.device("cpu")):
    listing = program.listing()
    drawn = tuple(variants(listing.calls, np.random.default_rng(0)))
    found = program.record(listing, Excitation(0.05, 0.2, drawn), 1e-3, lambda seconds: None)
ops = [listing.calls[call].op if call >= 0 else "" for call in found.call]
known = list(zip(ops, [found.work.names[name] for name in found.work.name]))
plain = np.bincount(found.call[~found.copy & (found.call >= 0)], minlength=len(listing.calls))
print(json.dumps({
    "calls": [(call.op, call.module, call.phase, len(call.kernels)) for call in listing.calls],
    "unknown": sorted({name for op, name in known if not op}), "notes": found.notes,
    "copies": int(found.copy.sum()), "wrong": sum(op != name.split()[0] for op, name in known if op),
    "iterations": [found.iterations, int(found.iteration[-1]) + 1],
    "plain": plain.tolist(), "shapes": [list(one) for one in found.work.shapes],
}))
"""


def printed(bench, code, **how):
    """The output of a Python program that records itself on the fake driver."""
    environment = bench.environment(JOULETRACE_CUPTI=bench.built, BUILT=bench.built, **how)
    for name in ("JOULETRACE_TRACE", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        del environment[name]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = WithTorch([sys.executable, "-c", code], env=environment, text=True, **pipes)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["training", "graph", "branching"])
def test_each_kernel_belongs_to_the_call_that_launched_it(bench, how):
    """One operator launches nothing, one two kernels; ranges of an earlier recording are known to the tracer."""
    found = json.loads(printed(bench, f"HOW = {how!r}\n{PROGRAM}"))
    forward = [("addmm", 0, 1), ("gelu", 1, 2), ("addmm", 2, 1)]
    listed = [[f"aten.{op}", f"Sequential.{place}", "forward", kernels] for op, place, kernels in forward]
    assert found["calls"][:3] == listed
    assert ("backward" in {phase for _, _, phase, _ in found["calls"]}) == (how == "training")
    assert (found["wrong"], found["notes"]) == (0, [])
    assert set(found["unknown"]) <= ({"aten.silu", "aten.gelu", "aten.gelu second"} if how == "branching" else set())
    assert ("aten.silu" in found["unknown"]) == (how == "branching")
    assert found["copies"] > 0
    assert found["iterations"][0] == found["iterations"][1]
    listed = [found["iterations"][0] * kernels for *_, kernels in found["calls"]]
    if how == "branching":  # of a call that is made more often than listed, the share in these iterations is unknown
        assert all(few <= many for few, many in zip(found["plain"], listed, strict=True))
        assert found["plain"][0] == listed[0]
    else:
        assert found["plain"] == listed
    assert found["shapes"][1] == [8, 2, 1, 128, 1, 1, 32, 1024, 4096]


AFTER = """
import ctypes, os, torch
ctypes.CDLL(os.environ["BUILT"] + "/libcuda.so.1").cuInit(0)
from jouletrace.errors import NotPossibleError
from jouletrace.tracer.in_process import trace
try:
    trace(lambda tracer: None)
except NotPossibleError as error:
    print(error)
"""


@pytest.mark.thorough
def test_after_torch_s_profiler_one_line_says_what_to_do(bench):
    """It keeps CUPTI's one subscription, without which no launch has a mark."""
    said = printed(bench, AFTER, FAKE_FAIL="cuptiSubscribe=39")
    assert said == "kernel tracing: torch's profiler, which ran before, keeps CUPTI: use another process\n"
