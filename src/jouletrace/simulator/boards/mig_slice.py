"""A slice of a simulated GPU: its share of SMs, bandwidth, cache and memory, without a power sensor.

A kernel does the same operations and moves the same bytes on a slice, in more time. Slices slow each other
only through the power cap, which they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.mig import Profile
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo
from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.kernels import Roofline
from jouletrace.simulator.boards.load import Iterations, Load
from jouletrace.simulator.boards.mig_state import BOARD_SMS, MEMORY_SLICES, profiles
from jouletrace.simulator.boards.presets import Preset, find


class SimulatedSlice(SimulatedGpu):
    """An instance of a simulated GPU; implements ``devices.base.Device``.

    Its sources measure the whole GPU and carry the GPU's id, as on real hardware.

    Args:
        gpu: The GPU, which other slices may share.
        profile: MIG profile of the slice.
        uuid: UUID of the slice.

    Attributes:
        parent: Id of the GPU.
    """

    def __init__(self, gpu: SimulatedGpu, profile: Profile, uuid: str) -> None:
        preset = find(str(gpu.info.details["preset"]))
        self.spec = gpu.spec
        self.parent = gpu.info.id
        self.board = copy(gpu.board)  # the same engine and clock, its own kernels
        self.board.roofline = Roofline(slice_preset(preset, profile), gpu.truth.parameters())
        self.clock = gpu.clock
        self._gpu = gpu
        self._sensors = gpu._sensors
        self.info = DeviceInfo(
            id=uuid,
            name=f"{gpu.info.name} MIG {profile.name}",
            kind="mig",
            simulated=True,
            driver=gpu.info.driver,
            memory_bytes=profile.memory_mib << 20,
            details={
                **gpu.info.details,
                "no_power": "mig_no_power",
                "no_power_note": f"a MIG instance has no power sensor; its GPU is {gpu.info.id}",
                "parent": gpu.info.id,
                "parent_name": gpu.info.name,
                "multiprocessors": profile.multiprocessors,
                "profile": profile.name,
            },
        )


class Together:
    """Loads of several slices at once, each until its own end.

    Args:
        loads: One per slice; None for an idle slice.

    Attributes:
        caused_j: Energy over context idle that each load caused, before the GPU's noise, shape (n,).
        busy_s: Seconds in which each slice had a kernel running, shape (n,).
    """

    def __init__(self, loads: Sequence[Iterations | None]) -> None:
        self._loads = loads
        self.caused_j: NDArray[np.float64] = np.zeros(len(loads))
        self.busy_s: NDArray[np.float64] = np.zeros(len(loads))

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Continue at another clock; all slices share it."""
        for load in self._running():
            load.set_clock(ratio, voltage_squared)

    def left_s(self) -> float:
        """Seconds until the last load is done."""
        return max((load.left_s() for load in self._running()), default=0.0)

    def edge_s(self) -> float:
        """Seconds until a kernel of any load begins or ends."""
        return min((load.edge_s() for load in self._running() if load.left_s() > 0), default=inf)

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns the loads' mean power over context idle and the largest busy share."""
        busiest = 0.0
        before = float(self.caused_j.sum())
        for i, load in enumerate(self._loads):
            own = min(seconds, load.left_s()) if load is not None else 0.0
            if load is None or own <= 0:
                continue
            watts, busy = load.advance(own, idle_w)
            self.caused_j[i] += watts * own
            self.busy_s[i] += busy * own
            busiest = max(busiest, busy * own / seconds)
        return (float(self.caused_j.sum()) - before) / seconds, busiest

    def _running(self) -> list[Load]:
        return [load for load in self._loads if load is not None]


def open_slice(spec: str, name: str) -> SimulatedSlice:
    """The slice that ``sim:NAME?mig=PROFILE`` names, on a GPU that it alone uses.

    Raises:
        BadInputError: If the GPU has no such profile.
    """
    gpu = SimulatedGpu(spec)
    table = profiles(str(gpu.info.details["preset"]))
    found = next((one for one in table if one.name == name), None)
    if found is None:
        there = ", ".join(one.name for one in table) or "none"
        raise BadInputError(f"{spec}: {gpu.info.name} has no MIG profile {name!r}; there are: {there}")
    return SimulatedSlice(gpu, found, f"MIG-{gpu.info.id}-{found.name}")


def slice_preset(preset: Preset, profile: Profile) -> Preset:
    """A preset with the resources of a slice.

    Power limits scale with the SMs: the roofline states energies as shares of the limit, and an
    operation takes as much energy on a slice as on the GPU.
    """
    sms = profile.multiprocessors / BOARD_SMS[preset.name]
    memory = profile.placements[0].size / MEMORY_SLICES
    return replace(
        preset,
        cap_w=preset.cap_w * sms,
        bytes_per_s=preset.bytes_per_s * memory,
        l2_bytes=round(preset.l2_bytes * memory),
        peak_flops={dtype: peak * sms for dtype, peak in preset.peak_flops.items()},
    )
