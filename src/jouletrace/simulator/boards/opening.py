"""From ``sim:NAME?key=value`` to a GPU."""

from __future__ import annotations

import re

from jouletrace.devices.base import Vendor
from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.mig_slice import open_slice
from jouletrace.simulator.boards.spec import PREFIX, parse


def open_simulated(spec: str) -> SimulatedGpu:
    """Open the GPU that ``sim:NAME[?key=value&...]`` describes.

    Raises:
        BadInputError: If the name or a key is unknown, or a value is out of range.
    """
    profile = parse(spec).mig
    if profile:
        return open_slice(spec, profile)
    return SimulatedGpu(spec)


VENDOR = Vendor(f"{PREFIX}NAME", re.compile(f"{PREFIX}.*", re.DOTALL), open_simulated)
