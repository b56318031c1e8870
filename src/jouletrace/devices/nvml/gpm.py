"""Activity of a GPU or MIG instance by its GPM counters (Hopper and later), which need no root.

GPM compares two samples and reports shares of the time between them. Samples less than 100 ms apart give zero or
no value, so a source keeps its last sample and compares it with the next.
"""

from __future__ import annotations

import math
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from jouletrace.devices.base import Clock, Samples, one_sample
from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS

INTERVAL_S = 0.2
LEAST_S = 0.1

METRICS: dict[int, tuple[str, float]] = {
    1: ("graphics_active", 1e-2),
    2: ("sm_active", 1e-2),
    3: ("sm_occupancy", 1e-2),
    5: ("pipe_tensor_active", 1e-2),
    11: ("pipe_fp64_active", 1e-2),
    12: ("pipe_fp32_active", 1e-2),
    13: ("pipe_fp16_active", 1e-2),
    10: ("memory_active", 1e-2),
    20: ("pcie_sent_bytes_per_s", float(1 << 20)),
    21: ("pcie_received_bytes_per_s", float(1 << 20)),
}
"""Number of a metric, its channel, and the factor for its value (per cent, MiB/s)."""

_CALL = "nvmlGpmMetricsGet"


def gpm_sources(
    nvml: Nvml, board: Any, device: str, clock: Clock, instance: int | None = None, memory: Any = None
) -> list[GpmSource]:
    """A list with the ``GpmSource`` of these arguments; empty where GPM counters are missing or refused."""
    try:
        return [GpmSource(nvml, board, device, clock, instance, memory)]
    except Unavailable:
        return []


class GpmSource:
    """Activity between one poll and the next; implements ``devices.base.Source``.

    Args:
        nvml: The library.
        board: Handle of the GPU.
        device: Id of the GPU or instance, for the channels.
        clock: Source of the stamps.
        instance: Number of the GPU instance; None for the whole GPU.
        memory: Handle of the MIG device whose memory in use is read as well; None to omit that.

    Raises:
        Unavailable: If the GPU has no GPM counters.
    """

    interval_s = INTERVAL_S

    def __init__(
        self, nvml: Nvml, board: Any, device: str, clock: Clock, instance: int | None = None, memory: Any = None
    ) -> None:
        self._nvml = nvml
        self._board = board
        self._clock = clock
        self._instance = instance
        self._memory = memory
        if not nvml.call("nvmlGpmQueryDeviceSupport", board).isSupportedDevice:
            raise Unavailable("GPM counters exist from Hopper on")
        self._request = nvml.constant("c_nvmlGpmMetricsGet_t")
        if self._request is None:
            raise Unavailable("nvidia-ml-py is too old for it (no c_nvmlGpmMetricsGet_t)")
        self._samples = [nvml.call("nvmlGpmSampleAlloc"), nvml.call("nvmlGpmSampleAlloc")]
        weakref.finalize(self, _free, nvml, self._samples).atexit = False
        self._last_ns = 0
        self._take()
        names = [name for name, _ in METRICS.values()] + (["memory_used_bytes"] if memory is not None else [])
        self.channels = tuple(
            ChannelInfo(
                device=device,
                name=name,
                unit=CHANNEL_UNITS[name][0],
                source="nvmlDeviceGetMemoryInfo" if name == "memory_used_bytes" else _CALL,
                period_s=INTERVAL_S,
                window_s=None if name == "memory_used_bytes" else INTERVAL_S,
            )
            for name in names
        )

    def poll(self) -> list[Samples]:
        """Shares of the time since the last poll, stamped at its middle; empty if that time was too short.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        since_ns = self._last_ns
        if self._clock.time_ns() - since_ns < LEAST_S * 1e9:
            return []
        try:
            self._take()
            samples = self._compare((since_ns + self._last_ns) // 2)
        except Unavailable:
            return []
        used = self._nvml.get("nvmlDeviceGetMemoryInfo", self._memory) if self._memory is not None else None
        if used is not None:
            samples.append(one_sample("memory_used_bytes", self._last_ns, float(used.used)))
        return samples

    def _take(self) -> None:
        """Sample into the older of the two, which becomes the last; a failure leaves both unchanged."""
        oldest = self._samples[0]
        if self._instance is None:
            self._nvml.call("nvmlGpmSampleGet", self._board, oldest)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", self._board, self._instance, oldest)
        self._samples.reverse()
        self._last_ns = self._clock.time_ns()

    def _compare(self, at_ns: int) -> list[Samples]:
        request = self._request()
        request.version = 1
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = self._samples
        for slot, number in enumerate(METRICS):
            request.metrics[slot].metricId = number
        self._nvml.call(_CALL, request)
        samples = []
        for slot, (name, factor) in enumerate(METRICS.values()):
            metric = request.metrics[slot]
            value = float(metric.value) * factor
            if metric.nvmlReturn == 0 and math.isfinite(value):
                samples.append(Samples(name, np.array([at_ns], np.int64), np.array([value])))
        return samples


def _free(nvml: Nvml, samples: list[Any]) -> None:
    with suppress(NotPossibleError):  # the library may be closed already, or the GPU be gone
        for sample in samples:
            nvml.get("nvmlGpmSampleFree", sample)
