"""Metrics and events of ``nvprof`` by kernel, and what its system profiling comes to."""

from __future__ import annotations

import re

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.nvprof.sections import Section
from jouletrace.formats.importers.stated import Stated

_VALUE = r"(?:\w+ \(\d+\)|\S+)"
_METRIC = re.compile(rf"^\s*(\d+)\s+(\S+)\s{{2,}}(\S.*?)\s{{2,}}({_VALUE})\s+({_VALUE})\s+({_VALUE})\s*$")
_EVENT = re.compile(r"^\s*(\d+)\s+(\w+)\s+([\d.e+]+)\s+([\d.e+]+)\s+([\d.e+]+)(?:\s+[\d.e+]+)?\s*$")
_SYSTEM = re.compile(
    r"^\W*(?P<name>SM Clock|Memory Clock|Temperature|Power|Fan)[^(]*\((?P<unit>[^)]*)\)\W+(?P<count>\d+)\W+"
    r"(?P<avg>[\d.]+)\W+(?P<min>[\d.]+)\W+(?P<max>[\d.]+)\W*$"
)
_SYSTEM_METRICS = {
    "SM Clock": "clock_sm",
    "Memory Clock": "clock_memory",
    "Temperature": "temperature",
    "Power": "power",
    "Fan": "fan",
}


def take(section: Section, stated: Stated, left: Left) -> None:
    """Add metrics: the mean of each is a figure of its kernel, with its least and most beside it."""
    units_of: dict[tuple[str, str], int] = {}
    for line, device, kernel, invocations, metric, values in _rows(section, left):
        numbers = [_si(value) for value in values]
        if not invocations.isdecimal() or len(invocations) > 15 or any(value is None for value in numbers):
            left.add("not_a_number", "metrics have values that are no numbers", place=f"line {line}")
            continue
        unit = units_of.get((device, kernel))
        if unit is None:
            unit = units_of[device, kernel] = stated.unit(
                "kernel", kernel, module=device or None, count=int(invocations)
            )
        for suffix, value in zip(("_min", "_max", ""), numbers, strict=True):
            if value is not None:
                # The unit goes last, by which a metric is printed.
                stated.add(unit, f"{metric}{suffix}{value[1].suffix}", value[0], int(invocations))


def _rows(section: Section, left: Left) -> list[tuple[int, str, str, str, str, list[str]]]:
    """Line, device, kernel, invocations, metric and the texts of its least, most and mean value."""
    found: list[tuple[int, str, str, str, str, list[str]]] = []
    if section.csv:
        names = section.names()
        for line, cells in section.rows():
            if cells is None or len(cells) != len(names):
                left.add("broken_rows", "rows of metrics do not fit their header", place=f"line {line}")
                continue
            row = dict(zip(names, cells, strict=True))
            metric = row.get("Metric Name") or row.get("Event Name") or ""
            if row.get("Device") or metric:
                values = [row.get(key, "") for key in ("Min", "Max", "Avg")]
                found.append(
                    (line, row.get("Device", ""), row.get("Kernel", ""), row.get("Invocations", ""), metric, values)
                )
        return found
    device = kernel = ""
    for line, text in section.lines:
        plain = text.strip()
        if plain.startswith('Device "'):
            device = plain.removeprefix('Device "').rstrip('"')
        elif plain.startswith("Kernel:"):
            kernel = plain.removeprefix("Kernel:").strip()
        elif row_found := _METRIC.match(text):
            found.append((line, device, kernel, row_found[1], row_found[2], [row_found[4], row_found[5], row_found[6]]))
        elif event := _EVENT.match(text):
            found.append((line, device, kernel, event[1], event[2], [event[3], event[4], event[5]]))
        else:
            left.add("broken_rows", "rows of metrics can't be read", place=f"line {line}")
    return found


def _si(text: str) -> tuple[float, units.Unit] | None:
    """A value in SI units, with its unit; of "Mid (5)" the number."""
    level = re.fullmatch(r"\w+ \((\d+)\)", text)
    digits, printed = (level[1], "") if level else units.split(text)
    unit = units.unit(printed)
    value = plain_number(digits.replace(",", ""))
    return None if value is None else (value * (unit.factor if unit else 1.0), unit or units.NO_UNIT)


def take_system(section: Section, stated: Stated, left: Left) -> None:
    """Add what system profiling comes to: mean, least and most of clocks, temperature and power of a board."""
    unit: int | None = None
    device = ""
    for line, text in section.lines:
        found = _SYSTEM.search(text) or _SYSTEM.search(text.partition(",")[2])
        if text.strip().startswith('Device "'):
            device, unit = text.strip().removeprefix('Device "').rstrip('"'), None
        elif found:
            name = device or text.partition(",")[0].strip('" ')
            unit = stated.unit("device", name or "GPU") if unit is None else unit
            kind = units.unit(found["unit"].partition("/")[0]) or units.NO_UNIT
            values = {key: _si(found[key]) for key in ("avg", "min", "max")}
            if any(value is None for value in values.values()):
                left.add("not_a_number", "readings are no numbers", place=f"line {line}")
                continue
            for key, suffix in (("avg", ""), ("min", "_min"), ("max", "_max")):
                metric = f"{_SYSTEM_METRICS[found['name']]}{suffix}{kind.suffix}"
                value = values[key]
                stated.add(unit, metric, value[0] * kind.factor if value else None, int(found["count"][:15]))
        else:
            left.add("broken_rows", "rows of system profiling can't be read", place=f"line {line}")
