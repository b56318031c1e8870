"""Iterations on the CPU, run sequentially in this thread."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BrokenOffError
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.trial import user_code
from jouletrace.workloads.base import Built


class CpuStep:
    """A workload called on the CPU.

    Attributes:
        mode: "cpu", or "compile" for a compiled workload.
    """

    def __init__(self, built: Built, mode: str = "cpu") -> None:
        self.mode = mode
        self._built = built
        self._next = 0

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        call, first = self._built.call, self._advance(n)
        with user_code(self._built, failure=BrokenOffError):
            start = time.time_ns()
            for i in range(first, first + n):
                call(i)
            return Interval(start, time.time_ns())

    def latencies(self, n: int) -> NDArray[np.float64]:
        """Seconds of each call by the monotonic clock, shape (n,); consecutive calls without time in between."""
        call, first = self._built.call, self._advance(n)
        stamps = np.empty(n + 1, dtype=np.int64)
        with user_code(self._built, failure=BrokenOffError):
            stamps[0] = time.perf_counter_ns()
            for i in range(n):
                call(first + i)
                stamps[i + 1] = time.perf_counter_ns()
        return np.diff(stamps) / 1e9

    def describe(self) -> dict[str, Any]:
        """Mode and threads."""
        import torch

        return {
            "mode": self.mode,
            "l2": "warm",
            "threads": torch.get_num_threads(),
            "latency": "wall time of each call",
            **self._built.facts.get("compile", {}),
        }

    def close(self) -> None:
        """Does nothing: the step owns no resources."""

    def _advance(self, n: int) -> int:
        """Number of the next iteration; input sets also rotate across calls."""
        first = self._next
        self._next += n
        return first
