"""Common parts of every step on a GPU: it enqueues iterations, and is timed in one way."""

from __future__ import annotations

import ctypes
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BrokenOffError, NotPossibleError
from jouletrace.execution.steps.base import Cycles, Interval
from jouletrace.execution.steps.trial import user_code
from jouletrace.workloads.base import Built

if TYPE_CHECKING:
    import torch

Launch = Callable[[], None]
"""Enqueues work, such as an iteration, and returns without waiting."""


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
        return timed_replay(self.launch, n, self.device, before)

    def latencies(self, n: int, before: Launch | None = None) -> NDArray[np.float64]:
        """See ``Step.latencies`` and ``iteration_seconds``."""
        return iteration_seconds(self.launch, n, self.device, before)

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


AHEAD = 256
"""Most iterations that the host enqueues ahead of the device while latencies are taken."""


def timed_replay(launch: Launch, n: int, device: torch.device, before: Launch | None = None) -> Interval:
    """Enqueue ``n`` iterations between two synchronisations, without any other work than ``before`` each of them."""
    import torch

    with torch.cuda.device(device):
        torch.cuda.synchronize()
        start = time.time_ns()
        for _ in range(n):
            if before is not None:
                before()
            launch()
        torch.cuda.synchronize()
        return Interval(start, time.time_ns())


def iteration_seconds(
    launch: Launch, n: int, device: torch.device, before: Launch | None = None
) -> NDArray[np.float64]:
    """Seconds of each of ``n`` iterations by CUDA events, shape (n,).

    Events lie on the device's timeline. Without ``before``, the event that ends an iteration also starts
    the next, so that no time is lost in between and the latencies add up to the whole. Where the
    device waits for the host (eager mode at small batch), the wait belongs to the iteration whose
    kernels it waited for, and the latency is the end-to-end time of a caller. Where the host is
    ahead, it is the device's own time.

    Args:
        launch: Enqueues one iteration.
        n: Number of timed iterations. One more runs first, untimed, so that the first has a predecessor too.
        device: The GPU.
        before: Enqueues untimed work ahead of each iteration (a flush); each iteration then has its own start
            event, after that work.
    """
    import torch

    with torch.cuda.device(device):
        event: Any = torch.cuda.Event  # untyped
        events = [event(enable_timing=True) for _ in range(n + 1)]
        starts = events[:-1] if before is None else [event(enable_timing=True) for _ in range(n)]
        torch.cuda.synchronize()
        launch()
        events[0].record()
        for i in range(1, n + 1):
            if before is not None:
                before()
                starts[i - 1].record()
            launch()
            events[i].record()
            # Queried rarely, and half a queue behind, so that the device never runs out of work.
            if i > AHEAD and i % (AHEAD // 2) == 1:
                events[i - AHEAD // 2].synchronize()
        torch.cuda.synchronize()
        milliseconds = [start.elapsed_time(end) for start, end in zip(starts, events[1:], strict=True)]
    return np.array(milliseconds, dtype=np.float64) / 1e3


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


class CycleCounter:
    """The kernel, loaded on one GPU.

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
            found = self._rows.cpu().numpy()
        sm, first = np.unique(found[:, 0], return_index=True)
        return Cycles(sm, found[first, 1].copy(), found[first, 2].copy())

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise OSError(f"{name} says {code}")


@functools.cache
def cycle_counter(device: torch.device) -> CycleCounter | None:
    """The counter of a GPU, created on first use; None where it can't be created."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return CycleCounter(device)
    except (OSError, AttributeError, RuntimeError):  # torch has no specific error for unsupported calls
        return None


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

    def latencies(self, n: int, before: Launch | None = None) -> NDArray[np.float64]:
        """See ``CudaStep.latencies``."""
        with user_code(self._built, failure=BrokenOffError):
            return super().latencies(n, before)

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; includes the compilation of a compiled workload."""
        return {**super().describe(), **self._built.facts.get("compile", {})}

    def close(self) -> None:
        """Does nothing: only the workload has memory on the device, and the step doesn't own it."""
