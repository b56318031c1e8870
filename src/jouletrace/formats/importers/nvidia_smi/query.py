"""``nvidia-smi --query-gpu=... --format=csv``: units in the header or the cells, with or without a header."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_text
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.numbers import decimal_sign
from jouletrace.run import Run
from jouletrace.run.channels import POWER

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
"""Fields that identify the GPU of a row."""

_FIELD = re.compile(
    r"^\W*(timestamp|index|name|uuid|gpu_\w+|pstate|serial|count|pci\.\w+|fan\.speed|driver_version|"
    r"(power|clocks|temperature|utilization|memory|enforced|clocks_\w+|ecc|encoder|mig)[.\w]*)\s*(\[[^\]]*\])?\W*$"
)
_STAMPED = re.compile(r"^\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}\s*,")


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of CSV of ``--query-gpu``."""
    text = decode_text(head)
    first = text.lstrip().split("\n", 1)[0]
    if _STAMPED.match(first):
        return True
    names = [cell for cell in re.split(r"[,;\t]", first) if cell.strip()]
    known = [cell for cell in names if _FIELD.match(cell)]
    telling = any("." in cell or "timestamp" in cell for cell in known)
    return telling and len(known) == len(names) and any(_name(cell) in CHANNELS for cell in names)


def read(path: Path, options: ImportOptions) -> Run:
    """Read CSV of ``nvidia-smi --query-gpu``.

    Raises:
        BadInputError: If it holds no reading, or the time zone is unknown.
    """
    log = Log(path, options)
    text = read_text(path, log.left).lstrip()
    table = read_delimited(text, log.left, header=_without_header(text))
    names = [_name(cell) for cell in table.header]
    if not any(name in CHANNELS or name.startswith("column ") for name in names):
        raise BadInputError(f"{path}: no column of the header is a reading: {', '.join(table.header)[:120]}")
    boards = _Boards(log, names, options.device)
    stamp = names.index("timestamp") if "timestamp" in names else None
    readings = [k for k, name in enumerate(names) if name not in _IDENTITY and name != "timestamp"]
    known = [k for k in readings if names[k] in CHANNELS]
    decimal = decimal_sign(units.split(row[k])[0] for row in table.rows[:200] for k in known)
    for cells, line in zip(table.rows, table.lines, strict=True):
        device = boards.device(cells)
        log.row(cells[stamp] if stamp is not None else "", device)
        for k in readings:
            _take(log, device, names[k], table.header[k], cells[k], f"line {line}, column {names[k]}", decimal)
    for device in log.devices:  # if power.draw itself wasn't requested, energy is computed from a related field
        there = log.readings.channels(device)
        other = next((name for name in ("power_instant_w", "power_average_w") if name in there), None)
        if POWER not in there and other is not None:
            log.readings.rename(device, other, POWER)
    return log.run("nvidia_smi", "rows", dialect="query-gpu")


def _name(header: str) -> str:
    return header.partition("[")[0].strip().strip("\"'").lower()


def _without_header(text: str) -> list[str] | None:
    """Columns of a file of ``--format=csv,noheader``, identified by the units in its cells alone."""
    first = text.split("\n", 1)[0]
    if not _STAMPED.match(first):
        return None
    names = ["timestamp"]
    for i, cell in enumerate(first.split(",")[1:], start=2):
        watts = units.split(cell.strip())[1] == "W" and "power.draw" not in names
        names.append("power.draw" if watts else f"column {i}")
    return names


def _take(log: Log, device: str, name: str, header: str, cell: str, place: str, decimal: str) -> None:
    """Add a cell: a number with or without its unit, a performance state ("P0") or bits ("0x04")."""
    printed, stated = units.split(cell)
    if re.fullmatch(r"P\d{1,2}", cell):
        printed, stated = cell[1:], ""
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        printed, stated = str(int(cell, 16)), ""
    value = log.left.number(printed, decimal, place)
    if value is None:
        return
    unit = units.unit(stated or header.partition("[")[2].partition("]")[0])
    if unit is None:
        log.left.add("unknown_units", "cells have an unknown unit", place=place)
        return
    channel = CHANNELS.get(name) or re.sub(r"\W+", "_", name).strip("_")
    if channel.startswith("temperature") and unit is units.NO_UNIT:  # the columns of temperatures name no unit
        unit = units.UNITS["C"]
    log.add(device, channel, value, unit, f"nvidia-smi --query-gpu={name}")


class _Boards:
    """The GPUs of the rows, by their identity columns."""

    def __init__(self, log: Log, names: list[str], given: str | None) -> None:
        self._log = log
        self._columns = [(i, _IDENTITY[name]) for i, name in enumerate(names) if name in _IDENTITY]
        self._given = given
        self._ids: dict[tuple[str, ...], str] = {}

    def device(self, cells: list[str]) -> str:
        """Id of the GPU of a row."""
        key = tuple(cells[i] for i, _ in self._columns)
        if key not in self._ids:
            facts = {field: cells[i] for i, field in self._columns if cells[i] and not cells[i].startswith("[")}
            number, uuid, name = (facts.pop(field, "") for field in ("index", "id", "name"))
            index = int(number) if number.isdecimal() and len(number) < 5 else None
            place = index if index is not None else len(self._log.devices)
            mark = uuid or facts.get("pci_bus") or facts.get("serial")
            id = uuid or f"imported:{mark or place}"
            shown = place if not mark else index
            self._ids[key] = self._log.device(id, name or self._given or f"device {place}", index=shown, **facts)
        return self._ids[key]
