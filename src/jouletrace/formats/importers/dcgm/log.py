"""What both kinds of DCGM's logs share: boards and MIG instances, and to which of them a reading belongs."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, Left, new_run
from jouletrace.formats.importers.dcgm.fields import field
from jouletrace.formats.importers.power_sensor import nvidia_sensor
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.stamps import evenly, read_stamps
from jouletrace.run import DeviceInfo, Run

INTERVAL_S = 1.0
"""What rows and scrapes without a time are taken to be apart: the default of ``dcgmi dmon``."""


class DcgmLog:
    """Readings with their boards; rows are scrapes, or lines of one entity each."""

    def __init__(self, options: ImportOptions) -> None:
        self.readings = Readings()
        self._options = options
        self._infos: dict[str, DeviceInfo] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._instances = 0

    def board(self, index: str, uuid: str = "", name: str = "", **facts: str) -> str:
        """Id of a board; what is told of it at its first occurrence counts."""
        number = int(index) if index.isdecimal() and len(index) < 5 else None
        id = uuid or f"imported:{index or 0}"
        host = facts.get("host", "")
        if id in self._infos and self._infos[id].host != host:  # nodes number their GPUs alike
            id = f"{id}@{host}"
        if id not in self._infos:
            self._infos[id] = DeviceInfo(
                id,
                name or self._options.device or f"device {index or 0}",
                index=number,
                **{key: value for key, value in facts.items() if value},  # type: ignore[arg-type]  # all are text
            )
        return id

    def instance(self, board: str, number: str, profile: str = "") -> str:
        """Id of a MIG instance of a board."""
        id = f"{board}/{number}"
        if id not in self._infos:
            parent = self._infos[board]
            name = f"{parent.name} MIG {profile or number}"
            self._infos[id] = DeviceInfo(id, name, kind="mig", index=parent.index, details={"parent": board})
            self._infos[id].details["no_power"] = "mig_no_power"
        return id

    def add(self, name: str, unit: str, board: str, instance: str | None, row: int, value: float) -> None:
        """One reading of a field; the board's own, repeated for each instance, is taken once."""
        what = field(name)
        kind = units.unit(unit or what.unit) or units.NO_UNIT
        device = board if what.board or instance is None else instance
        key = (device, what.channel, row)
        if what.board and instance is not None:
            if key in self._seen:
                return
            self._seen.add(key)
        suffix = "" if not unit or what.channel.endswith(kind.suffix) else kind.suffix
        self.readings.add(device, what.channel + suffix, row, value * kind.factor, kind.si, f"DCGM, {name}")

    def run(self, path: Path, left: Left, dialect: str, times: list[str], ticks: list[int], what: str) -> Run:
        """A Run of all that was added.

        Args:
            path: The file.
            left: What was left out of it.
            dialect: Name of the dialect.
            times: Printed stamp of each row, "" where there is none.
            ticks: Number of each row among those of its entity, where there are no stamps.
            what: A row in words, plural ("scrapes").

        Raises:
            BadInputError: If there is no reading with a time.
        """
        if not len(self.readings):
            raise BadInputError(f"{path}: not one reading in it{left.first()}")
        if any(times):
            stamps = read_stamps(times, self._options.time_zone)
        else:
            note = f"the {what} have no times: they are taken to be {INTERVAL_S:g} s apart"
            stamps = evenly(ticks, INTERVAL_S, note)
        left.add("no_time", f"{what} without a readable time", int((~stamps.valid).sum()))
        run = new_run(path, "dcgm", stamps.clock)
        run.settings["imported"][0]["dialect"] = dialect
        for code, note in stamps.notes.items():
            run.warn(code, note, path.name)
        self.readings.write(
            run,
            stamps.time_ns,
            stamps.valid,
            stamps.resolution_s,
            self._infos.values(),
            lambda d, _: nvidia_sensor(d.name),
        )
        if not len(run.samples):
            raise BadInputError(f"{path}: not one of the {what} has a readable time")
        left.warn(run)
        return run
