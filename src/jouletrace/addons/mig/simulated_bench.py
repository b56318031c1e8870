"""Jobs on the slices of a simulated GPU, in virtual time; concurrent jobs share its power and its cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jouletrace.addons.mig.activity import Activity
from jouletrace.addons.mig.bench import Bench, Served, Slice, failed
from jouletrace.addons.mig.jobs import Job
from jouletrace.devices.base import Samples
from jouletrace.errors import JouletraceError
from jouletrace.execution.steps.simulated import SimulatedStep, simulate_workload
from jouletrace.simulator.boards.device import SimulatedGpu, SimulatedSlice
from jouletrace.simulator.boards.load import Iterations, Together
from jouletrace.workloads import WorkloadOptions, resolve

_CONTEXT_BYTES = 480 << 20
"""Approximate memory of a CUDA context on a slice."""


@dataclass
class _Loaded:
    """A job on a slice: its step, and its least memory."""

    step: SimulatedStep
    memory_bytes: float


class SimulatedBench(Bench):
    """Slices of a simulated GPU.

    Args:
        board: The GPU.
        slices: Its slices.

    Attributes:
        caused_j: After ``run``: energy over context idle that each slice caused; the truth, for tests.
    """

    def __init__(self, board: SimulatedGpu, slices: Sequence[Slice]) -> None:
        self.board: SimulatedGpu = board
        self.slices: Sequence[Slice] = list(slices)
        self.activity = Activity([])
        self.caused_j = np.zeros(len(slices))
        self._devices = [SimulatedSlice(board, one.profile, one.uuid) for one in slices]
        self._loaded: dict[int, _Loaded] = {}
        self._jitter = np.random.default_rng(len(slices))

    def load(self, slot: int, job: Job) -> int:
        """Count the job's operators and turn them into kernels for this slice."""
        self._loaded.pop(slot, None)
        options = WorkloadOptions(task=job.task, batch=job.batch, seq_len=job.seq_len, dtype=job.dtype)
        try:
            built, step = simulate_workload(resolve(job.workload), options, self._devices[slot], job.mode)
        except JouletraceError as error:
            raise failed(error) from None
        self._loaded[slot] = _Loaded(step, built.facts["least_memory_bytes"] + _CONTEXT_BYTES)
        return built.items

    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Run jobs at once; each ends with the request during which the time is over."""
        loads: list[Iterations | None] = [None] * len(self.slices)
        for slot in slots:
            schedule = self._loaded[slot].step.schedule
            loads[slot] = Iterations(schedule, max(1, math.ceil(seconds / schedule.at(1.0, 1.0).period_s)), timed=True)
        together = Together(loads)
        start_ns, end_ns = self.board.board.run_load(together)
        self.caused_j = together.caused_j
        elapsed_s = (end_ns - start_ns) / 1e9
        middle = np.array([(start_ns + end_ns) // 2], np.int64)
        for slot, one in enumerate(self.slices):
            share = min(together.busy_s[slot] / elapsed_s, 1.0)
            self.activity.add(one.uuid, Samples("graphics_active", middle, np.array([share])))
        served = []
        for slot in slots:
            load = loads[slot]
            assert load is not None  # the requested slices have one
            ends_s = load.ends_s()
            # events resolve about half a microsecond, and a few requests are disturbed
            count = len(ends_s) - 1
            late_s = np.abs(self._jitter.normal(0.0, 0.3e-6, count)) + (self._jitter.random(count) < 0.01) * 8e-6
            served.append(Served(np.diff(ends_s) + late_s, start_ns, start_ns + round(float(ends_s[-1]) * 1e9)))
        return served

    def memory_bytes(self, slot: int) -> float | None:
        """Weights, inputs and outputs, as a lower bound, and a context."""
        loaded = self._loaded.get(slot)
        return loaded.memory_bytes if loaded is not None else None

    def unload(self) -> None:
        """End all jobs."""
        self._loaded.clear()
