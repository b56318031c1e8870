"""The fields of DCGM: the channel of each, and DCGM's unit."""

from __future__ import annotations

import re
from typing import NamedTuple


class Field(NamedTuple):
    """The meaning of a field.

    Attributes:
        short: Name in the header of ``dcgmi dmon``; "" if unknown.
        channel: Name of the channel.
        unit: Printed unit, as known to ``units.unit``.
        board: Whether it belongs to the whole GPU even where it is listed for a MIG instance.
    """

    short: str
    channel: str
    unit: str
    board: bool = False


FIELDS: dict[str, Field] = {
    "DEV_POWER_USAGE": Field("POWER", "power_w", "W", board=True),
    "DEV_POWER_USAGE_INSTANT": Field("PWINST", "power_instant_w", "W", board=True),
    "DEV_TOTAL_ENERGY_CONSUMPTION": Field("TOTEC", "energy_counter_j", "mJ", board=True),
    "DEV_POWER_MGMT_LIMIT": Field("PMLMT", "power_limit_w", "W", board=True),
    "DEV_ENFORCED_POWER_LIMIT": Field("EPLMT", "power_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MIN": Field("PMMIN", "power_min_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MAX": Field("PMMAX", "power_max_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_DEF": Field("PMDEF", "power_default_limit_w", "W", board=True),
    "DEV_GPU_TEMP": Field("TMPTR", "temperature_c", "C", board=True),
    "DEV_MEMORY_TEMP": Field("MMTMP", "temperature_memory_c", "C", board=True),
    "DEV_SM_CLOCK": Field("SMCLK", "clock_sm_mhz", "MHz", board=True),
    "DEV_MEM_CLOCK": Field("MMCLK", "clock_memory_mhz", "MHz", board=True),
    "DEV_GPU_UTIL": Field("GPUTL", "utilization_gpu_pct", "%", board=True),
    "DEV_MEM_COPY_UTIL": Field("MCUTL", "utilization_memory_pct", "%", board=True),
    "DEV_ENC_UTIL": Field("ENCUTL", "utilization_encoder_pct", "%", board=True),
    "DEV_DEC_UTIL": Field("DECUTL", "utilization_decoder_pct", "%", board=True),
    "DEV_CLOCK_THROTTLE_REASONS": Field("", "throttle_bits", "", board=True),
    "DEV_FB_USED": Field("FBUSD", "memory_used_bytes", "MiB"),
    "DEV_FB_FREE": Field("FBFRE", "memory_free_bytes", "MiB"),
    "DEV_FB_TOTAL": Field("FBTTL", "memory_total_bytes", "MiB"),
    "PROF_GR_ENGINE_ACTIVE": Field("GRACT", "graphics_active", ""),
    "PROF_SM_ACTIVE": Field("SMACT", "sm_active", ""),
    "PROF_SM_OCCUPANCY": Field("SMOCC", "sm_occupancy", ""),
    "PROF_PIPE_TENSOR_ACTIVE": Field("TENSO", "pipe_tensor_active", ""),
    "PROF_PIPE_FP64_ACTIVE": Field("FP64A", "pipe_fp64_active", ""),
    "PROF_PIPE_FP32_ACTIVE": Field("FP32A", "pipe_fp32_active", ""),
    "PROF_PIPE_FP16_ACTIVE": Field("FP16A", "pipe_fp16_active", ""),
    "PROF_DRAM_ACTIVE": Field("DRAMA", "memory_active", ""),
    "PROF_PCIE_TX_BYTES": Field("PCITX", "pcie_sent_bytes_per_s", "B/s", board=True),
    "PROF_PCIE_RX_BYTES": Field("PCIRX", "pcie_received_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_TX_BYTES": Field("NVLTX", "nvlink_sent_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_RX_BYTES": Field("NVLRX", "nvlink_received_bytes_per_s", "B/s", board=True),
}
"""Fields by name without ``DCGM_FI_``; ratios lie between 0 and 1."""

_SHORT = {one.short: name for name, one in FIELDS.items() if one.short}
_OLD = {"power_usage": "DEV_POWER_USAGE", "total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION"}


def field(name: str) -> Field:
    """A field by any of its names: ``DCGM_FI_DEV_...``, ``dcgm_...`` of old exporters, or dmon's short name.

    A field outside the table becomes a channel with the field's name.
    """
    upper = name.upper()
    key = _SHORT.get(upper, upper.removeprefix("DCGM_FI_").removeprefix("DCGM_"))
    for candidate in (key, f"DEV_{key}", f"PROF_{key}", _OLD.get(key.lower(), "")):
        if candidate in FIELDS:
            return FIELDS[candidate]
    return Field("", re.sub(r"\W+", "_", key.lower()).strip("_") or "field", "")


def known(name: str) -> bool:
    """Whether it is the name of a field, including fields outside the table."""
    return name.upper() in _SHORT or name.upper().startswith("DCGM_")
