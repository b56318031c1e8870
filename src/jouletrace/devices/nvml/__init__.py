"""NVIDIA GPUs through NVML: the only package that imports pynvml."""

from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.nvml.mig import NvmlMig

__all__ = ["Nvml", "NvmlGpu", "NvmlMig"]
