"""Jobs on slices of one GPU, one or several at once: a process each on a real GPU, virtual time on a simulated one."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from jouletrace.campaign.worker import VANISHED, Worker, listen, reason_of
from jouletrace.devices import open_device
from jouletrace.devices.base import Device, Samples
from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.execution.steps.base import schedule_of
from jouletrace.profiler.prepare import prepare
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.simulator.boards import Schedule, SimulatedGpu
from jouletrace.simulator.boards.load import Iterations
from jouletrace.wings.mig.activity import ActivityRecorder, ActivitySource, DcgmExporter, instance_activity
from jouletrace.wings.mig.jobs import Job, JobFailedError, Served, Slice
from jouletrace.wings.mig.partition import MigBackend
from jouletrace.wings.mig.slices import SimulatedSlice
from jouletrace.wings.serving.client.queues import Together
from jouletrace.workloads import resolve

_LOAD_S = 300.0
"""Longest time to build a job: CUDA starts, weights are made."""

_ANSWER_S = 60.0
_HEAD_START_S = 0.05

_CONTEXT_BYTES = 480 << 20
"""Approximate memory of a CUDA context on a slice."""


class Bench(ABC):
    """Slices of one GPU (``board``, whose power is measured) that run jobs, and the activity of the slices."""

    board: Device
    slices: Sequence[Slice]
    activity: ActivityRecorder

    @abstractmethod
    def load(self, slot: int, job: Job) -> int:
        """Prepare a job on a slice, replacing the previous one; returns the samples per request.

        Raises:
            JobFailedError: If it can't be prepared; the slice is free then.
        """

    @abstractmethod
    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Run the jobs of these slices at once for a given time.

        Raises:
            JobFailedError: If one fails or its slice is lost.
        """

    @abstractmethod
    def memory_bytes(self, slot: int) -> float | None:
        """Device memory in use on a slice; None where it is unknown."""

    @abstractmethod
    def unload(self) -> None:
        """End all jobs; their memory is free when this returns."""

    def close(self) -> None:
        """End all jobs, stop reading activity, and release the GPU."""
        self.unload()
        self.activity.stop()
        self.board.close()


def slices_of(backend: MigBackend) -> list[Slice]:
    """A slice for each compute instance that CUDA can use, by placement."""
    profiles = {profile.name: profile for profile in backend.profiles()}
    whole = max(profile.slices for profile in profiles.values())
    return [
        Slice(compute.uuid, profiles[instance.profile], instance.id, whole)
        for instance in backend.instances()
        for compute in instance.compute
        if compute.uuid is not None
    ]


def open_bench(backend: MigBackend, slices: Sequence[Slice], dcgm_url: str | None, gpu: SimulatedGpu | None) -> Bench:
    """A bench on slices of a GPU; ``gpu`` is the simulated one. Activity is read from a dcgm-exporter, else by GPM.

    Raises:
        NotPossibleError: If the exporter doesn't answer or doesn't report the slices.
    """
    if gpu is not None:
        return SimulatedBench(gpu, slices)
    if not slices:
        raise NotPossibleError(f"{backend.info.name} has no MIG instance that CUDA can use")
    return RealBench(
        open_device(backend.info.id), slices, ActivityRecorder(activity_sources(backend, slices, dcgm_url))
    )


def activity_sources(backend: MigBackend, slices: Sequence[Slice], dcgm_url: str | None) -> Sequence[ActivitySource]:
    """Where the activity of slices of a real GPU is read: a DCGM exporter, or the driver's counters (maybe none).

    Raises:
        NotPossibleError: If the exporter doesn't answer or doesn't report the slices.
    """
    if dcgm_url is None:
        return instance_activity(backend.info.id, {one.uuid: one.instance for one in slices})
    known = {one.instance: (one.uuid, one.profile.memory_mib << 20) for one in slices}
    exporter = DcgmExporter(dcgm_url, backend.info.id, backend.info.index, known)
    exporter.check()
    return [exporter]


