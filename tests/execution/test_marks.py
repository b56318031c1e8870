"""A workload whose operators launch kernels of the fake driver: the library's marks say whose each kernel is."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import ctypes, json
from types import SimpleNamespace
from contextlib import nullcontext
import numpy as np, torch
from torch import nn
from jouletrace.execution import torch_programs
from jouletrace.execution.excitation import Excitation, variants
from jouletrace.execution.steps.operators import OperatorMode, op_name
from jouletrace.workloads.base import Built

cuda, symbols = ctypes.CDLL("libcuda.so.1"), {}
cuda.cuInit(0)

class Launching(OperatorMode):  # outermost: every operator launches a kernel of its name
    def operator(self, func, args, kwargs):
        name = op_name(func)
        cuda.cudaLaunchKernel(symbols.setdefault(name, ctypes.create_string_buffer(name.encode())))
        return func(*args, **kwargs)

torch.cuda.device = lambda device: nullcontext()
torch.cuda.synchronize = lambda *device: cuda.cudaDeviceSynchronize()
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
x = torch.randn(4, 8)
def once(i):
    out = model(x)
    if TRAINS:
        out.sum().backward()
work = Built(once, model, [((x,), {})], {"name": "toy"})
program = torch_programs.GpuTraceable(work, SimpleNamespace(mode="eager", launch=lambda: once(0)), torch.device("cpu"))
with Launching(torch.device("cpu")):
    listing = program.listing()
    drawn = tuple(variants(listing.calls, np.random.default_rng(0)))
    found = program.record(listing, Excitation(0.05, 0.2, drawn), 1e-3, lambda seconds: None)
ops = [listing.calls[call].op for call in found.call]
print(json.dumps({
    "calls": [(call.op, call.module, call.phase) for call in listing.calls],
    "unknown": found.unknown, "copies": int(found.copy.sum()), "dropped": found.dropped,
    "wrong": sum(op != found.work.names[name] for op, name in zip(ops, found.work.name)),
    "iterations": [found.iterations, int(found.iteration[-1]) + 1],
    "plain": np.bincount(found.call[~found.copy]).tolist(), "shapes": [list(one) for one in found.work.shapes],
}))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("trains", [False, True])
def test_each_kernel_belongs_to_the_call_that_launched_it(bench, trains):
    environment = bench.environment(JOULETRACE_CUPTI=bench.built)
    for name in ("JOULETRACE_TRACE", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        del environment[name]
    command = [sys.executable, "-c", f"TRAINS = {trains}\n{PROGRAM}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    forward = [["aten.addmm", "0", "forward"], ["aten.gelu", "1", "forward"], ["aten.addmm", "2", "forward"]]
    assert found["calls"][:3] == forward
    assert trains == any(phase == "backward" for _, _, phase in found["calls"])
    assert (found["unknown"], found["wrong"], found["dropped"]) == (0, 0, 0)
    assert found["copies"] > 0
    assert found["iterations"][0] == found["iterations"][1]
    assert found["plain"] == [found["iterations"][0]] * len(found["calls"])
    assert found["shapes"][1] == [8, 2, 1, 128, 1, 1, 32, 1024, 4096]
