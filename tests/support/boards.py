"""Simulated GPUs to profile on, steps without torch, and profiles whose truth is at hand."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from jouletrace.execution.steps.simulated import SimulatedStep
from jouletrace.profiler import profile as profiler
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.simulator.boards import SimKernel, SimulatedGpu

QUICK = {"warmup_s": 3.0, "idle_s": 1.5, "latency_s": 0.5, "calibrated": False}
"""Settings that keep the simulation short."""


def kernels(watts: float = 300.0, seconds: float = 200e-6) -> list[SimKernel]:
    """A step of four kernels that draw ``watts`` over context idle."""
    return [SimKernel("gemm", seconds / 4, watts, clocked=0.2, core=0.5) for _ in range(4)]


def board_step(spec: str = "sim:h100?noise=1", **keys: float) -> tuple[SimulatedGpu, SimulatedStep]:
    """A GPU and a step on it; a context exists from here on."""
    device = SimulatedGpu(spec)
    return device, SimulatedStep(device, kernels(**keys))


@contextmanager
def recording(device: SimulatedGpu, **keys: object):
    """A session on a GPU, in memory, that is finished at the end."""
    with Session("profile", [device], **keys) as session:  # type: ignore[arg-type]
        yield session
        session.finish()


def mlp(width: int = 2048, batch: int = 4096):
    """A small model and its inputs, large enough that a GPU notices."""
    import torch

    torch.manual_seed(0)
    layers = (torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
    return torch.nn.Sequential(*layers).half(), torch.randn(batch, width).half()


def profiled(monkeypatch, spec: str, **settings: object) -> tuple[Run, SimulatedGpu]:
    """A profile of ``mlp`` on a simulated GPU, and the GPU, which knows the truth."""
    from jouletrace.workloads import ObjectWorkload

    opened: list[SimulatedGpu] = []
    monkeypatch.setattr(profiler, "open_device", lambda name: opened.append(SimulatedGpu(name)) or opened[-1])
    workload = ObjectWorkload(*mlp(), name="mlp")
    run = profiler.profile_workload(workload, ProfileSettings(device=spec, **{**QUICK, **settings}))  # type: ignore[arg-type]
    return run, opened[0]


def true_energy_j(run: Run, device: SimulatedGpu) -> float:
    """True mean energy of an iteration over the windows of a run."""
    start, end, replays = (run.windows[name].to_numpy() for name in ("start_ns", "end_ns", "replays"))
    return float(np.mean([device.truth.energy_j(*edges) for edges in zip(start, end, strict=True)] / replays))


def true_level_w(run: Run, device: SimulatedGpu, name: str) -> float:
    """True mean power of the phases whose name begins so, their first 0.4 s left out."""
    levels = []
    for row in run.spans.to_pylist():
        if row["kind"] == "phase" and row["name"].startswith(name):
            start = row["start_ns"] + 400_000_000
            levels.append(device.truth.energy_j(start, row["end_ns"]) / (row["end_ns"] - start) * 1e9)
    return float(np.mean(levels))
