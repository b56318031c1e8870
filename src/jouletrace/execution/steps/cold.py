"""Steps that find the L2 cache cold: it is flushed before each iteration."""

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
"""Size of the flushing buffer in L2 caches: at one, the cache's hashing would spare some lines."""


class FlushStep(CudaStep):
    """Nothing but the flush: what a cold step's replay holds besides its iterations."""

    mode = "flush"

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer that is written to.

        Raises:
            NotPossibleError: If the size of the L2 cache isn't known.
        """
        import torch

        self.device = device
        self.l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        if self.l2_bytes <= 0:
            raise NotPossibleError(f"--l2 cold: the size of the L2 cache of {device} isn't known")
        self._buffer: torch.Tensor | None = torch.empty(
            _TIMES_L2 * self.l2_bytes // 4, dtype=torch.int32, device=device
        )

    def launch(self) -> None:
        """Write the whole buffer, which displaces all that the L2 cache held."""
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

    The flush lies outside of the latencies' events but inside ``replay``: take its time and energy
    off by the difference to as many iterations of ``flush_only``. The flush leaves written lines
    behind, which an iteration's misses push out to memory: part of the price of starting cold.
    """

    def __init__(self, inner: CudaStep) -> None:
        """Flush before each iteration of ``inner``, which belongs to this step from here on.

        Raises:
            NotPossibleError: If the size of the L2 cache isn't known.
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

        While the device flushes, the host is already launching: in eager mode the head start
        shortens the first wait of each iteration.
        """
        return iteration_seconds(self._inner.launch, n, self.device, before=self._flush.launch)

    def flush_only(self) -> FlushStep:
        """A step whose iterations are the flushes alone; it closes with this one."""
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
