"""Simulated GPUs as a ``Device``: opened by ``sim:NAME``, marked as SIMULATED in all information."""

from __future__ import annotations

import re
from dataclasses import replace

from jouletrace.devices.base import Source, Vendor
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.driver import SimulatedNvml
from jouletrace.simulator.boards.presets import draw, find
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
        sources = super().sources()
        for channel in (channel for source in sources for channel in source.channels):
            channel.source = f"SIMULATED {channel.source}"
        return sources

    def close(self) -> None:
        """End the context, if one exists."""
        self.board.release_context()
        super().close()


VENDOR = Vendor(f"{PREFIX}NAME", re.compile(f"{PREFIX}(?s:.*)"), SimulatedGpu)
