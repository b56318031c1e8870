"""A log while it is read: rows with their stamps, readings of devices; common to all formats of logs."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, new_run
from jouletrace.formats.importers.readings import Readings, SensorOf, nvidia
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.formats.importers.units import NO_UNIT, Unit
from jouletrace.run import DeviceInfo, Run

INTERVAL_S = 1.0
"""Assumed interval between rows without a time: the default of every tool that prints none."""


class Log:
    """Rows in the order of the file; every reading belongs to the last row.

    Attributes:
        left: Counts of unusable content.
        readings: All readings so far.
        devices: Devices by id, in order of appearance.
    """

    def __init__(self, path: Path, options: ImportOptions) -> None:
        self.left = Left(path)
        self.readings = Readings()
        self.devices: dict[str, DeviceInfo] = {}
        self._path = path
        self._options = options
        self._times: list[str] = []
        self._ticks: list[int] = []
        self._counts: dict[str, int] = {}
        self._notes: list[tuple[str, str, str]] = []

    def row(self, stamp: str, of: str = "") -> int:
        """Begin a row and return its number.

        Args:
            stamp: Its time as printed; "" if it is missing.
            of: The device whose row it is, where several alternate; it distinguishes rows without times.
        """
        tick = self._counts[of] = self._counts.get(of, -1) + 1
        self._times.append(stamp)
        self._ticks.append(tick)
        return len(self._times) - 1

    def device(self, id: str, name: str, **facts: object) -> str:
        """The id of a device, which is registered at its first occurrence with its known facts.

        Nodes number their GPUs alike, so a GPU of another ``host`` is another device.
        """
        there = self.devices.get(id)
        host = facts.get("host", "")
        if there is not None and there.host != host:
            id = f"{id}@{host}"
        if id not in self.devices:
            given = {key: value for key, value in facts.items() if value not in ("", None)}
            self.devices[id] = DeviceInfo(id, name, **given)  # type: ignore[arg-type]  # fields of DeviceInfo
        return id

    def gpu(self, number: str) -> str:
        """The id of a GPU of which only the number is known."""
        index = int(number)
        return self.device(f"imported:{index}", self._options.device or f"device {index}", index=index)

    def add(self, device: str, channel: str, value: float, unit: Unit = NO_UNIT, source: str = "") -> None:
        """Add a reading in ``unit``, whose suffix is appended to the channel's name if it is missing."""
        name = channel if channel.endswith(unit.suffix) else channel + unit.suffix
        self.readings.add(device, name, len(self._times) - 1, value * unit.factor, unit.si, source)

    def note(self, code: str, text: str, where: str = "") -> None:
        """Add a warning to the Run, by default about the file."""
        self._notes.append((code, text, where or self._path.name))

    def run(
        self, form: str, what: str, *, dialect: str = "", sensor: SensorOf = nvidia, stamps: Stamps | None = None
    ) -> Run:
        """A Run of everything added.

        Args:
            form: Name of the format.
            what: Word for the rows ("rows", "scrapes").
            dialect: Dialect of the format, if it has several.
            sensor: Known properties of the sensors.
            stamps: Times of the rows, if they were read already.

        Raises:
            BadInputError: If no reading has a time, or the time zone is unknown.
        """
        stamps = stamps or self._stamps(what)
        self.left.add("no_time", f"{what} without a readable time", int((~stamps.valid).sum()))
        run = new_run(self._path, form, stamps.clock, dialect)
        for code, text, where in [*((c, t, self._path.name) for c, t in stamps.notes.items()), *self._notes]:
            run.warn(code, text, where)
        self.readings.write(run, stamps, self.devices.values(), sensor)
        if not len(run.samples):
            raise BadInputError(f"{self._path}: not one row has a time and a reading{self.left.first()}")
        self.left.warn(run)
        return run

    def _stamps(self, what: str) -> Stamps:
        if any(self._times):
            return read_stamps(self._times, self._options.time_zone)
        note = f"the {what} have no times: an interval of {INTERVAL_S:g} s is assumed, the default of their tool"
        return evenly(self._ticks, INTERVAL_S, note)
