"""From floating-point operations and bytes to a kernel's time and power on a simulated GPU.

The roofline model (Williams, Waterman, Patterson 2009): a kernel takes as long as the slower of
its arithmetic and its memory traffic, each at the share of the peak that real kernels reach, and
at least the shortest time of a kernel. Its energy over idle is the sum of the energies of its
operations, of its bytes, and of a busy GPU for its time.
"""

from __future__ import annotations

from jouletrace.errors import BadInputError
from jouletrace.simulator.boards.kernels import SimKernel
from jouletrace.simulator.boards.parameters import Parameters
from jouletrace.simulator.boards.presets import Preset

_PRODUCT_FLOOR = 1.45
_MEMORY_CLOCKED = 0.25
_FLOOR_CLOCKED = 0.7
_CACHE_SPEEDUP = 2.5
_CACHE_ENERGY = 0.6
# power of busy pipes by dtype, relative to that of half precision
_PIPE = {"fp16": 1.0, "bf16": 1.0, "tf32": 0.9, "fp32": 0.6, "fp64": 0.8}


class Roofline:
    """Kernels on one GPU.

    Args:
        preset: Its peaks and cache.
        parameters: Shares of the peaks that its kernels reach, and their power.
    """

    def __init__(self, preset: Preset, parameters: Parameters) -> None:
        self._preset = preset
        self._p = parameters

    def kernel(
        self,
        name: str,
        flops: float = 0.0,
        bytes_moved: float = 0.0,
        dtype: str = "fp16",
        *,
        op: str = "",
        shapes: str = "",
        module: str = "",
        call: str = "",
        host_calls: int = 1,
        backward: bool = False,
    ) -> SimKernel:
        """A kernel with given operations and traffic.

        Args:
            name: Name of the kernel.
            flops: Floating-point operations of products; others hardly matter.
            bytes_moved: Bytes read and written.
            dtype: "fp16", "bf16", "tf32", "fp32" or "fp64": selects the pipes.
            op: Operator. The remaining arguments are those of ``SimKernel``.
            shapes: Input shapes.
            module: Module.
            call: Number of the module's call.
            host_calls: Operators that the host calls to launch it.
            backward: Whether autograd launches it.

        Raises:
            BadInputError: If the GPU has no pipes for the dtype.
        """
        p, preset = self._p, self._preset
        if dtype not in preset.peak_flops:
            raise BadInputError(
                f"simulated {preset.name}: no pipes for dtype {dtype!r}; there are: {', '.join(preset.peak_flops)}"
            )
        floor = p.kernel_floor_s * (_PRODUCT_FLOOR if flops > 0 else 1.0)
        compute = flops / (preset.peak_flops[dtype] * p.pipe_efficiency)
        memory = bytes_moved / (preset.bytes_per_s * p.memory_efficiency)
        time = floor + max(compute, memory)
        clocked = floor * _FLOOR_CLOCKED + (compute if compute >= memory else memory * _MEMORY_CLOCKED)
        pipes_j = preset.cap_w * p.pipe_share * _PIPE[dtype] * flops / preset.peak_flops[dtype] / p.pipe_efficiency
        memory_j = preset.cap_w * p.memory_share * memory
        busy_j = preset.cap_w * p.busy_share * time
        active = pipes_j + memory_j + busy_j
        # in an immediate repetition the data still in the cache take less energy, and less time where
        # memory was the limit
        cached = max(0.0, 1 - bytes_moved / preset.l2_bytes)
        warm_memory = memory * (1 - cached + cached / _CACHE_SPEEDUP)
        warm_time = floor + max(compute, warm_memory)
        warm_j = pipes_j + memory_j * (1 - cached + cached * _CACHE_ENERGY) + busy_j * warm_time / time
        repeat = (warm_time / time + warm_j / active) / 2
        return SimKernel(
            name,
            time,
            active / time,
            op=op,
            shapes=shapes,
            module=module,
            call=call,
            clocked=clocked / time,
            core=1 - 0.7 * memory_j / active,
            repeat=min(repeat, 1.0),
            flops=flops,
            bytes_moved=bytes_moved,
            host_calls=host_calls,
            backward=backward,
        )
