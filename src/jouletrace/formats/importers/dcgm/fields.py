"""The fields of DCGM: which channel each is, and in what unit DCGM gives it."""

from __future__ import annotations

import re
from typing import NamedTuple


class Field(NamedTuple):
    """What a field is here.

    Attributes:
        channel: Name of the channel.
        unit: Printed unit, as ``units.unit`` knows it.
        board: Whether it is the whole board's even where it is given for a MIG instance.
    """

    channel: str
    unit: str
    board: bool = False


FIELDS: dict[str, Field] = {
    "DEV_POWER_USAGE": Field("power_w", "W", board=True),
    "DEV_POWER_USAGE_INSTANT": Field("power_instant_w", "W", board=True),
    "DEV_TOTAL_ENERGY_CONSUMPTION": Field("energy_counter_j", "mJ", board=True),
    "DEV_POWER_MGMT_LIMIT": Field("power_limit_w", "W", board=True),
    "DEV_ENFORCED_POWER_LIMIT": Field("power_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MIN": Field("power_min_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MAX": Field("power_max_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_DEF": Field("power_default_limit_w", "W", board=True),
    "DEV_GPU_TEMP": Field("temperature_c", "C", board=True),
    "DEV_MEMORY_TEMP": Field("temperature_memory_c", "C", board=True),
    "DEV_SM_CLOCK": Field("clock_sm_mhz", "MHz", board=True),
    "DEV_MEM_CLOCK": Field("clock_memory_mhz", "MHz", board=True),
    "DEV_GPU_UTIL": Field("utilization_gpu_pct", "%", board=True),
    "DEV_MEM_COPY_UTIL": Field("utilization_memory_pct", "%", board=True),
    "DEV_ENC_UTIL": Field("utilization_encoder_pct", "%", board=True),
    "DEV_DEC_UTIL": Field("utilization_decoder_pct", "%", board=True),
    "DEV_CLOCK_THROTTLE_REASONS": Field("throttle_bits", "", board=True),
    "DEV_FB_USED": Field("memory_used_bytes", "MiB"),
    "DEV_FB_FREE": Field("memory_free_bytes", "MiB"),
    "DEV_FB_TOTAL": Field("memory_total_bytes", "MiB"),
    "PROF_GR_ENGINE_ACTIVE": Field("graphics_active", ""),
    "PROF_SM_ACTIVE": Field("sm_active", ""),
    "PROF_SM_OCCUPANCY": Field("sm_occupancy", ""),
    "PROF_PIPE_TENSOR_ACTIVE": Field("pipe_tensor_active", ""),
    "PROF_PIPE_FP64_ACTIVE": Field("pipe_fp64_active", ""),
    "PROF_PIPE_FP32_ACTIVE": Field("pipe_fp32_active", ""),
    "PROF_PIPE_FP16_ACTIVE": Field("pipe_fp16_active", ""),
    "PROF_DRAM_ACTIVE": Field("memory_active", ""),
    "PROF_PCIE_TX_BYTES": Field("pcie_sent_bytes_per_s", "B/s", board=True),
    "PROF_PCIE_RX_BYTES": Field("pcie_received_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_TX_BYTES": Field("nvlink_sent_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_RX_BYTES": Field("nvlink_received_bytes_per_s", "B/s", board=True),
}
"""By name without its ``DCGM_FI_``; ratios lie between 0 and 1."""

_SHORT: dict[str, str] = {
    "POWER": "DEV_POWER_USAGE",
    "PMLMT": "DEV_POWER_MGMT_LIMIT",
    "PMMIN": "DEV_POWER_MGMT_LIMIT_MIN",
    "PMMAX": "DEV_POWER_MGMT_LIMIT_MAX",
    "PMDEF": "DEV_POWER_MGMT_LIMIT_DEF",
    "EPLMT": "DEV_ENFORCED_POWER_LIMIT",
    "PWINST": "DEV_POWER_USAGE_INSTANT",
    "TOTEC": "DEV_TOTAL_ENERGY_CONSUMPTION",
    "TMPTR": "DEV_GPU_TEMP",
    "MMTMP": "DEV_MEMORY_TEMP",
    "SMCLK": "DEV_SM_CLOCK",
    "MMCLK": "DEV_MEM_CLOCK",
    "GPUTL": "DEV_GPU_UTIL",
    "MCUTL": "DEV_MEM_COPY_UTIL",
    "ENCUTL": "DEV_ENC_UTIL",
    "DECUTL": "DEV_DEC_UTIL",
    "FBUSD": "DEV_FB_USED",
    "FBFRE": "DEV_FB_FREE",
    "FBTTL": "DEV_FB_TOTAL",
    "GRACT": "PROF_GR_ENGINE_ACTIVE",
    "SMACT": "PROF_SM_ACTIVE",
    "SMOCC": "PROF_SM_OCCUPANCY",
    "TENSO": "PROF_PIPE_TENSOR_ACTIVE",
    "FP64A": "PROF_PIPE_FP64_ACTIVE",
    "FP32A": "PROF_PIPE_FP32_ACTIVE",
    "FP16A": "PROF_PIPE_FP16_ACTIVE",
    "DRAMA": "PROF_DRAM_ACTIVE",
    "PCITX": "PROF_PCIE_TX_BYTES",
    "PCIRX": "PROF_PCIE_RX_BYTES",
    "NVLTX": "PROF_NVLINK_TX_BYTES",
    "NVLRX": "PROF_NVLINK_RX_BYTES",
}
"""What ``dcgmi dmon`` calls them in its header."""

_OLD = {"power_usage": "DEV_POWER_USAGE", "total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION"}


def field(name: str) -> Field:
    """A field by any of its names: ``DCGM_FI_DEV_...``, ``dcgm_...`` of old exporters, or dmon's short one.

    One that isn't in the table is a channel named after it.
    """
    upper = name.upper()
    key = _SHORT.get(upper, upper.removeprefix("DCGM_FI_").removeprefix("DCGM_"))
    for candidate in (key, f"DEV_{key}", f"PROF_{key}", _OLD.get(key.lower(), "")):
        if candidate in FIELDS:
            return FIELDS[candidate]
    return Field(re.sub(r"\W+", "_", key.lower()).strip("_") or "field", "")


def known(name: str) -> bool:
    """Whether it is the name of a field, one that is in no table here too."""
    return name.upper() in _SHORT or name.upper().startswith("DCGM_")
