"""Output of ``nvidia-smi``: ``dmon``, ``--query-gpu`` in CSV, and repeated printings of its table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, ImportOptions, decode_text, read_head, read_text
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.delimited import Delimited, read_delimited, time_between_rows, with_devices
from jouletrace.formats.importers.log import LIMIT, Log
from jouletrace.formats.importers.stamps import Stamps, time_line
from jouletrace.formats.importers.table import read_times
from jouletrace.formats.importers.table_headings import Times, find_columns
from jouletrace.formats.importers.units import decimal_sign, gpu_number
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER
from jouletrace.wings.logs.nvidia_smi_columns import (
    MOST_DEVICES,
    OF_QUERY,
    STAMP,
    TELLING,
    WITH_HEADER,
    WITH_INDEX,
    channel_of,
    field_name,
    identity_columns,
    query_start,
    reading_columns,
    stated_unit,
    without_header,
)

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

_USUAL = {
    **{"energy_counter": "mJ", "power": "W", "temperature": "C", "clock_": "MHz", "utilization": "%"},
    **{f"memory_{what}": "MiB" for what in ("used", "free", "total", "reserved")},
}
"""Units of fields that print none, by the beginning of their channel: temperatures never do."""

_KNOWN_OF_DMON = 2
"""So many columns of ``dmon`` in a header without its mark "#" are its own, and no other table's."""

_BANNER = re.compile(r"NVIDIA-SMI\s+\S+\s+Driver Version:\s*(\S+)")
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d{1,2} \d{1,2}:\d{2}:\d{2}\s+(?:[A-Z]{3,4} )?\d{4}")
_BOARD = re.compile(
    r"^\|\s*(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*(?:([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)|\S+)"
)
"""A GPU is known by its number, whatever is left of its bus."""

_STATE = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<pstate>\S+)\s+"
    r"(?P<power>N/A|[^\s/]+)\s*/\s*(?P<limit>\S+)\s*\|"
    r"\s*(?:(?P<used>\d{1,9})MiB\s*/\s*(?P<memory>\d{1,9})MiB|[^|]*?)\s*\|\s*(?P<busy>\S+)"
)
"""Cells without a value read N/A; with MIG on, memory and utilisation are among them."""


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of one of the three."""
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
    stamps = None
    if dialect == "dmon":
        _read_dmon(path, log, text)
    elif dialect == "query-gpu":
        stamps = _read_query(path, log, text, options)
    elif not _read_tables(log, text, options):
        _refuse_unread_times(path, text, "tables of nvidia-smi", "")
    return log.run("nvidia_smi", "tables" if dialect == "table" else "rows", dialect=dialect, stamps=stamps)


def _dialect(head: str) -> str:
    """Which of the outputs begins with ``head``; "" for none. ``pmon``, which counts processes, is excluded."""
    if any(_of_dmon(line) for line in head.split("\n")):
        return "dmon"
    if query_start(head) is not None:
        return "query-gpu"
    return "table" if _BANNER.search(head) else ""


def _of_dmon(line: str) -> list[str]:
    """Names of the columns of a header of ``dmon``, with or without its mark "#"; none of another line."""
    marked = line.lstrip().startswith("#")
    names = [name.strip('"').lower() for name in line.lstrip("# \t").replace(",", " ").split()]
    if "gpu" not in names or "pid" in names:
        return []
    at = names.index("gpu")
    known = sum(name in _OF_DMON for name in names[at + 1 :])
    own = set(names[:at]) <= set(STAMP) and len(names) > at + 1
    return names if (marked and own) or (known >= _KNOWN_OF_DMON and "pwr" in names) else []


def _read_dmon(path: Path, log: Log, text: str) -> None:
    """Columns between spaces under two header lines, with or without dates and times.

    Raises:
        BadInputError: If rows without times are below lines of times.
    """
    decimal = decimal_sign(re.findall(r"\d{1,12}(?:[.,]\d{1,12})+", text[:HEAD_BYTES]))
    names: list[str] = []
    stated: list[str] = []
    commas = False
    for line, row in enumerate(text.split("\n"), start=1):
        named = _of_dmon(row) if "gpu" in row.lower() else []
        marked = row.lstrip().startswith("#")
        commas = "," in row if named or marked else commas
        cells = (row.replace(",", " ") if commas else row).lstrip("# \t" if named or marked else None).split()
        if named:
            names, stated = named, []
        elif marked and not _of_gpu(names, cells):  # a row may begin with a stray "#"
            stated = cells if len(cells) == len(names) else stated
        elif cells and not names:
            log.left.add("not_a_row", "lines stand before any header", place=f"line {line}")
        elif cells:
            _dmon_row(log, line, names, stated, cells, decimal)
    if not set(STAMP) & set(names) and (dated := time_between_rows(text)):
        wrong = f"{dated} between rows of nvidia-smi dmon holds a time, which isn't read"
        raise BadInputError(f"{path}: {wrong}: log it in each row, nvidia-smi dmon -o DT")
    log.devices = dict(sorted(log.devices.items()))


def _of_gpu(names: list[str], cells: list[str]) -> bool:
    """True if cells are a row of ``dmon`` below these names."""
    return len(cells) == len(names) > 0 and gpu_number(cells[names.index("gpu")]) is not None


def _dmon_row(log: Log, line: int, names: list[str], stated: list[str], cells: list[str], decimal: str) -> None:
    at = names.index("gpu")
    if not _of_gpu(names, cells):
        log.left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
        return
    device = log.gpu(cells[at])
    log.row(" ".join(cell for name, cell in zip(names[:at], cells, strict=False) if name in STAMP), device)
    for k in range(at + 1, len(cells)):
        name = names[k]
        channel, usual = _OF_DMON.get(name, (name, ""))
        place = f"line {line}, column {name}"
        value = log.left.number(cells[k], decimal, place)
        if value is None:
            log.empty(device, channel, name)
            continue
        own = units.unit(usual) or units.NO_UNIT
        unit: units.Unit | None = own
        if stated and name not in ("fb", "bar1"):
            unit = log.left.unit(stated[k], own, place) if usual else units.unit(stated[k]) or own
        if unit is not None:
            log.add(device, channel, value, unit, f"nvidia-smi dmon, {name}")


def read_rows(path: Path, log: Log, table: Delimited, options: ImportOptions, dialect: str) -> Run:
    """Read rows under the headings of ``--query-gpu``.

    Raises:
        BadInputError: As ``read``.
    """
    stamps = _read_rows(path, log, "", table, options, unnamed=False)
    return log.run("nvidia_smi", "rows", dialect=dialect, stamps=stamps)


def _read_query(path: Path, log: Log, text: str, options: ImportOptions) -> Stamps | None:
    """CSV with units in the header or the cells, with or without a header; returns the times of a user's own column."""
    start = query_start(text) or 0
    unnamed = without_header(text[start:])
    if unnamed and "power.draw" not in unnamed:
        by_number = "jouletrace import --format table --map time=1 --map power=2 takes columns by their numbers"
        raise BadInputError(f"{path}: no header names the power, and no cell is in W: {WITH_HEADER}; or {by_number}")
    table = read_delimited(text, log.left, header=unnamed, start=start)
    return _read_rows(path, log, text, table, options, unnamed=bool(unnamed))


