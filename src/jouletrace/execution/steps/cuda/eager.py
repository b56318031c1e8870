"""Iterations launched by the host, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BrokenOffError
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.cuda.step import CudaStep
from jouletrace.execution.steps.trial import user_code
from jouletrace.workloads.base import Built

if TYPE_CHECKING:
    import torch


class CudaEagerStep(CudaStep):
    """A workload called on a GPU; the caller has run it once."""

    def __init__(self, built: Built, device: torch.device, mode: str = "eager") -> None:
        self.mode = mode
        self.device = device
        self._built = built
        self._next = 0

    def launch(self) -> None:
        """See ``CudaStep.launch``; input sets rotate."""
        self._built.call(self._next)
        self._next += 1

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        with user_code(self._built, failure=BrokenOffError):
            return super().replay(n)

    def latencies(self, n: int) -> NDArray[np.float64]:
        """See ``CudaStep.latencies``."""
        with user_code(self._built, failure=BrokenOffError):
            return super().latencies(n)

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; includes the compilation of a compiled workload."""
        return {**super().describe(), **self._built.facts.get("compile", {})}

    def close(self) -> None:
        """Does nothing: only the workload has memory on the device, and the step doesn't own it."""
