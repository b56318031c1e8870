"""``nvidia-smi --query-gpu=... --format=csv``: units in the header or the cells, with or without a header."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, Left, new_run, read_text
from jouletrace.formats.importers.delimited import Delimited, read_delimited
from jouletrace.formats.importers.numbers import decimal_sign, number
from jouletrace.formats.importers.power_sensor import PowerSensor, nvidia_sensor
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

FORMAT = "nvidia_smi"

CHANNELS: dict[str, str] = {
    "power.draw": POWER,
    "power.draw.average": "power_average_w",
    "power.draw.instant": "power_instant_w",
    "clocks.current.sm": "clock_sm_mhz",
    "clocks.sm": "clock_sm_mhz",
    "clocks.current.memory": "clock_memory_mhz",
    "clocks.mem": "clock_memory_mhz",
    "clocks.current.graphics": "clock_graphics_mhz",
    "clocks.gr": "clock_graphics_mhz",
    "temperature.gpu": "temperature_c",
    "temperature.memory": "temperature_memory_c",
    "utilization.gpu": "utilization_gpu_pct",
    "utilization.memory": "utilization_memory_pct",
    "memory.used": "memory_used_bytes",
    "pstate": "pstate",
    "clocks_event_reasons.active": "throttle_bits",
    "clocks_throttle_reasons.active": "throttle_bits",
    "enforced.power.limit": "power_limit_w",
}

_IDENTITY = {
    "index": "index",
    "name": "name",
    "gpu_name": "name",
    "uuid": "id",
    "gpu_uuid": "id",
    "serial": "serial",
    "gpu_serial": "serial",
    "pci.bus_id": "pci_bus",
    "gpu_bus_id": "pci_bus",
    "driver_version": "driver",
    "vbios_version": "vbios",
}
"""Fields that say which board a row is of."""

_FIELD = re.compile(
    r"^\W*(timestamp|index|name|uuid|gpu_\w+|pstate|serial|count|pci\.\w+|fan\.speed|driver_version|"
    r"(power|clocks|temperature|utilization|memory|enforced|clocks_\w+|ecc|encoder|mig)[.\w]*)\s*(\[[^\]]*\])?\W*$"
)
_STAMPED = re.compile(r"^\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}\s*,")


def recognises(head: str) -> bool:
    """Whether text that begins so is CSV of ``--query-gpu``."""
    first = head.lstrip().split("\n", 1)[0]
    if _STAMPED.match(first):
        return True
    names = [cell for cell in re.split(r"[,;\t]", first) if cell.strip()]
    known = [cell for cell in names if _FIELD.match(cell)]
    telling = any("." in cell or "timestamp" in cell for cell in known)
    return telling and len(known) == len(names) and any(_name(cell) in CHANNELS for cell in names)


def read(path: Path, options: ImportOptions) -> Run:
    """Read CSV of ``nvidia-smi --query-gpu``.

    Raises:
        BadInputError: If there is no reading in it, or the time zone is unknown.
    """
    left = Left(path)
    text = read_text(path, left).lstrip()
    table = read_delimited(text, left, header=_without_header(text))
    names = [_name(cell) for cell in table.header]
    stated = [_unit(cell) for cell in table.header]
    if not any(name in CHANNELS or name.startswith("column ") for name in names):
        raise BadInputError(f"{path}: no column of the header is a reading: {', '.join(table.header)[:120]}")
    boards = _Boards(names, options.device)
    readings = Readings()
    decimal = decimal_sign(
        units.split(cell)[0]
        for row in table.rows[:200]
        for cell, name in zip(row, names, strict=True)
        if name in CHANNELS
    )
    for row, (cells, line) in enumerate(zip(table.rows, table.lines, strict=True)):
        device = boards.device(cells)
        for name, header_unit, cell in zip(names, stated, cells, strict=True):
            if name in _IDENTITY or name == "timestamp":
                continue
            _take(readings, left, device, name, header_unit, cell, row, f"line {line}, column {name}", decimal)
    if not len(readings):
        raise BadInputError(f"{path}: not one cell of it is a reading")
    stamps = _stamps(table, names, boards, options)
    left.add("no_time", "rows without a readable time", int((~stamps.valid).sum()))
    run = new_run(path, FORMAT, stamps.clock)
    run.settings["imported"][0]["dialect"] = "query-gpu"
    for code, note in stamps.notes.items():
        run.warn(code, note, path.name)
    _promote_power(readings, boards)
    readings.write(run, stamps.time_ns, stamps.valid, stamps.resolution_s, boards.infos(), _sensor)
    if not len(run.samples):
        raise BadInputError(f"{path}: not one row has a readable time")
    left.warn(run)
    return run


def _name(header: str) -> str:
    return header.partition("[")[0].strip().strip("\"'").lower()


def _unit(header: str) -> str:
    found = re.search(r"\[([^\]]*)\]", header)
    return found[1] if found else ""


def _without_header(text: str) -> list[str] | None:
    """Columns of a file of ``--format=csv,noheader``: the units in its cells are all that names them."""
    first = text.split("\n", 1)[0]
    if not _STAMPED.match(first):
        return None
    names: list[str] = []
    for i, cell in enumerate(first.split(",")):
        unit = units.split(cell.strip())[1]
        guess = "timestamp" if i == 0 else {"W": "power.draw"}.get(unit, f"column {i + 1}")
        names.append(guess if guess not in names else f"column {i + 1}")
    return names


def _take(
    readings: Readings,
    left: Left,
    device: str,
    name: str,
    header_unit: str,
    cell: str,
    row: int,
    place: str,
    decimal: str,
) -> None:
    printed, cell_unit = units.split(cell)
    if re.fullmatch(r"P\d{1,2}", cell):
        printed, cell_unit = cell[1:], ""
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        printed, cell_unit = str(int(cell, 16)), ""
    unit = units.unit(cell_unit or header_unit)
    try:
        value = number(printed, decimal)
    except ValueError:
        left.add("not_a_number", "cells hold no number", place=place)
        return
    if value is None or unit is None:
        left.add("missing_cells", "cells are empty or have no unit known here", place=place)
        return
    channel = CHANNELS.get(name) or re.sub(r"\W+", "_", name).strip("_")
    if not channel.endswith(unit.suffix):
        channel += unit.suffix
    if channel.startswith("temperature") and not channel.endswith("_c"):  # whose columns name no unit
        channel += "_c"
    readings.add(device, channel, row, value * unit.factor, unit.si, f"nvidia-smi --query-gpu={name}")


def _stamps(table: Delimited, names: list[str], boards: _Boards, options: ImportOptions) -> Stamps:
    if "timestamp" in names:
        at = names.index("timestamp")
        return read_stamps([row[at] for row in table.rows], options.time_zone)
    counts: dict[str, int] = {}
    ticks: list[int] = []
    for cells in table.rows:
        device = boards.device(cells)
        counts[device] = counts.get(device, -1) + 1
        ticks.append(counts[device])
    note = "the log has no timestamp column: its rows are taken to be 1 s apart"
    return evenly(ticks, 1.0, note)


def _sensor(device: DeviceInfo, source: str) -> PowerSensor:
    return nvidia_sensor(device.name, source.rpartition(".")[2])


def _promote_power(readings: Readings, boards: _Boards) -> None:
    """Where ``power.draw`` itself wasn't asked for, energy rests on what was."""
    for info in boards.infos():
        there = readings.channels(info.id)
        for channel in ("power_instant_w", "power_average_w"):
            if POWER not in there and channel in there:
                readings.rename(info.id, channel, POWER)
                there = readings.channels(info.id)


