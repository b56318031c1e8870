"""A log as it is read: rows with their stamps, readings of devices; what all formats of logs share."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, new_run
from jouletrace.formats.importers.readings import Readings, SensorOf, nvidia
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.formats.importers.units import NO_UNIT, Unit
from jouletrace.run import DeviceInfo, Run

INTERVAL_S = 1.0
"""What rows without a time are taken to be apart: the default of every tool that prints none."""


class Log:
    """Rows in the order of the file; every reading belongs to the last of them.

    Attributes:
        left: What could not be used.
        readings: All so far.
        devices: By id, in order of appearance.
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
            stamp: Its time as printed; "" if none is.
            of: What has a row at a time, where several take turns: rows without times are distinguished by it.
        """
        tick = self._counts[of] = self._counts.get(of, -1) + 1
        self._times.append(stamp)
        self._ticks.append(tick)
        return len(self._times) - 1

    def device(self, id: str, name: str, **facts: object) -> str:
        """The id of a device, at its first occurrence with what is told of it.

        Nodes number their GPUs alike: one of another ``host`` is another device.
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
        """The id of a GPU of which only the number is told."""
        index = int(number)
        return self.device(f"imported:{index}", self._options.device or f"device {index}", index=index)

    def add(self, device: str, channel: str, value: float, unit: Unit = NO_UNIT, source: str = "") -> None:
        """A reading in ``unit``, whose suffix a channel gets that doesn't end in it."""
        name = channel if channel.endswith(unit.suffix) else channel + unit.suffix
        self.readings.add(device, name, len(self._times) - 1, value * unit.factor, unit.si, source)

    def note(self, code: str, text: str, where: str = "") -> None:
        """A warning for the Run; of the file unless it says of what."""
        self._notes.append((code, text, where or self._path.name))

    def run(
        self, form: str, what: str, *, dialect: str = "", sensor: SensorOf = nvidia, stamps: Stamps | None = None
    ) -> Run:
        """A Run of all that was added.

        Args:
            form: Name of the format.
            what: Rows in words ("rows", "scrapes").
            dialect: Of the format, if it has several.
            sensor: What is known of the sensors.
            stamps: Times of the rows, where they were read already.

        Raises:
            BadInputError: If there is no reading with a time, or the time zone is unknown.
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
        note = f"the {what} have no times: they are taken to be {INTERVAL_S:g} s apart, the default of their tool"
        return evenly(self._ticks, INTERVAL_S, note)
