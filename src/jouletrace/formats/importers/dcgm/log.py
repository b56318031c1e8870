"""Common parts of DCGM's logs: GPUs and MIG instances, and the assignment of readings to them."""

from __future__ import annotations

from pathlib import Path

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.dcgm.fields import field
from jouletrace.formats.importers.log import Log


class DcgmLog(Log):
    """Readings with their GPUs; rows are scrapes."""

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self._name = options.device
        self._seen: set[tuple[str, str, int]] = set()

    def board(self, index: str, uuid: str = "", name: str = "", **facts: str) -> str:
        """Id of a GPU; its facts are taken from its first occurrence."""
        number = int(index) if index.isdecimal() and len(index) < 5 else None
        shown = name or self._name or f"device {index or 0}"
        return self.device(uuid or f"imported:{index or 0}", shown, index=number, **facts)

    def instance(self, board: str, number: str, profile: str = "") -> str:
        """Id of a MIG instance of a GPU."""
        parent = self.devices[board]
        about = {"parent": board, "no_power": "mig_no_power"}
        name = f"{parent.name} MIG {profile or number}"
        return self.device(f"{board}/{number}", name, kind="mig", index=parent.index, details=about)

    def take(self, name: str, unit: str, board: str, instance: str | None, row: int, value: float) -> None:
        """Add a reading of a field; the GPU's own reading, repeated for each instance, is added once."""
        what = field(name)
        if what.board and instance is not None:
            key = (board, what.channel, row)
            if key in self._seen:
                return
            self._seen.add(key)
        device = board if what.board or instance is None else instance
        self.add(device, what.channel, value, units.unit(unit or what.unit) or units.NO_UNIT, f"DCGM, {name}")
