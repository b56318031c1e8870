"""Columns of ``nvidia-smi --query-gpu``: their names, and what users' own columns beside them state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from operator import eq

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.delimited import Delimited, first_rows, header_start, left_out_texts
from jouletrace.formats.importers.table_headings import HOST, NUMBER, UUID, role_of
from jouletrace.run.channels import ENERGY_COUNTER, POWER

STAMP = ("date", "time", "timestamp")
"""Names of columns of times."""

OF_QUERY: dict[str, str] = {
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
    "total_energy_consumption": ENERGY_COUNTER,
    "pstate": "pstate",
    "clocks_event_reasons.active": "throttle_bits",
    "clocks_throttle_reasons.active": "throttle_bits",
    "enforced.power.limit": "power_limit_w",
}
"""Channel of each field of ``--query-gpu``."""

_TELLTALE = {name for name in OF_QUERY if "." in name}
"""Fields whose names no other tool's table has."""

_ALONE = re.compile(r"^[a-z_]+(?:\.[a-z_]+)*(?: \[.{1,5}\])?\s*$", re.M)
"""A line that may be the heading of a single column."""

_COUNTER = re.compile(r"\btotal_energy_consumption \[mJ\]")
"""nvidia-smi prints the unit of its counter always; that of amd-smi has the name alone, and is in joules."""

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

_BY_ROLE = {NUMBER: "index", UUID: "id", HOST: "host"}
"""Facts that users' own columns state, by their role in any table."""

TELLING = {"index", "id", "serial", "pci_bus"}
"""Facts that distinguish GPUs."""

WITH_INDEX = "nvidia-smi --query-gpu=timestamp,index,uuid,name,power.draw --format=csv -lms 100"

WITH_HEADER = "name the columns in a first line, such as timestamp, index, power.draw [W], one name for each column"

STAMPED = re.compile(r"^\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}\s*,")

_BY_CELLS = {
    "uuid": re.compile(r"(GPU|MIG)-\S+"),
    "pci.bus_id": re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"),
    "name": re.compile(r"(NVIDIA|Tesla|GeForce|Quadro)\b.+"),
}
"""Fields that identify a GPU, by the form of their cells."""

_SHOWN, MOST_DEVICES, _MOST = 200, 16, 0.9
"""Rows that show what a column without a name holds; devices of a host; share of rows with which numbers repeat."""


def query_start(text: str) -> int | None:
    """Index of the header of ``--query-gpu``, or of the first row without one; None of another file.

    Users add columns of their own, leave some out, and write lines above: one reading by its name is enough.
    """
    start = len(text) - len(text.lstrip())
    first = text[start:].split("\n", 1)[0]
    if STAMPED.match(first) or _is_query(first):
        return start
    above = header_start(text)
    if above is not None and _is_query(text[above:].split("\n", 1)[0]):
        return above
    return next((found.start() for found in _ALONE.finditer(text) if _is_query(found.group())), None)


def _is_query(first: str) -> bool:
    names = [field_name(cell) for cell in re.split(r"[,;\t|]", first)]
    return any(name in _TELLTALE for name in names) or _COUNTER.search(first) is not None


def without_header(text: str) -> list[str]:
    """Columns of a file of ``--format=csv,noheader``, by their cells: times, watts and what identifies a GPU.

    Others are "column 3"; the list is empty of a file with a header.
    """
    if not STAMPED.match(text):
        return []
    rows = first_rows("\n".join(text.split("\n", _SHOWN)[:_SHOWN]), ",", _SHOWN)
    columns = zip(*(row for row in rows if len(row) == len(rows[0])), strict=True)
    names: list[str] = []
    for number, cells in enumerate(columns, start=1):
        name = "timestamp" if not names else _by_cells(cells)
        names.append(name if name and name not in names else f"column {number}")
    return names


def _by_cells(cells: Sequence[str]) -> str:
    """The field that a column holds by its cells; "" of another."""
    if any(units.split(cell)[1] == "W" for cell in cells):
        return "power.draw"
    if _in_turn(cells):
        return "index"
    return next((name for name, form in _BY_CELLS.items() if all(map(form.fullmatch, cells))), "")


def _in_turn(cells: Sequence[str]) -> bool:
    """True of numbers of GPUs that repeat in turn, each as often as any other."""
    numbers = [units.gpu_number(cell) for cell in cells]
    count = Counter(one for one in numbers if one is not None and one < MOST_DEVICES)
    if count.total() < len(cells) or len(count) < 2 or len(cells) < 2 * len(count):
        return False
    again = sum(map(eq, numbers, numbers[len(count) :]))
    return again >= _MOST * (len(cells) - len(count)) and min(count.values()) >= _MOST * max(count.values()) - 1


def identity_columns(names: Sequence[str]) -> dict[int, str]:
    """The fact of a GPU that a column states, by the column's number: by nvidia-smi's names, then by usual ones."""
    found = {k: _IDENTITY[name] for k, name in enumerate(names) if name in _IDENTITY}
    for k, name in enumerate(names):
        fact = _BY_ROLE.get(role_of(name) or "")
        if fact is not None and name not in _IDENTITY and fact not in found.values():
            found[k] = fact
    return found


def reading_columns(left: Left, table: Delimited, names: Sequence[str], others: Collection[int | None]) -> list[int]:
    """Columns of readings; texts, and second columns of a channel but power, are left out and counted."""
    there = [k for k in range(len(names)) if k not in others]
    texts = left_out_texts(table, [k for k in there if names[k] not in OF_QUERY], left)
    channels: list[str] = []
    found: list[int] = []
    again: list[str] = []
    for k in sorted(set(there) - set(texts), key=lambda k: names[k] not in OF_QUERY):
        channel = channel_of(names[k])
        if channel in channels and channel != POWER:  # of two powers the user has to choose
            again.append(table.header[k])
        else:
            channels.append(channel)
            found.append(k)
    again = [name for name in again if name]
    left.add("unknown_columns", f"columns were left out ({', '.join(again)[:120]})", len(again))
    return sorted(found)


def channel_of(name: str) -> str:
    """The channel of a field: that of nvidia-smi, or one with the name of the column."""
    return OF_QUERY.get(name) or re.sub(r"\W+", "_", name).strip("_")


def field_name(header: str) -> str:
    """The field of a heading, without its unit."""
    return re.split(r"[\[(]", header, maxsplit=1)[0].strip().strip("\"'").lower()


def stated_unit(header: str) -> str:
    """The unit of a heading, between brackets; "" without one."""
    found = re.search(r"[\[(]([^\])]*)", header)
    return found[1] if found else ""
