"""Output of ``nvidia-smi``: ``dmon``, ``--query-gpu`` in CSV, and repeated printings of its table."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, ImportOptions, decode_text, read_head, read_text
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.delimited import left_out_texts, read_delimited
from jouletrace.formats.importers.log import LIMIT, Log
from jouletrace.formats.importers.units import decimal_sign
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

_OF_DMON: dict[str, tuple[str, str]] = {
    "pwr": ("power_w", "W"),
    "gtemp": ("temperature_c", "C"),
    "temp": ("temperature_c", "C"),
    "mtemp": ("temperature_memory_c", "C"),
    "sm": ("utilization_gpu_pct", "%"),
    "mem": ("utilization_memory_pct", "%"),
    "enc": ("utilization_encoder_pct", "%"),
    "dec": ("utilization_decoder_pct", "%"),
    "jpg": ("utilization_jpeg_pct", "%"),
    "ofa": ("utilization_optical_flow_pct", "%"),
    "mclk": ("clock_memory_mhz", "MHz"),
    "pclk": ("clock_sm_mhz", "MHz"),
    "fb": ("memory_used_bytes", "MiB"),  # printed as MB, but MiB
    "bar1": ("memory_bar1_bytes", "MiB"),
    "pviol": ("violation_power_pct", "%"),
    "tviol": ("violation_thermal", ""),
    "rxpci": ("pcie_received", "MB/s"),
    "txpci": ("pcie_sent", "MB/s"),
}
"""Channel of each column of ``dmon``, and its unit where the header has none."""

_DMON_HEADER = re.compile(r"^#\s*(?:(?:date|time)[\s,]+){0,2}gpu[\s,]+(?!.*\bpid\b)\S", re.I | re.M)

_OF_QUERY: dict[str, str] = {
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
"""Channel of each field of ``--query-gpu``."""

_USUAL = {"power": "W", "temperature": "C", "clock_": "MHz", "utilization": "%"}
"""Units of fields that print none, by the beginning of their channel: temperatures never do."""

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

_BANNER = re.compile(r"NVIDIA-SMI\s+\S+\s+Driver Version:\s*(\S+)")
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d{1,2} \d{1,2}:\d{2}:\d{2}\s+(?:[A-Z]{3,4} )?\d{4}")
_BOARD = re.compile(
    r"^\|\s*(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_STATE = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<pstate>\S+)\s+"
    r"(?P<power>N/A|[^\s/]+)\s*/\s*(?P<limit>\S+)\s*\|"
    r"\s*(?:(?P<used>\d{1,9})MiB\s*/\s*(?P<memory>\d{1,9})MiB|[^|]*?)\s*\|\s*(?P<busy>\S+)"
)
"""Cells without a value read N/A; with MIG on, memory and utilisation are among them."""


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of one of the three."""
    return _dialect(decode_text(head)) != ""


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log of ``dmon`` or ``--query-gpu``, or tables of ``nvidia-smi``.

    Raises:
        BadInputError: If it is none of them, holds no reading, or the time zone is unknown.
    """
    dialect = _dialect(decode_text(read_head(path)))
    if not dialect:
        raise BadInputError(f"{path}: not recognised as a file of nvidia_smi")
    log = Log(path, options)
    text = read_text(path, log.left)
    if dialect == "dmon":
        _read_dmon(log, text)
    elif dialect == "query-gpu":
        _read_query(path, log, text, options)
    else:
        _read_tables(log, text, options)
    return log.run("nvidia_smi", "tables" if dialect == "table" else "rows", dialect=dialect)


def _dialect(head: str) -> str:
    """Which of the outputs begins with ``head``; "" for none. ``pmon``, which counts processes, is excluded."""
    if _DMON_HEADER.search(head):
        return "dmon"
    if _is_query(head.lstrip().split("\n", 1)[0]):
        return "query-gpu"
    return "table" if _BANNER.search(head) else ""


def _is_query(first: str) -> bool:
    if _STAMPED.match(first):
        return True
    names = [cell for cell in re.split(r"[,;\t]", first) if cell.strip()]
    known = [cell for cell in names if _FIELD.match(cell)]
    telling = any("." in cell or "timestamp" in cell for cell in known)
    return telling and len(known) == len(names) and any(_name(cell) in _OF_QUERY for cell in names)


def _read_dmon(log: Log, text: str) -> None:
    """Columns between spaces under two header lines, with or without dates and times."""
    decimal = decimal_sign(re.findall(r"\d{1,12}(?:[.,]\d{1,12})+", text[:HEAD_BYTES]))
    names: list[str] = []
    stated: list[str] = []
    commas = False
    for line, row in enumerate(text.split("\n"), start=1):
        heading = row.lstrip().startswith("#")
        commas = "," in row if heading else commas
        cells = (row.replace(",", " ") if commas else row).lstrip("# \t" if heading else None).split()
        if heading and "gpu" in (lower := [cell.lower() for cell in cells]):
            names, stated = lower, []
        elif heading:
            stated = cells if len(cells) == len(names) else stated
        elif cells and not names:
            log.left.add("not_a_row", "lines stand before any header", place=f"line {line}")
        elif cells:
            _dmon_row(log, line, names, stated, cells, decimal)
    log.devices = dict(sorted(log.devices.items()))


def _dmon_row(log: Log, line: int, names: list[str], stated: list[str], cells: list[str], decimal: str) -> None:
    at = names.index("gpu")
    if len(cells) != len(names) or not cells[at].isdecimal() or len(cells[at]) > 4:
        log.left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
        return
    device = log.gpu(cells[at])
    log.row(" ".join(cells[:at]), device)
    for k in range(at + 1, len(cells)):
        name = names[k]
        channel, usual = _OF_DMON.get(name, (name, ""))
        place = f"line {line}, column {name}"
        value = log.left.number(cells[k], decimal, place)
        if value is None:
            continue
        own = units.unit(usual) or units.NO_UNIT
        unit: units.Unit | None = own
        if stated and name not in ("fb", "bar1"):
            unit = log.left.unit(stated[k], own, place) if usual else units.unit(stated[k]) or own
        if unit is not None:
            log.add(device, channel, value, unit, f"nvidia-smi dmon, {name}")


def _read_query(path: Path, log: Log, text: str, options: ImportOptions) -> None:
    """CSV with units in the header or the cells, with or without a header."""
    text = text.lstrip()
    table = read_delimited(text, log.left, header=_without_header(text))
    names = [_name(cell) for cell in table.header]
    if not any(name in _OF_QUERY or name.startswith("column ") for name in names):
        raise BadInputError(f"{path}: no column of the header is a reading: {', '.join(table.header)[:120]}")
    identity = {i: _IDENTITY[name] for i, name in enumerate(names) if name in _IDENTITY}
    boards: dict[tuple[str, ...], str] = {}
    stamp = names.index("timestamp") if "timestamp" in names else None
    readings = [k for k, name in enumerate(names) if name not in _IDENTITY and name != "timestamp"]
    known = [k for k in readings if names[k] in _OF_QUERY]
    texts = left_out_texts(table, [k for k in readings if k not in known], log.left)
    readings = [k for k in readings if k not in texts]
    decimal = decimal_sign(units.split(row[k])[0] for row in table.rows[:200] for k in known)
    for cells, line in zip(table.rows, table.lines, strict=True):
        key = tuple(cells[i] for i in identity)
        if key not in boards:
            facts = {fact: cells[i] for i, fact in identity.items() if cells[i][:1] != "[" and not is_blank(cells[i])}
            boards[key] = _board(log, facts, options.device)
        device = boards[key]
        log.row(cells[stamp] if stamp is not None else "", device)
        for k in readings:
            _query_cell(log, device, names[k], table.header[k], cells[k], f"line {line}, column {names[k]}", decimal)
    for device in log.devices:  # if power.draw itself wasn't requested, energy is computed from a related field
        there = log.channels(device)
        other = next((name for name in ("power_instant_w", "power_average_w") if name in there), None)
        if POWER not in there and other is not None:
            log.rename(device, other, POWER)


def _name(header: str) -> str:
    return header.partition("[")[0].strip().strip("\"'").lower()


def _without_header(text: str) -> list[str]:
    """Columns of a file of ``--format=csv,noheader``, identified by the units in its cells alone; else none."""
    first = text.split("\n", 1)[0]
    if not _STAMPED.match(first):
        return []
    names = ["timestamp"]
    for i, cell in enumerate(first.split(",")[1:], start=2):
        watts = units.split(cell.strip())[1] == "W" and "power.draw" not in names
        names.append("power.draw" if watts else f"column {i}")
    return names


def _query_cell(log: Log, device: str, name: str, header: str, cell: str, place: str, decimal: str) -> None:
    """Add a cell: a number with or without its unit, a performance state ("P0") or bits ("0x04")."""
    printed, stated = units.split(cell)
    if re.fullmatch(r"P\d{1,2}", cell):
        printed, stated = cell[1:], ""
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        printed, stated = str(int(cell, 16)), ""
    value = log.left.number(printed, decimal, place)
    if value is None:
        return
    channel = _OF_QUERY.get(name) or re.sub(r"\W+", "_", name).strip("_")
    unit = log.left.unit(stated or header.partition("[")[2].partition("]")[0], _usual(channel), place)
    if unit is None:
        return
    log.add(device, channel, value, unit, f"nvidia-smi --query-gpu={name}", name.rpartition(".")[2])


def _usual(channel: str) -> units.Unit:
    """The unit of a channel's cells where neither they nor the heading state one."""
    name = next((name for start, name in _USUAL.items() if channel.startswith(start)), "")
    return units.UNITS.get(name, units.NO_UNIT)


