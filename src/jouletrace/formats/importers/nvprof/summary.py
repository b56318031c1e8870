"""Summaries of ``nvprof``: time, calls, mean, least and most of each kernel and API call."""

from __future__ import annotations

import re

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.nvprof.sections import Section, is_units, seconds
from jouletrace.formats.importers.stated import Stated

_ROW = re.compile(
    r"^\s*(?:(?P<type>[A-Z][\w ]*?):\s+)?(?P<share>[\d.]+)%\s+(?P<time>\S+)\s+(?P<calls>\d+)\s+"
    r"(?P<avg>\S+)\s+(?P<min>\S+)\s+(?P<max>\S+)\s+(?P<name>\S.*)$"
)
_TIMES = {"time": "time_s", "avg": "time_mean_s", "min": "time_min_s", "max": "time_max_s"}


def take(section: Section, stated: Stated, left: Left) -> None:
    """Add the rows of a summary: kernels and copies of the GPU, other calls as ranges."""
    group = section.title.rstrip(":")
    for line, row in _rows(section):
        group = row.pop("type", "") or group
        calls = row["calls"]
        times = {key: seconds(row[key], row.get(f"{key} unit", "")) for key in _TIMES}
        if not calls.isdecimal() or len(calls) > 15 or times["time"] is None:
            left.add("broken_rows", "rows of a summary can't be read", place=f"line {line}")
            continue
        gpu = not re.match(r"api|openacc|openmp", group, re.I)
        unit = stated.unit("kernel" if gpu else "range", row["name"], count=int(calls))
        for key, metric in _TIMES.items():
            stated.add(unit, metric, times[key], int(calls))
        share = seconds(row["share"].rstrip("%"))
        stated.add(unit, "share", None if share is None else share / 100, int(calls))


def _rows(section: Section) -> list[tuple[int, dict[str, str]]]:
    """Line and cells by name; what doesn't fit has no calls, and is counted by that."""
    broken = {"type": "", "calls": "", "time": "", "avg": "", "min": "", "max": ""}
    found: list[tuple[int, dict[str, str]]] = []
    if not section.csv:
        for line, text in section.lines:
            match = _ROW.match(text)
            if match:
                found.append((line, {key: value or "" for key, value in match.groupdict().items()}))
            elif not text.lstrip().startswith(("No kernels", "No API", "API calls:", "GPU activities:")):
                found.append((line, dict(broken)))
        return found
    names = [name.lower().replace("time(%)", "share") for name in section.names()]
    stated_units: dict[str, str] = {}
    for line, cells in section.rows():
        if cells is None or len(cells) != len(names):
            found.append((line, dict(broken)))
        elif is_units(cells):
            stated_units = {f"{name} unit": cell for name, cell in zip(names, cells, strict=True)}
        else:
            found.append(
                (line, {**broken, "name": "", "share": "", **dict(zip(names, cells, strict=True)), **stated_units})
            )
    return found