class RealBench(Bench):
    """Slices of a real GPU, with a process each, so that no memory of another job is left on a slice.

    Only tests use another ``torch_device`` than "cuda:0", the slice that CUDA shows.
    """

    def __init__(
        self, board: Device, slices: Sequence[Slice], activity: ActivityRecorder, torch_device: str = "cuda:0"
    ) -> None:
        self.board: Device = board
        self.slices: Sequence[Slice] = list(slices)
        self.activity = activity
        self._torch_device = torch_device
        self._workers: dict[int, Worker] = {}

    def load(self, slot: int, job: Job) -> int:
        """Prepare a job in a new process."""
        self._end(slot)
        visible = self.slices[slot].uuid if self._torch_device.startswith("cuda") else None
        worker = self._workers[slot] = Worker(f"{self.slices[slot].profile.name} ({job})", visible)
        options = {"task": job.task, "batch": job.batch, "seq_len": job.seq_len, "dtype": job.dtype}
        order = {"do": "load", "workload": job.workload, "options": options, "mode": job.mode}
        try:
            return int(_answer(worker, {**order, "device": self._torch_device}, _LOAD_S)["items"])
        except JobFailedError:
            self._end(slot)
            raise

    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Run jobs at once, with a common start."""
        at_ns = time.time_ns() + round(_HEAD_START_S * 1e9)
        workers = [self._workers[slot] for slot in slots]
        for worker in workers:
            worker.begin({"do": "run", "seconds": seconds, "at_ns": at_ns})
        listen(workers, limit_s=seconds + _ANSWER_S)
        for slot in slots:
            if self._workers[slot].said["is"] == "failed":
                self._end(slot)
        answers = [_answer(worker) for worker in workers]
        return [Served(np.array(one["latency_s"]), int(one["start_ns"]), int(one["end_ns"])) for one in answers]

    def memory_bytes(self, slot: int) -> float | None:
        """Memory in use on the slice, by the driver."""
        seen = self.activity.series(self.slices[slot].uuid, "memory_used_bytes")[1]
        if len(seen):
            return float(seen[-1])
        with suppress(JobFailedError):
            used = _answer(self._workers[slot], {"do": "memory"}, _ANSWER_S)["bytes"]
            return None if used is None else float(used)
        return None

    def unload(self) -> None:
        """End all processes."""
        for slot in list(self._workers):
            self._end(slot)

    def _end(self, slot: int) -> None:
        worker = self._workers.pop(slot, None)
        if worker is not None:
            worker.close()


def _answer(worker: Worker, order: dict[str, Any] | None = None, limit_s: float | None = None) -> dict[str, Any]:
    """The answer to an order, or to the last one.

    Raises:
        JobFailedError: If it failed, its process ended, or it took more than ``limit_s`` seconds (it is ended then).
    """
    if order is not None:
        worker.begin(order)
        listen([worker], limit_s=limit_s)
    said = worker.said
    if said["is"] == "failed":
        lost = "; the slice may be gone" if said["reason"] == VANISHED else ""
        raise JobFailedError(said["reason"], f"{worker.name}: {said['text']}{lost}")
    return said


class SimulatedBench(Bench):
    """Slices of a simulated GPU, in virtual time; concurrent jobs share its power and its cap.

    ``caused_j``, after ``run``, is the energy over context idle that each slice caused: the truth, for tests.
    """

    def __init__(self, board: SimulatedGpu, slices: Sequence[Slice]) -> None:
        self.board: SimulatedGpu = board
        self.slices: Sequence[Slice] = list(slices)
        self.activity = ActivityRecorder([])
        self.caused_j = np.zeros(len(slices))
        self._devices = [SimulatedSlice(board, one.profile, one.uuid) for one in slices]
        self._loaded: dict[int, tuple[Schedule, float]] = {}  # with its least memory in bytes
        self._jitter = np.random.default_rng(len(slices))

    def load(self, slot: int, job: Job) -> int:
        """Count the job's operators and turn them into kernels for this slice."""
        self._loaded.pop(slot, None)
        try:
            settings = ProfileSettings(
                task=job.task, batch=job.batch, seq_len=job.seq_len, dtype=job.dtype, mode=job.mode
            )
            prepared = prepare(resolve(job.workload), self._devices[slot], settings)
        except JouletraceError as error:
            raise JobFailedError(reason_of(error), str(error)) from None
        needed = prepared.built.facts["least_memory_bytes"] + _CONTEXT_BYTES
        self._loaded[slot] = schedule_of(prepared.step), needed
        return prepared.built.items

    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Run jobs at once; each ends with the request during which the time is over."""
        loads: list[Iterations | None] = [None] * len(self.slices)
        for slot in slots:
            schedule = self._loaded[slot][0]
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
        return self._loaded[slot][1] if slot in self._loaded else None

    def unload(self) -> None:
        """End all jobs."""
        self._loaded.clear()
