"""Simulated GPUs and slices of them as a ``Device``: opened by ``sim:NAME``, marked as SIMULATED in all information.

A kernel does the same operations and moves the same bytes on a slice, in more time. Slices slow each other only through
the power cap, which they share.
"""

from __future__ import annotations

import json
import re
import time
from copy import copy
from dataclasses import replace
from pathlib import Path

from jouletrace.devices.base import Capability, Clock, Process, Source, Vendor
from jouletrace.devices.mig import Profile
from jouletrace.devices.registry import SLICE
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.kernels import Roofline
from jouletrace.simulator.boards.mig_state import BOARD_SMS, MEMORY_SLICES, profiles, stored_slices
from jouletrace.simulator.boards.presets import Preset, draw, find
from jouletrace.simulator.boards.sensors import SampledStretch, SensorSet
from jouletrace.simulator.boards.spec import PREFIX, parse
from jouletrace.simulator.boards.truth import Truth


class SimulatedGpu:
    """A simulated GPU whose energy is known exactly.

    Args:
        spec: ``sim:NAME[?key=value&...]``.

    Attributes:
        info: What a driver would report, marked as simulated.
        clock: The GPU's time.
        spec: As given.
        board: The GPU to work on.
    """

    def __init__(self, spec: str) -> None:
        asked = parse(spec)
        preset = find(asked.name)
        # Power follows the load in 20 us where the sensor samples: there the slower response of the record
        # comes from the sensor's averaging alone
        sharp = {"fast_s": 20e-6} if asked.sensor == "sampled" else {}
        parameters = draw(preset, asked.seed, {**sharp, **dict(asked.given)}.items())
        self.spec = spec
        self.board = Board(preset, parameters, asked)
        self.clock: Clock = self.board.clock
        self.info = DeviceInfo(
            id=f"SIM-{preset.name}-{asked.seed}",
            name=f"SIMULATED {preset.title}",
            kind="gpu",
            simulated=True,
            driver="simulated",
            power_limit_w=self.board.cap_w,
            power_limits_w={"min": preset.cap_min_w, "max": preset.cap_w, "default": preset.cap_w},
            memory_bytes=preset.memory_bytes,
            details={"preset": preset.name, "seed": asked.seed, "run": asked.run, **dict(asked.given)},
        )
        self._sensors = SensorSet(self.board, preset, parameters, asked, self.info.id)

    @property
    def truth(self) -> Truth:
        """The exact energies; for tests and benchmarks only."""
        return self.board.truth

    def sampled(self) -> SampledStretch:
        """A segment in which the record resolves kernels, by momentary samples."""
        return self._sensors.sampled()

    def sources(self) -> list[Source]:
        """New sources that read the GPU's instruments, the best power source first."""
        return self._sensors.sources()

    def capabilities(self) -> list[Capability]:
        """One entry per channel, with the cost of a read on this machine."""
        found = []
        for source in self.sources():
            start = time.perf_counter()
            source.poll()
            cost_s = time.perf_counter() - start
            for channel in source.channels:
                found.append(
                    Capability(
                        CHANNEL_UNITS[channel.name][1],
                        available=True,
                        source=channel.source,
                        period_s=channel.period_s,
                        cost_s=cost_s,
                        note="SIMULATED",
                    )
                )
        return found

    def processes(self) -> list[Process]:
        """Empty: no other process uses a simulated GPU."""
        return []

    def close(self) -> None:
        """End the context, if one exists."""
        self.board.release_context()


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


class SimulatedPowerLimit:
    """Implements ``profiler.power_limits.PowerLimiter``.

    Attributes:
        permitted: Whether the user may change it; for tests.
    """

    permitted = True

    def __init__(self, device: str, state: Path) -> None:
        board = SimulatedGpu(device)
        self.info: DeviceInfo = board.info
        self._state = state
        board.close()

    def limit_w(self) -> float:
        """The limit in force, in watts."""
        try:
            return float(json.loads(self._state.read_text())["limit_w"])
        except (OSError, ValueError, KeyError):
            pass
        if self.info.power_limit_w is None:
            raise NotPossibleError(f"{self.info.name} has no power limit")
        return self.info.power_limit_w

    def set_limit(self, watts: float) -> None:
        """Set the limit, in watts."""
        if not self.permitted:
            raise NotPossibleError(f"{self.info.name}: the power limit can't be set: this needs root (sudo)")
        self._state.parent.mkdir(parents=True, exist_ok=True)
        self._state.write_text(json.dumps({"limit_w": watts}))

    def spec(self, device: str) -> str:
        """The GPU with its cap."""
        name, _, query = device.partition("?")
        others = [part for part in query.split("&") if part and not part.startswith("cap=")]
        return f"{name}?{'&'.join([*others, f'cap={self.limit_w():g}'])}"

    def close(self) -> None:
        """Nothing to release."""
