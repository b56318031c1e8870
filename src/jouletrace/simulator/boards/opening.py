"""From ``sim:NAME?key=value`` to a GPU."""

from __future__ import annotations

from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.mig_slice import open_slice
from jouletrace.simulator.boards.spec import parse


def open_simulated(spec: str) -> SimulatedGpu:
    """Open the GPU that ``sim:NAME[?key=value&...]`` describes.

    Raises:
        BadInputError: If the name or a key is unknown, or a value is out of range.
    """
    profile = parse(spec).mig
    if profile:
        return open_slice(spec, profile)
    return SimulatedGpu(spec)
