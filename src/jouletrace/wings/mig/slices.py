"""Slices of simulated GPUs as a ``Device``: ``sim:NAME?mig=PROFILE``, and the UUIDs of those that ``mig apply`` made.

A kernel does the same operations and moves the same bytes on a slice, in more time. Slices slow each other only through
the power cap, which they share.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import cast

from jouletrace.devices import open_device
from jouletrace.devices.base import Capability, Process, Source
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.simulator.boards.kernels import Roofline
from jouletrace.simulator.boards.presets import Preset, find
from jouletrace.simulator.boards.spec import PREFIX
from jouletrace.wings.mig.partition import Profile
from jouletrace.wings.mig.simulated import BOARD_SMS, MEMORY_SLICES, profiles, stored_slices

_KEY = "mig="
"""In the name of a simulated GPU, before the profile of a slice."""


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


def open_slice(spec: str) -> SimulatedSlice:
    """Open a slice of a simulated GPU by its name.

    Raises:
        BadInputError: If there is none of this name, or a key is unknown, or a value is out of range.
    """
    return _of_profile(spec) if spec.startswith(PREFIX) else _stored(spec)


def open_board(spec: str) -> SimulatedGpu:
    """Open a simulated GPU; a slice stands for its GPU."""
    opened = open_device(spec)
    return opened.gpu if isinstance(opened, SimulatedSlice) else cast(SimulatedGpu, opened)


def _of_profile(spec: str) -> SimulatedSlice:
    """The slice that ``sim:NAME?mig=PROFILE`` names, on a GPU that it alone uses."""
    name, _, query = spec.partition("?")
    keys = query.split("&")
    named = [key.removeprefix(_KEY) for key in keys if key.startswith(_KEY)]
    if len(named) > 1:
        raise BadInputError(f"{spec}: 'mig' needs one value, written mig=PROFILE")
    gpu = SimulatedGpu(f"{name}?{'&'.join(key for key in keys if not key.startswith(_KEY))}")
    table = profiles(str(gpu.info.details["preset"]))
    found = next((one for one in table if one.name == named[0]), None)
    if found is None:
        there = ", ".join(one.name for one in table) or "none"
        raise BadInputError(f"{spec}: {gpu.info.name} has no MIG profile {named[0]!r}; there are: {there}")
    opened = SimulatedSlice(gpu, found, f"MIG-{gpu.info.id}-{found.name}")
    opened.spec = spec
    return opened


def _stored(spec: str) -> SimulatedSlice:
    """The slice that ``mig apply`` made, by its UUID or a beginning of it, and keys of its GPU as in ``sim:NAME``."""
    beginning, _, keys = spec.partition("?")
    there = stored_slices()
    found = [one for one in there if one[1].lower().startswith(beginning.lower())]
    if len(found) != 1:
        what = "is the beginning of several" if found else "is no slice of a simulated GPU; there are"
        raise BadInputError(f"{beginning} {what}: {', '.join(one[1] for one in found or there) or 'none'}")
    ((gpu, uuid, profile),) = found
    opened = SimulatedSlice(SimulatedGpu(f"{gpu}&{keys}"), profile, uuid)
    opened.spec = f"{uuid}?{keys}" if keys else uuid
    return opened
