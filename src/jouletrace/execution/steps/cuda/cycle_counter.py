"""Reads the cycle counters of all SMs with a kernel of a few instructions.

The kernel is written in PTX, which the driver compiles, so no build step is needed.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

import numpy as np

from jouletrace.execution.steps.cycles import Cycles

if TYPE_CHECKING:
    import torch

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
