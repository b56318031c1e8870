"""Steps on an NVIDIA GPU: they enqueue iterations, and are timed in one way. With a cold L2 cache, each is flushed."""

from __future__ import annotations

import ctypes
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.errors import BrokenOffError, NotPossibleError
from jouletrace.execution.steps.base import Cycles, Interval
from jouletrace.execution.steps.trial import user_code
from jouletrace.workloads.base import Built
from jouletrace.workloads.user_code import memory_guard

if TYPE_CHECKING:
    import torch

Launch = Callable[[], None]
"""Enqueues work, such as an iteration, and returns without waiting."""

AHEAD = 256
"""Most iterations that the host enqueues ahead of the device while latencies are taken."""


class CudaStep(ABC):
    """A step on one GPU.

    Attributes:
        mode: "eager", "graph", "compile" or "flush".
        device: The GPU, with its index.
    """

    mode: str
    device: torch.device

    @abstractmethod
    def launch(self) -> None:
        """Enqueue the next iteration on the current stream, and return without waiting."""

    def replay(self, n: int, before: Launch | None = None) -> Interval:
        """See ``Step.replay``; ``before`` is enqueued ahead of each iteration, inside the interval."""
        import torch

        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            start = time.time_ns()
            for _ in range(n):
                if before is not None:
                    before()
                self.launch()
            torch.cuda.synchronize()
            return Interval(start, time.time_ns())

    def latencies(self, n: int, before: Launch | None = None) -> Floats:
        """Seconds of each of ``n`` iterations by CUDA events, shape (n,); one more runs first, untimed.

        Events lie on the device's timeline. Without ``before``, the event that ends an iteration also starts
        the next, so that no time is lost in between and the latencies add up to the whole. Where the
        device waits for the host (eager mode at small batch), the wait belongs to the iteration whose
        kernels it waited for, and the latency is the end-to-end time of a caller. Where the host is
        ahead, it is the device's own time.

        Args:
            n: Number of timed iterations.
            before: Enqueues untimed work ahead of each iteration (a flush); each iteration then has its own start
                event, after that work.
        """
        import torch

        with torch.cuda.device(self.device):
            event: Any = torch.cuda.Event  # untyped
            events = [event(enable_timing=True) for _ in range(n + 1)]
            starts = events[:-1] if before is None else [event(enable_timing=True) for _ in range(n)]
            torch.cuda.synchronize()
            self.launch()
            events[0].record()
            for i in range(1, n + 1):
                if before is not None:
                    before()
                    starts[i - 1].record()
                self.launch()
                events[i].record()
                # Queried rarely, and half a queue behind, so that the device never runs out of work.
                if i > AHEAD and i % (AHEAD // 2) == 1:
                    events[i - AHEAD // 2].synchronize()
            torch.cuda.synchronize()
            milliseconds = [start.elapsed_time(end) for start, end in zip(starts, events[1:], strict=True)]
        return np.array(milliseconds, dtype=np.float64) / 1e3

    def cycles(self) -> Cycles | None:
        """See ``CountsCycles``."""
        counter = _cycle_counter(self.device)
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

    def replay(self, n: int, before: Launch | None = None) -> Interval:
        """See ``CudaStep.replay``."""
        with user_code(self._built, failure=BrokenOffError):
            return super().replay(n, before)

    def latencies(self, n: int, before: Launch | None = None) -> Floats:
        """See ``CudaStep.latencies``."""
        with user_code(self._built, failure=BrokenOffError):
            return super().latencies(n, before)

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; includes the compilation of a compiled workload."""
        return {**super().describe(), **self._built.facts.get("compile", {})}

    def close(self) -> None:
        """Does nothing: only the workload has memory on the device, and the step doesn't own it."""


_TIMES_L2 = 2
"""Size of the flushing buffer in units of the L2 cache: at 1, the cache's hashing would spare some lines."""


class FlushStep(CudaStep):
    """The flush alone, as contained in a cold step's replay in addition to its iterations.

    Raises:
        NotPossibleError: If the size of the L2 cache is unknown, or memory runs out.
    """

    mode = "flush"

    def __init__(self, device: torch.device) -> None:
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

    Args:
        inner: The step, which this one owns from now on.

    Raises:
        NotPossibleError: As ``FlushStep``.
    """

    def __init__(self, inner: CudaStep) -> None:
        self.mode = inner.mode
        self._inner = inner
        self._flush = FlushStep(inner.device)

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``; the flushes are included."""
        return self._inner.replay(n, before=self._flush.launch)

    def latencies(self, n: int) -> Floats:
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


_PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry read_cycles(.param .u64 rows)
{
    .reg .b64 %row, %at, %time, %count, %sm;
    .reg .b32 %block, %number;
    ld.param.u64 %row, [rows];
    cvta.to.global.u64 %row, %row;
    mov.u32 %block, %ctaid.x;
    mul.wide.u32 %at, %block, 24;
    add.s64 %row, %row, %at;
    mov.u32 %number, %smid;
    cvt.u64.u32 %sm, %number;
    mov.u64 %time, %globaltimer;
    mov.u64 %count, %clock64;
    st.global.u64 [%row], %sm;
    st.global.u64 [%row+8], %count;
    st.global.u64 [%row+16], %time;
    ret;
}
\0"""

_BLOCKS_PER_SM = 4
"""Blocks go to any free SM: with only as many blocks as SMs, one SM may be left out."""


class _CycleCounter:
    """The kernel that reads the SMs' cycle counters, loaded on one GPU.

    Raises:
        OSError: If the driver is missing or can't load the kernel.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._blocks = _BLOCKS_PER_SM * int(torch.cuda.get_device_properties(device).multi_processor_count)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            self._call("cuModuleLoadData", ctypes.byref(self._module), _PTX)
            self._call("cuModuleGetFunction", ctypes.byref(self._kernel), self._module, b"read_cycles")
            self._rows = torch.zeros((self._blocks, 3), dtype=torch.int64, device=device)

    def read(self) -> Cycles:
        """Wait for the GPU, then read the counters; this takes about 50 µs more.

        Raises:
            OSError: If the driver can't run the kernel.
        """
        import torch

        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            rows = ctypes.c_uint64(self._rows.data_ptr())
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(rows))
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            launch = (self._blocks, 1, 1, 32, 1, 1, 0)  # grid, block, shared memory
            self._call("cuLaunchKernel", self._kernel, *launch, stream, arguments, None)
            values = self._rows.cpu().numpy()
        sm, first = np.unique(values[:, 0], return_index=True)
        return Cycles(sm, values[first, 1].copy(), values[first, 2].copy())

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise OSError(f"{name} says {code}")


@functools.cache
def _cycle_counter(device: torch.device) -> _CycleCounter | None:
    """The counter of a GPU, created on first use; None where it can't be created."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return _CycleCounter(device)
    except (OSError, AttributeError, RuntimeError):  # torch has no specific error for unsupported calls
        return None
