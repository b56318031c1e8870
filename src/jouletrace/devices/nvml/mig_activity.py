"""Activity of MIG instances by GPM: a source for each instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jouletrace.devices.base import Clock, RealClock, Samples
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpm import GpmSource, gpm_sources
from jouletrace.devices.nvml.identity import find_board, uuid_of
from jouletrace.devices.nvml.mig import mig_handles


class InstanceActivity:
    """One instance; its readings carry its UUID."""

    def __init__(self, uuid: str, source: GpmSource) -> None:
        self.interval_s = source.interval_s
        self._uuid = uuid
        self._source = source

    def poll(self) -> list[tuple[str, Samples]]:
        """Readings since the last call.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        return [(self._uuid, samples) for samples in self._source.poll()]


def instance_activity(
    board: str, instances: Mapping[str, int], nvml: Nvml | None = None, clock: Clock | None = None
) -> list[InstanceActivity]:
    """A source for each instance that has GPM counters; empty before Hopper.

    Args:
        board: UUID of the GPU.
        instances: Number of the GPU instance, by UUID.
        nvml: The library, kept open as long as the sources live; None opens it.
        clock: Source of the stamps.
    """
    library = nvml if nvml is not None else Nvml()
    handle = find_board(library, board)
    devices: dict[str, Any] = {uuid_of(library, one): one for one in mig_handles(library, handle)}
    found = []
    for uuid, number in instances.items():
        sources = gpm_sources(library, handle, uuid, clock or RealClock(), number, devices.get(uuid))
        found += [InstanceActivity(uuid, source) for source in sources]
    return found