def _read_rows(
    path: Path, log: Log, text: str, table: Delimited, options: ImportOptions, *, unnamed: bool
) -> Stamps | None:
    """Rows below their headings; returns the times of a user's own column."""
    names = [field_name(cell) for cell in table.header]
    if not any(name in OF_QUERY or name.startswith("column ") for name in names):
        raise BadInputError(f"{path}: no column of the header is a reading: {', '.join(table.header)[:120]}")
    identity = identity_columns(names)
    table = with_devices(table, [k for k, fact in identity.items() if fact in TELLING], log.left)
    apart = WITH_HEADER if unnamed else f"log the index: {WITH_INDEX}"
    log.apart = "" if set(identity.values()) & TELLING else apart
    log.bursts = True
    boards: dict[tuple[str, ...], str] = {}
    when = _time_columns(table, names, path)
    dated = not when.places and _dated(path, text, table)
    placed = dated and not set(identity.values()) & TELLING
    log.apart = "" if placed else log.apart
    log.interval = "though nvidia-smi --query-gpu has no default"
    readings = reading_columns(
        log.left, table, names, {*when.places, *identity, *(k for k, name in enumerate(names) if name in STAMP)}
    )
    known = [k for k in readings if names[k] in OF_QUERY]
    if nameless := [names[k].removeprefix("column ") for k in readings if k not in known and unnamed]:
        advice = "add the header line to have their temperature, clocks, throttling"
        log.left.add("unnamed_columns", f"columns have no name ({', '.join(nameless)}): {advice}", len(nameless))
    decimal = decimal_sign(units.split(row[k])[0] for row in table.rows[:200] for k in known)
    for cells, line, above, place in zip(table.rows, table.lines, table.times, table.places, strict=True):
        key = (*(cells[i] for i in identity), str(place) if placed else "")
        if key not in boards:
            facts = {fact: cells[i] for i, fact in identity.items() if cells[i][:1] != "[" and not is_blank(cells[i])}
            boards[key] = _board(log, {"index": key[-1], **facts}, options.device)
        device = boards[key]
        log.row(above if dated else " ".join(cells[i] for i in when.places), device)
        for k in readings:
            _query_cell(log, device, names[k], table.header[k], cells[k], f"line {line}, column {names[k]}", decimal)
    for device in log.devices:  # if power.draw itself wasn't requested, energy is computed from a related field
        there = log.channels(device)
        other = next((name for name in ("power_instant_w", "power_average_w") if name in there), None)
        if POWER not in there and other is not None:
            log.rename(device, other, POWER)
    return read_times(path, table, when, options) if when.places and "timestamp" not in names else None


