"""The seam of every measurement on slices: something that runs jobs on them, one or several at once."""

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
    """A MIG instance to run on.

    Attributes:
        uuid: By which CUDA knows it.
        profile: Its kind.
        instance: Number of its GPU instance.
        board_slices: Compute slices of the whole GPU.
    """

    uuid: str
    profile: Profile
    instance: int
    board_slices: int = 7


@dataclass(frozen=True)
class Served:
    """What a slice did in a stretch of time.

    Attributes:
        latency_s: Of each request in turn, shape (n,).
        start_ns, end_ns: Of the first and last, since the Unix epoch.
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
    """Slices of one GPU with jobs on them.

    Attributes:
        board: The whole GPU, whose power is measured.
        slices: Its slices.
        activity: What is known of what the slices do.
    """

    board: Device
    slices: Sequence[Slice]
    activity: Activity

    @abstractmethod
    def load(self, slot: int, job: Job) -> int:
        """Make a job ready on a slice, in place of the one before; samples in a request.

        Raises:
            JobFailedError: If it can't be; the slice is free then.
        """

    @abstractmethod
    def run(self, slots: Sequence[int], seconds: float) -> list[Served]:
        """Let the jobs of these slices run at once for so long.

        Raises:
            JobFailedError: If one fails or its slice is gone.
        """

    @abstractmethod
    def memory_bytes(self, slot: int) -> float | None:
        """Device memory in use on a slice; None where nothing tells."""

    @abstractmethod
    def unload(self) -> None:
        """End all jobs; their memory is free when this returns."""

    def close(self) -> None:
        """End all jobs, ask for activity no more, and release the GPU."""
        self.unload()
        self.activity.stop()
        self.board.close()


def failed(error: JouletraceError) -> JobFailedError:
    """An error as a failed job, told by its text where nothing else tells."""
    if isinstance(error, JobFailedError):
        return error
    text = str(error)
    return JobFailedError("out_of_memory" if "out of memory" in text.lower() else "not_possible", text)
