"""A step with a cold L2 cache: it is flushed before each iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.base import Cycles, Interval
from jouletrace.execution.steps.cuda.step import CudaStep
from jouletrace.workloads.memory import memory_guard

if TYPE_CHECKING:
    import torch

_TIMES_L2 = 2
"""Size of the flushing buffer in units of the L2 cache: at 1, the cache's hashing would spare some lines."""


class FlushStep(CudaStep):
    """The flush alone, as contained in a cold step's replay in addition to its iterations."""

    mode = "flush"

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer.

        Raises:
            NotPossibleError: If the size of the L2 cache is unknown, or memory runs out.
        """
        import torch

        self.device = device
        l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        if l2_bytes <= 0:
            raise NotPossibleError(f"--l2 cold: the size of the L2 cache of {device} is unknown")
        self.flush_bytes = _TIMES_L2 * l2_bytes
        with memory_guard("--l2 cold"):
            self._buffer: torch.Tensor | None = torch.empty(self.flush_bytes // 4, dtype=torch.int32, device=device)

    def launch(self) -> None:
        """Write the whole buffer, which displaces the contents of the L2 cache."""
        assert self._buffer is not None, "closed"
        self._buffer.fill_(1)

    def close(self) -> None:
        """Free the buffer."""
        self._buffer = None


class ColdStep:
    """A step with the L2 cache flushed before each iteration (a ``FlushedStep``).

    The flush lies outside of the latencies' events but inside ``replay``: subtract its time and energy
    by means of as many iterations of ``flush_only``. The flush leaves modified lines in the cache, which
    an iteration's misses write back to memory: that is part of the cost of a cold start.
    """

    def __init__(self, inner: CudaStep) -> None:
        """Flush before each iteration of ``inner``, which this step owns from now on.

        Raises:
            NotPossibleError: As ``FlushStep``.
        """
        self.mode = inner.mode
        self._inner = inner
        self._flush = FlushStep(inner.device)

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``; the flushes are included."""
        return self._inner.replay(n, before=self._flush.launch)

    def latencies(self, n: int) -> NDArray[np.float64]:
        """See ``Step.latencies``: from the end of the flush to the end of the iteration.

        The host already launches the iteration while the device flushes; in eager mode this head start
        shortens the first wait of each iteration.
        """
        return self._inner.latencies(n, before=self._flush.launch)

    def flush_only(self) -> FlushStep:
        """A step whose iterations consist of the flush alone; it closes with this one."""
        return self._flush

    def cycles(self) -> Cycles | None:
        """See ``CountsCycles``."""
        return self._inner.cycles()

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``."""
        return {
            **self._inner.describe(),
            "l2": "cold",
            "flush_bytes": self._flush.flush_bytes,
            "latency": "CUDA events, end of the flush to end of the iteration",
        }

    def close(self) -> None:
        """Free the buffer and the inner step."""
        self._flush.close()
        self._inner.close()