class _Boards:
    """The boards that rows are of, by their identity columns."""

    def __init__(self, names: list[str], given: str | None) -> None:
        self._columns = [(i, _IDENTITY[name]) for i, name in enumerate(names) if name in _IDENTITY]
        self._given = given
        self._ids: dict[tuple[str, ...], str] = {}
        self._infos: dict[str, DeviceInfo] = {}

    def device(self, cells: list[str]) -> str:
        """Id of the board of a row."""
        key = tuple(cells[i] for i, _ in self._columns)
        if key not in self._ids:
            facts = {field: cells[i] for i, field in self._columns if cells[i] and not cells[i].startswith("[")}
            index = int(facts["index"]) if facts.get("index", "").isdecimal() and len(facts["index"]) < 5 else None
            place = index if index is not None else len(self._infos)
            id = facts.get("id") or f"imported:{facts.get('pci_bus') or facts.get('serial') or place}"
            self._ids[key] = id
            known = any(facts.get(name) for name in ("id", "serial", "pci_bus"))
            info = DeviceInfo(
                id,
                facts.get("name") or self._given or f"device {place}",
                index=index if index is not None or known else place,
                serial=facts.get("serial"),
                pci_bus=facts.get("pci_bus"),
                driver=facts.get("driver"),
                vbios=facts.get("vbios"),
            )
            self._infos.setdefault(id, info)
        return self._ids[key]

    def infos(self) -> list[DeviceInfo]:
        """All boards, in order of appearance."""
        return list(self._infos.values())
