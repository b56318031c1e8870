"""Simulated GPUs and slices of them as a ``Device``: opened by ``sim:NAME``, marked as SIMULATED in all information.

A kernel does the same operations and moves the same bytes on a slice, in more time. Slices slow each other only through
the power cap, which they share.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace

from jouletrace.devices.base import Capability, Process, Source, Vendor
from jouletrace.devices.mig import Profile
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.registry import SLICE
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.driver import SimulatedNvml
from jouletrace.simulator.boards.kernels import Roofline
from jouletrace.simulator.boards.mig_state import BOARD_SMS, MEMORY_SLICES, profiles, stored_slices
from jouletrace.simulator.boards.presets import Preset, draw, find
from jouletrace.simulator.boards.set_values import limit_w
from jouletrace.simulator.boards.spec import PREFIX, parse
from jouletrace.simulator.boards.truth import Truth


class SimulatedGpu(NvmlGpu):
    """A simulated GPU whose energy is known exactly, read through the calls of its driver.

    Args:
        spec: ``sim:NAME[?key=value&...]``.

    Attributes:
        board: The GPU to work on.
        instruments: What its driver reads.
    """

    def __init__(self, spec: str) -> None:
        asked = parse(spec)
        preset = find(asked.name)
        # Power follows the load in 20 us where the sensor samples: there the slower response of the record
        # comes from the sensor's averaging alone
        sharp = {"fast_s": 20e-6} if asked.sensor == "sampled" else {}
        parameters = draw(preset, asked.seed, {**sharp, **dict(asked.given)}.items())
        uuid = f"SIM-{preset.name}-{asked.seed}"
        cap_w = asked.cap or limit_w(uuid, asked, preset.cap_w)
        self.board = Board(preset, parameters, replace(asked, cap=cap_w))
        driver = SimulatedNvml(uuid, self.board, preset, parameters, asked)
        super().__init__(uuid, Nvml(driver), self.board.clock)
        self.spec = spec
        self.instruments = driver.instruments
        given = {"preset": preset.name, "seed": asked.seed, "run": asked.run, **dict(asked.given)}
        self.info = replace(self.info, simulated=True, host="", details=self.info.details | given)

    @property
    def truth(self) -> Truth:
        """The exact energies; for tests and benchmarks only."""
        return self.board.truth

    def sources(self) -> list[Source]:
        """As ``NvmlGpu``, each channel marked."""
        found = super().sources()
        for channel in (channel for source in found for channel in source.channels):
            channel.source = f"SIMULATED {channel.source}"
        return found

    def close(self) -> None:
        """End the context, if one exists."""
        self.board.release_context()
        super().close()


class SimulatedSlice(SimulatedGpu):
    """An instance of a simulated GPU; implements ``devices.base.Device``.

    Its sources measure the whole GPU and carry the GPU's id, as on real hardware.

    Attributes:
        gpu: The whole GPU.
        parent: Its id.
    """

    def __init__(self, gpu: SimulatedGpu, profile: Profile, uuid: str) -> None:
        preset = find(str(gpu.info.details["preset"]))
        self.spec = gpu.spec
        self.parent = gpu.info.id
        self.board = copy(gpu.board)  # the same engine and clock, its own kernels
        self.board.roofline = Roofline(slice_preset(preset, profile), gpu.truth.parameters())
        self.clock = gpu.clock
        self.gpu = gpu
        self.instruments = gpu.instruments
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

    def sources(self) -> list[Source]:
        """Those of the whole GPU."""
        return self.gpu.sources()

    def capabilities(self) -> list[Capability]:
        """Those of the whole GPU."""
        return self.gpu.capabilities()

    def processes(self) -> list[Process]:
        """Empty: no other process uses a simulated GPU."""
        return []

    def close(self) -> None:
        """End the context on the slice, and close its GPU."""
        self.board.release_context()
        self.gpu.close()


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


def open_simulated(spec: str) -> SimulatedGpu:
    """Open the GPU that ``sim:NAME[?key=value&...]`` describes, or a slice by its UUID.

    Raises:
        BadInputError: If the name or a key is unknown, or a value is out of range.
    """
    if spec.upper().startswith(SLICE):
        return _open_stored(spec)
    profile = parse(spec).mig
    if profile:
        return open_slice(spec, profile)
    return SimulatedGpu(spec)


def open_board(spec: str) -> SimulatedGpu:
    """As ``open_simulated``; a slice stands for its GPU."""
    opened = open_simulated(spec)
    return opened.gpu if isinstance(opened, SimulatedSlice) else opened


def _open_stored(spec: str) -> SimulatedSlice:
    """The slice that ``mig apply`` made, by its UUID or a beginning of it, and keys of its GPU as in ``sim:NAME``."""
    beginning, _, keys = spec.partition("?")
    there = stored_slices()
    found = [one for one in there if one[1].lower().startswith(beginning.lower())]
    if len(found) != 1:
        what = "is the beginning of several" if found else "is no slice of a simulated GPU; there are"
        raise BadInputError(f"{beginning} {what}: {', '.join(one[1] for one in found or there) or 'none'}")
    ((gpu, uuid, profile),) = found
    opened = SimulatedSlice(SimulatedGpu(f"{gpu}&mig={profile.name}&{keys}"), profile, uuid)
    opened.spec = f"{uuid}?{keys}" if keys else uuid
    return opened


VENDOR = Vendor(f"{PREFIX}NAME", re.compile(f"{PREFIX}(?s:.*)|(?is:{SLICE}.*)"), open_simulated)
