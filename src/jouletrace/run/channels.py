"""The channel names of the ``samples`` table, with their units: one vocabulary for every vendor."""

from __future__ import annotations

from jouletrace.run.metrics import ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER

POWER = "power_w"
"""The best power record of the device, from which energy is computed."""

ENERGY_COUNTER = "energy_counter_j"
"""The energy that the device has counted itself: a witness of the power record, and the figure where it is alone."""

HOST = {
    "energy_counter_cpu_j": ENERGY_CPU,
    "energy_counter_memory_j": ENERGY_MEMORY,
    "power_server_w": ENERGY_SERVER,
}
"""Channels of a host that is recorded beside GPUs: its CPU packages, its memory, and all of it by its power meter; and
the metric of the energy of each. Their device is none of the Run's, so that they are in no figure of GPUs."""

WORK, WORK_RESETS, WORK_READ = "work_done", "work_resets", "work_read_s"
"""A counter of real work that was read along with the record: stored under the Run's first device, though all devices
do the work."""

SERVER_RUNNING, SERVER_WAITING, SERVER_CACHE = "server_running", "server_waiting", "server_cache_used"
"""Figures that a server under load says of itself, stored under the Run's first device."""

MOST_WORK = 1e21
"""Largest plausible value of a work counter; a larger value isn't a count."""

GAIN_PCT = 5.0
"""Proportional gain error of a GPU's power sensor by published work, in percent; software can't detect it."""

CHANNEL_UNITS: dict[str, tuple[str, str]] = {
    POWER: ("W", "board power, the best record that the device provides"),
    "power_average_w": ("W", "board power, averaged by the sensor over a long window (often 1 s)"),
    "power_instant_w": ("W", "board power, averaged over a short window at intervals"),
    "power_memory_w": ("W", "power of the memory"),
    ENERGY_COUNTER: ("J", "energy since an arbitrary start, updated in steps"),
    "clock_sm_mhz": ("MHz", "clock of the streaming multiprocessors (of the cores, on a CPU)"),
    "clock_memory_mhz": ("MHz", "clock of the memory"),
    "temperature_c": ("Cel", "temperature of the die"),
    "temperature_memory_c": ("Cel", "temperature of the memory"),
    "throttle_bits": ("1", "why the clocks are reduced; see THROTTLE_REASONS"),
    "memory_used_bytes": ("B", "device memory in use, by all processes"),
    "utilization_gpu_pct": ("%", "share of time in which any kernel ran, as the driver reports"),
    "utilization_memory_pct": ("%", "share of time in which memory was read or written"),
    "pstate": ("1", "performance state, 0 the highest"),
    "graphics_active": ("1", "share of time in which the graphics or compute engine was active"),
    "sm_active": ("1", "share of time in which an SM had a warp, over all SMs"),
    "sm_occupancy": ("1", "warps on the SMs, as a share of the maximum"),
    "pipe_tensor_active": ("1", "share of time in which the tensor pipes were active"),
    "pipe_fp64_active": ("1", "share of time in which the FP64 pipes were active"),
    "pipe_fp32_active": ("1", "share of time in which the FP32 pipes were active"),
    "pipe_fp16_active": ("1", "share of time in which the FP16 pipes were active"),
    "memory_active": ("1", "share of time in which the device memory was read or written"),
    "pcie_sent_bytes_per_s": ("B/s", "bytes sent over PCIe"),
    "pcie_received_bytes_per_s": ("B/s", "bytes received over PCIe"),
    "nvlink_sent_bytes_per_s": ("B/s", "bytes sent over NVLink"),
    "nvlink_received_bytes_per_s": ("B/s", "bytes received over NVLink"),
    "energy_counter_cpu_j": ("J", "counter of the host's CPU packages"),
    "energy_counter_memory_j": ("J", "counter of the host's memory"),
    "power_server_w": ("W", "the whole host, by its power meter"),
    WORK: ("1", "units of work counted since the first reading, across resets of the counter"),
    WORK_RESETS: ("1", "how often the counter of work was observed to restart"),
    WORK_READ: ("s", "how long reading the counter took; the stamp is its midpoint"),
    SERVER_RUNNING: ("1", "requests that a server works on, as it reports"),
    SERVER_WAITING: ("1", "requests that wait in a server, as it reports"),
    SERVER_CACHE: ("1", "share of a server's key-value cache in use, as it reports"),
}

THROTTLE_REASONS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""Bits of ``throttle_bits``, numbered like NVML's clocksEventReasons."""
