"""Metrics and events of ``nvprof`` by kernel."""

from __future__ import annotations

import re

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.nvprof.sections import Section
from jouletrace.formats.importers.stated import Stated

_VALUE = r"(?:\w+ \(\d+\)|\S+)"
_METRIC = re.compile(
    rf"^\s*(?P<invocations>\d+)\s+(?P<name>\S+)\s{{2,}}\S.*?\s{{2,}}(?P<min>{_VALUE})\s+(?P<max>{_VALUE})\s+(?P<avg>{_VALUE})\s*$"
)
_EVENT = re.compile(
    r"^\s*(?P<invocations>\d+)\s+(?P<name>\w+)\s+(?P<min>[\d.e+]+)\s+(?P<max>[\d.e+]+)\s+(?P<avg>[\d.e+]+)"
    r"(?:\s+[\d.e+]+)?\s*$"
)


def take(section: Section, stated: Stated, left: Left) -> None:
    """Add metrics: the mean of each is a figure of its kernel, with its minimum and maximum."""
    units_of: dict[tuple[str, str], int] = {}
    device = kernel = ""
    for line, text, row in section.rows(_METRIC, _EVENT):
        plain = text.strip()
        if row is None and not section.csv and plain.startswith('Device "'):
            device = plain.removeprefix('Device "').rstrip('"')
        elif row is None and not section.csv and plain.startswith("Kernel:"):
            kernel = plain.removeprefix("Kernel:").strip()
        elif row is None:
            left.add("broken_rows", "rows of metrics can't be read", place=f"line {line}")
        else:
            place = row.get("device", device), row.get("kernel", kernel)
            _metric(place, row, stated, units_of, left, line)


def _metric(
    place: tuple[str, str],
    row: dict[str, str],
    stated: Stated,
    units_of: dict[tuple[str, str], int],
    left: Left,
    line: int,
) -> None:
    """One metric of a kernel on a device."""
    metric = row.get("metric name") or row.get("event name") or row.get("name", "")
    count = row.get("invocations", "")
    values = {key: _si(row.get(key, "")) for key in ("min", "max", "avg")}
    if not (place[0] or metric):
        return
    if not count.isdecimal() or len(count) > 15 or None in values.values():
        left.add("not_a_number", "metrics have values that aren't numbers", place=f"line {line}")
        return
    if place not in units_of:
        units_of[place] = stated.unit("kernel", place[1], module=place[0] or None, count=int(count))
    for key, value in values.items():
        if value is not None:
            # The unit comes last in the printed form of a metric.
            suffix = "" if key == "avg" else f"_{key}"
            stated.add(units_of[place], f"{metric}{suffix}{value[1].suffix}", value[0], int(count))


def _si(text: str) -> tuple[float, units.Unit] | None:
    """A value in SI units, with its unit; for "Mid (5)" the number."""
    level = re.fullmatch(r"\w+ \((\d+)\)", text)
    digits, printed = (level[1], "") if level else units.split(text)
    unit = units.unit(printed)
    value = plain_number(digits.replace(",", ""))
    return None if value is None else (value * (unit.factor if unit else 1.0), unit or units.NO_UNIT)