def _dated(path: Path, text: str, table: Delimited) -> bool:
    """True if rows without times are in blocks below lines of times; False if nothing says when they were read.

    Raises:
        BadInputError: If lines of times can't be read, headings without times say that the tool was called for each
            block, or nothing states the GPUs of a block.
    """
    _refuse_unread_times(path, text, "rows of nvidia-smi --query-gpu", f", or log the time: {WITH_INDEX}")
    begins = [row for row, place in enumerate(table.places) if place == 0]
    if len({*table.times} - {""}) < 2:
        if len(begins) > 1:
            called = f"nvidia-smi was called {len(begins)} times, as its headings say, and nothing says when"
            raise BadInputError(f"{path}: {called}: log the time: {WITH_INDEX}")
        return False
    sizes = np.diff([*begins, len(table.places)])
    named = TELLING & set(identity_columns([field_name(cell) for cell in table.header]).values())
    if not named and (np.any(sizes[:-1] != sizes[0]) or sizes[-1] > sizes[0] or sizes[0] > MOST_DEVICES):
        many = f"between {sizes.min()} and {sizes.max()} rows are below each time: which are of which GPU?"
        raise BadInputError(f"{path}: {many} Log the index: {WITH_INDEX}")
    return True


def _refuse_unread_times(path: Path, text: str, what: str, way: str) -> None:
    """Refuse lines of times that can't be read: what is below them would have those of other lines, or none.

    Raises:
        BadInputError: If there are some.
    """
    if unread := time_between_rows(text, unread=True):
        wrong = f"{unread} between {what} holds a time that can't be read"
        raise BadInputError(f"{path}: {wrong}: print it with LC_ALL=C date{way}")


def _time_columns(table: Delimited, names: Sequence[str], path: Path) -> Times:
    """The column of nvidia-smi's times, or those of a user's own; none without either."""
    if "timestamp" in names:
        return Times((names.index("timestamp"),))
    return find_columns(table.header, {}, path).time or Times(())


def _query_cell(log: Log, device: str, name: str, header: str, cell: str, place: str, decimal: str) -> None:
    """Add a cell: a number with or without its unit, a performance state ("P0") or bits ("0x04")."""
    printed, stated = units.split(cell)
    if re.fullmatch(r"P\d{1,2}", cell):
        printed, stated = cell[1:], ""
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        printed, stated = str(int(cell, 16)), ""
    channel = channel_of(name)
    value = log.left.number(printed, decimal, place)
    if value is None:
        log.empty(device, channel, name)
        return
    unit = log.left.unit(stated or stated_unit(header), _usual(channel), place)
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
    index = gpu_number(number)
    place = index if index is not None else len(log.devices)
    mark = uuid or facts.get("pci_bus") or facts.get("serial")
    id = uuid or f"imported:{mark or place}"
    return log.device(id, name or given or f"device {place}", index=index if mark else place, **facts)


def _read_tables(log: Log, text: str, options: ImportOptions) -> bool:
    """The table that plain ``nvidia-smi`` prints, once or in a loop (``-l``, ``watch``, a shell's ``while``).

    Returns:
        True if each is below its time.
    """
    date, begun, driver, board, dated = "", False, "", "", True
    for line, row in enumerate(map(str.strip, text.split("\n")), start=1):
        own = _DATE.match(row)
        if alone := own.group() if own else "" if row[:1] in ("", "|", "+") else time_line(row):
            date = alone
            log.row(date)
            begun = True
        elif found := _BANNER.search(row):
            driver = found[1]
            if not date:
                log.row("")
                dated = False
            date, begun = "", True
        elif found := _BOARD.match(row):
            if board:
                log.left.add("no_state", "GPUs are named without a line of readings", place=f"line {line}")
            name = options.device or found[2].removesuffix("...")
            index = int(found[1])
            board = log.device(f"imported:{index}", name, index=index, pci_bus=found[3] or "", driver=driver)
        elif board and row.startswith("|"):
            if not begun:
                log.row("")
                begun = True
            if found := _STATE.match(row):
                _table_row(log, log.devices[board], found, line)
            else:
                log.left.add("no_state", "GPUs are named without a line of readings", place=f"line {line}")
            board = ""
        elif (found := _STATE.match(row)) and units.split(found["power"])[1] == "W":
            log.left.add("broken_rows", "lines of readings have none above that names their GPU", place=f"line {line}")
    return dated


def _table_row(log: Log, device: DeviceInfo, found: re.Match[str], line: int) -> None:
    if found["memory"]:
        device.memory_bytes = int(found["memory"]) * 2**20
    if is_blank(found["power"]):
        log.left.add("missing_cells", "lines of readings lack the power", place=f"line {line}")
        log.empty(device.id, POWER, "power")
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
