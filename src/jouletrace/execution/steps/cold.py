"""Steps with a cold L2 cache: it is flushed before each iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.cuda.step import CudaStep
from jouletrace.execution.steps.cuda.timing import iteration_seconds

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
            NotPossibleError: If the size of the L2 cache is unknown.
        """
        import torch

        self.device = device
        self.l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        if self.l2_bytes <= 0:
            raise NotPossibleError(f"--l2 cold: the size of the L2 cache of {device} is unknown")
        self._buffer: torch.Tensor | None = torch.empty(
            _TIMES_L2 * self.l2_bytes // 4, dtype=torch.int32, device=device
        )

    def launch(self) -> None:
        """Write the whole buffer, which displaces the contents of the L2 cache."""
        assert self._buffer is not None, "closed"
        self._buffer.fill_(1)

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``."""
        return {**super().describe(), "flush_bytes": _TIMES_L2 * self.l2_bytes}

    def close(self) -> None:
        """Free the buffer."""
        self._buffer = None


class ColdStep(CudaStep):
    """A step with the L2 cache flushed before each iteration.

    The flush lies outside of the latencies' events but inside ``replay``: subtract its time and energy
    by means of as many iterations of ``flush_only``. The flush leaves modified lines in the cache, which
    an iteration's misses write back to memory: that is part of the cost of a cold start.
    """

    def __init__(self, inner: CudaStep) -> None:
        """Flush before each iteration of ``inner``, which this step owns from now on.

        Raises:
            NotPossibleError: If the size of the L2 cache is unknown.
        """
        self.mode = inner.mode
        self.device = inner.device
        self._inner = inner
        self._flush = FlushStep(inner.device)

    def launch(self) -> None:
        """Enqueue a flush and an iteration."""
        self._flush.launch()
        self._inner.launch()

    def latencies(self, n: int) -> NDArray[np.float64]:
        """See ``Step.latencies``: from the end of the flush to the end of the iteration.

        The host already launches the iteration while the device flushes; in eager mode this head start
        shortens the first wait of each iteration.
        """
        return iteration_seconds(self._inner.launch, n, self.device, before=self._flush.launch)

    def flush_only(self) -> FlushStep:
        """A step whose iterations consist of the flush alone; it closes with this one."""
        return self._flush

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``."""
        return {
            **self._inner.describe(),
            "l2": "cold",
            "flush_bytes": self._flush.describe()["flush_bytes"],
            "latency": "CUDA events, end of the flush to end of the iteration",
        }

    def close(self) -> None:
        """Free the buffer and the inner step."""
        self._flush.close()
        self._inner.close()
