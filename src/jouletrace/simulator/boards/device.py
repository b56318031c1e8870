"""A simulated GPU as a ``Device``: opened by ``sim:NAME``, marked as SIMULATED in all its information."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.base import Capability, Clock, Process, Source
from jouletrace.run import DeviceInfo
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.presets import draw, find
from jouletrace.simulator.boards.sensors import SampledStretch, SensorSet
from jouletrace.simulator.boards.spec import parse
from jouletrace.simulator.boards.truth import Truth

SAMPLED_FAST_S = 20e-6
"""Time constant of power behind the load, for GPUs whose sensor samples: there the slower response of the record comes
from the sensor's averaging alone."""


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
        sharp = {"fast_s": SAMPLED_FAST_S} if asked.sensor == "sampled" else {}
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

    def read_at(self, channel: str, time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Readings (W) of a power channel at given times of the past, shape as ``time_ns``.

        Compares a simulated GPU with a recording of a real one.
        """
        return self._sensors.read_at(channel, time_ns)

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
