"""Jobs on the slices of a real GPU: a process per slice, activity from GPM or dcgm-exporter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import numpy as np

from jouletrace.addons.mig.activity import Activity
from jouletrace.addons.mig.bench import Bench, JobFailedError, Served, Slice
from jouletrace.addons.mig.child import Child
from jouletrace.addons.mig.jobs import Job
from jouletrace.devices.base import Device

LOAD_S = 300.0
"""Longest time to build a job: CUDA starts, weights are made."""

ANSWER_S = 60.0
_HEAD_START_S = 0.05


class RealBench(Bench):
    """Slices of a real GPU.

    Args:
        board: The whole GPU.
        slices: Its slices.
        activity: Activity of the slices; started and stopped here.
        torch_device: Device of a worker. Only tests use another than "cuda:0", the slice that CUDA shows.
    """

    def __init__(
        self, board: Device, slices: Sequence[Slice], activity: Activity, torch_device: str = "cuda:0"
    ) -> None:
        self.board: Device = board
        self.slices: Sequence[Slice] = list(slices)
        self.activity = activity
        self._torch_device = torch_device
        self._children: dict[int, Child] = {}

    def load(self, slot: int, job: Job) -> int:
        """Prepare a job in a new process, so that no memory of another job is left on the slice."""
        self._end(slot)
        visible = self.slices[slot].uuid if self._torch_device.startswith("cuda") else None
        child = self._children[slot] = Child(f"{job} on {self.slices[slot].profile.name}", visible)
        order = {"do": "load", "job": asdict(job), "device": self._torch_device}
        try:
            return int(child.ask(order, LOAD_S)["items"])
        except JobFailedError:
            self._end(slot)
            raise

    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Run jobs at once, with a common start."""
        at_ns = time.time_ns() + round(_HEAD_START_S * 1e9)
        for slot in slots:
            self._children[slot].tell({"do": "run", "seconds": seconds, "at_ns": at_ns})
        served = []
        failure: JobFailedError | None = None
        for slot in slots:  # read every answer, or the next order would receive an old one
            try:
                answer = self._children[slot].receive(seconds + ANSWER_S)
                served.append(Served(np.array(answer["latency_s"]), int(answer["start_ns"]), int(answer["end_ns"])))
            except JobFailedError as error:
                self._end(slot)
                failure = failure or error
        if failure is not None:
            raise failure
        return served

    def memory_bytes(self, slot: int) -> float | None:
        """Memory in use on the slice, by the driver."""
        seen = self.activity.series(self.slices[slot].uuid, "memory_used_bytes")[1]
        if len(seen):
            return float(seen[-1])
        with suppress(JobFailedError):
            used = self._children[slot].ask({"do": "memory"}, ANSWER_S)["bytes"]
            return None if used is None else float(used)
        return None

    def unload(self) -> None:
        """End all jobs; their memory is free when this returns."""
        for slot in list(self._children):
            self._end(slot)

    def _end(self, slot: int) -> None:
        child = self._children.pop(slot, None)
        if child is not None:
            child.close()
