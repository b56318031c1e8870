"""Numbers of NVML that we state are those of NVIDIA's own Python module."""

import pynvml

from jouletrace.devices.nvml import METRICS
from jouletrace.run.channels import THROTTLE_REASONS


def test_reasons_of_low_clocks_have_the_bits_of_nvml():
    names = {
        "gpu_idle": "GpuIdle",
        "applications_clocks": "ApplicationsClocksSetting",
        "sw_power_cap": "SwPowerCap",
        "hw_slowdown": "HwSlowdown",
        "sync_boost": "SyncBoost",
        "sw_thermal": "SwThermalSlowdown",
        "hw_thermal": "HwThermalSlowdown",
        "hw_power_brake": "HwPowerBrakeSlowdown",
        "display_clocks": "DisplayClockSetting",
    }
    bits = {getattr(pynvml, f"nvmlClocksThrottleReason{theirs}"): ours for ours, theirs in names.items()}
    assert bits == THROTTLE_REASONS


def test_counters_of_a_gpu_have_the_numbers_of_nvml():
    names = {
        "graphics_active": "GRAPHICS_UTIL",
        "sm_active": "SM_UTIL",
        "sm_occupancy": "SM_OCCUPANCY",
        "pipe_tensor_active": "ANY_TENSOR_UTIL",
        "pipe_fp64_active": "FP64_UTIL",
        "pipe_fp32_active": "FP32_UTIL",
        "pipe_fp16_active": "FP16_UTIL",
        "memory_active": "DRAM_BW_UTIL",
        "pcie_sent_bytes_per_s": "PCIE_TX_PER_SEC",
        "pcie_received_bytes_per_s": "PCIE_RX_PER_SEC",
    }
    numbers = {getattr(pynvml, f"NVML_GPM_METRIC_{theirs}"): ours for ours, theirs in names.items()}
    assert {number: channel for number, (channel, _) in METRICS.items()} == numbers