def _board(log: Log, facts: dict[str, str], given: str | None) -> str:
    """Id of the GPU that the identity columns of a row describe."""
    number, uuid, name = (facts.pop(field, "") for field in ("index", "id", "name"))
    index = int(number) if number.isdecimal() and len(number) < 5 else None
    place = index if index is not None else len(log.devices)
    mark = uuid or facts.get("pci_bus") or facts.get("serial")
    id = uuid or f"imported:{mark or place}"
    return log.device(id, name or given or f"device {place}", index=index if mark else place, **facts)


def _read_tables(log: Log, text: str, options: ImportOptions) -> None:
    """The table that plain ``nvidia-smi`` prints, once or in a loop (``-l``, ``watch``, a shell's ``while``)."""
    date, begun, driver, board = "", False, "", ""
    for line, row in enumerate(map(str.strip, text.split("\n")), start=1):
        if found := _DATE.match(row):
            date = found.group()
            log.row(date)
            begun = True
        elif found := _BANNER.search(row):
            driver = found[1]
            if not date:
                log.row("")
            date, begun = "", True
        elif found := _BOARD.match(row):
            if board:
                log.left.add("no_state", "GPUs are named without a line of readings", place=f"line {line}")
            name = options.device or found[2].removesuffix("...")
            index = int(found[1])
            board = log.device(f"imported:{index}", name, index=index, pci_bus=found[3], driver=driver)
        elif board and row.startswith("|"):
            if not begun:
                log.row("")
                begun = True
            if found := _STATE.match(row):
                _table_row(log, log.devices[board], found, line)
            else:
                log.left.add("no_state", "GPUs are named without a line of readings", place=f"line {line}")
            board = ""


def _table_row(log: Log, device: DeviceInfo, found: re.Match[str], line: int) -> None:
    if found["memory"]:
        device.memory_bytes = int(found["memory"]) * 2**20
    if is_blank(found["power"]):
        log.left.add("missing_cells", "lines of readings lack the power", place=f"line {line}")
    readings = {
        "power_w": (found["power"], "W"),
        LIMIT: (found["limit"], "W"),
        "temperature_c": (found["temperature"], "C"),
        "memory_used_bytes": (found["used"] or "", "MiB"),
        "pstate": (found["pstate"].removeprefix("P"), ""),
        "utilization_gpu_pct": (found["busy"], "%"),
        "fan_pct": (found["fan"], "%"),
    }
    for channel, (cell, usual) in readings.items():
        if is_blank(cell):
            continue
        digits, printed = units.split(cell)
        place = f"line {line}, {channel}"
        value = log.left.number(digits, ".", place)
        unit = log.left.unit(printed, units.unit(usual) or units.NO_UNIT, place)
        if value is not None and unit is not None:
            log.add(device.id, channel, value, unit, "nvidia-smi, table")
