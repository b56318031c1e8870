"""The interface of every measurement on slices, which runs jobs on one slice or on several at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.mig.activity import Activity
from jouletrace.addons.mig.jobs import Job
from jouletrace.devices.base import Device
from jouletrace.devices.mig import Profile
from jouletrace.errors import JouletraceError, NotPossibleError


@dataclass(frozen=True)
class Slice:
    """A MIG instance on which jobs run.

    Attributes:
        uuid: Its name in CUDA.
        profile: Name of its profile.
        instance: Number of its GPU instance.
        board_slices: Compute slices of the whole GPU.
    """

    uuid: str
    profile: Profile
    instance: int
    board_slices: int = 7


@dataclass(frozen=True)
class Served:
    """The requests that a slice served in a segment.

    Attributes:
        latency_s: Latency of each request in order, shape (n,).
        start_ns, end_ns: Start of the first and end of the last, since the Unix epoch.
    """

    latency_s: NDArray[np.float64]
    start_ns: int
    end_ns: int


class JobFailedError(NotPossibleError):
    """A job could not be run on a slice.

    Attributes:
        reason: "out_of_memory", "vanished", "failed" or "not_possible".
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Bench(ABC):
    """Slices of one GPU that run jobs.

    Attributes:
        board: The whole GPU, whose power is measured.
        slices: Its slices.
        activity: Activity of the slices.
    """

    board: Device
    slices: Sequence[Slice]
    activity: Activity

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


def failed(error: JouletraceError) -> JobFailedError:
    """An error as a failed job, with the reason taken from its text if necessary."""
    if isinstance(error, JobFailedError):
        return error
    text = str(error)
    return JobFailedError("out_of_memory" if "out of memory" in text.lower() else "not_possible", text)
