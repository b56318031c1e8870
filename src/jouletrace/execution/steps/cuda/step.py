"""Common parts of every step on a GPU: it enqueues iterations, and is timed in one way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.cuda.cycle_counter import cycle_counter
from jouletrace.execution.steps.cuda.timing import iteration_seconds, timed_replay
from jouletrace.execution.steps.cycles import Cycles
from jouletrace.workloads.base import Built

if TYPE_CHECKING:
    import torch


class CudaStep(ABC):
    """A step on one GPU.

    Attributes:
        mode: "eager", "graph" or "compile".
        device: The GPU, with its index.
    """

    mode: str
    device: torch.device

    @abstractmethod
    def launch(self) -> None:
        """Enqueue the next iteration on the current stream, and return without waiting."""

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        return timed_replay(self.launch, n, self.device)

    def latencies(self, n: int) -> NDArray[np.float64]:
        """See ``Step.latencies`` and ``cuda_timing.iteration_seconds``."""
        return iteration_seconds(self.launch, n, self.device)

    def cycles(self) -> Cycles | None:
        """See ``CountsCycles``."""
        counter = cycle_counter(self.device)
        with suppress(OSError):
            return counter.read() if counter else None
        return None

    def describe(self) -> dict[str, Any]:
        """The mode, and the definition of the latencies."""
        return {
            "mode": self.mode,
            "l2": "warm",
            "latency": "CUDA events, end of an iteration to end of the next; waits for the host included",
        }

    @abstractmethod
    def close(self) -> None:
        """Free its memory on the device."""


def check_tf32(built: Built, device: torch.device) -> None:
    """Refuse TF32 where the GPU would silently compute in IEEE single precision.

    Raises:
        NotPossibleError: If the GPU is older than Ampere.
    """
    import torch

    if built.facts.get("dtype") == "tf32" and torch.cuda.get_device_capability(device) < (8, 0):
        raise NotPossibleError(
            f"--dtype tf32: {torch.cuda.get_device_name(device)} has no TF32, which needs Ampere or later"
        )
