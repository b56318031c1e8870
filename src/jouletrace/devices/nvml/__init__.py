"""NVIDIA GPUs through NVML: the only package that imports pynvml."""

from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.nvml.mig import NvmlMig
from jouletrace.public import public_names

__all__ = ["Nvml", "NvmlGpu", "NvmlMig"]

__getattr__ = public_names(
    __name__,
    {
        "api": "Unavailable",
        "gpm": "GpmSource METRICS",
    },
)
