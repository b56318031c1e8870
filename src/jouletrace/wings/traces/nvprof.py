"""Output of ``nvprof``: summaries and metrics as text or CSV, traces of the GPU and the API as CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import NO_CLOCK, RELATIVE, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.units import plain_number, quantity
from jouletrace.run import Run
from jouletrace.wings.traces.nvprof_trace import NvprofTrace

_BANNER = re.compile(r"^=++(?:(\d+)=+)? (NVPROF is profiling|Profiling (application|result))", re.M)
_HEADERS = (
    re.compile(r"^[^\w\n]*(Type\W+)?Time\(%\)\W+Time\W+Calls\W+Avg\W+Min\W+Max\W+Name", re.M),
    re.compile(r'^"?Start"?,"?Duration"?,("?Grid X"?|"?Name"?)', re.M),
    re.compile(r'^"?Device"?,"?Kernel"?,"?Invocations"?,"?(Metric|Event) Name"?', re.M),
)
_COMMAND = re.compile(r"^=++(?:\d+=+)? (?:NVPROF is profiling process \d+, command|Profiling application): (.+)$", re.M)

_KINDS = (
    ("summary", re.compile(r"^\W*(Type\W+)?Time\(%\)\W+Time\W+Calls\W")),
    ("metrics", re.compile(r"^\W*(Device\W+Kernel\W+)?Invocations\W+(Metric|Event) Name")),
    ("trace", re.compile(r"^\W*Start\W+Duration\W")),
)
_MESSAGE = re.compile(r"^=+\d*=+ ")
_BETWEEN_ROWS = ("warning", "error", "profiling app", "nvprof is", "some kernel")
"""Beginnings of messages that end no section."""

_SUMMARY_ROW = re.compile(
    r"^\s*(?:(?P<type>[A-Z][\w ]*?):\s+)?(?P<share>[\d.]+)%\s+(?P<time>\S+)\s+(?P<calls>\d+)\s+"
    r"(?P<avg>\S+)\s+(?P<min>\S+)\s+(?P<max>\S+)\s+(?P<name>\S.*)$"
)
_TIMES = {"time": "time_s", "avg": "time_mean_s", "min": "time_min_s", "max": "time_max_s"}
_NO_ROWS = ("No kernels", "No API", "API calls:", "GPU activities:")

_VALUE = r"(?:\w+ \(\d+\)|\S+)"
_METRIC_ROW = re.compile(
    rf"^\s*(?P<invocations>\d+)\s+(?P<name>\S+)\s{{2,}}\S.*?\s{{2,}}(?P<min>{_VALUE})\s+(?P<max>{_VALUE})\s+(?P<avg>{_VALUE})\s*$"
)
_EVENT_ROW = re.compile(
    r"^\s*(?P<invocations>\d+)\s+(?P<name>\w+)\s+(?P<min>[\d.e+]+)\s+(?P<max>[\d.e+]+)\s+(?P<avg>[\d.e+]+)"
    r"(?:\s+[\d.e+]+)?\s*$"
)


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of output of ``nvprof``."""
    text = decode_text(head)
    return _BANNER.search(text) is not None or any(header.search(text) for header in _HEADERS)


def read(path: Path, options: ImportOptions) -> Run:
    """Read output of ``nvprof``: traces become spans, summaries and metrics units with figures.

    Raises:
        BadInputError: If it holds none of these.
    """
    left = Left(path)
    text = read_text(path, left)
    stated, launched = Stated("nvprof"), NvprofTrace(path, options, left)
    for section in _sections(text):
        if section.kind == "summary":
            _take_summary(section, stated, left)
        elif section.kind == "metrics":
            _take_metrics(section, stated, left)
        elif section.csv:
            launched.take(section.rows())
        else:
            left.add("text_trace", "traces are printed as text: run nvprof with --csv", place=section.title)
    if not len(stated) and not len(launched):
        raise BadInputError(f"{path}: output of nvprof without a single figure or kernel{left.first()}")
    run = new_run(path, "nvprof", RELATIVE if len(launched) else NO_CLOCK)
    if command := _COMMAND.search(text):
        run.workload["command"] = command[1].strip()
    launched.write(run)
    if len(stated):
        stated.write(run)
    left.warn(run)
    return run


@dataclass
class _Section:
    """A header and the lines under it.

    Attributes:
        kind: "summary", "metrics" or "trace".
        header: The header's line.
        title: The message above it ("Profiling result:", "API calls:").
        csv: Whether cells are separated by commas.
        lines: Line number and text of each line under it.
    """

    kind: str
    header: str
    title: str
    csv: bool
    lines: list[tuple[int, str]] = field(default_factory=list)

    def rows(self, *forms: re.Pattern[str]) -> Iterator[tuple[int, str, dict[str, str] | None]]:
        """Line, text and cells of each row, by the names of the columns in lower case; None for other lines.

        Cells of CSV get their unit from the row of units; those of text are the groups of the first of ``forms``
        that matches.
        """
        if not self.csv:
            for line, text in self.lines:
                found = next(filter(None, (form.match(text) for form in forms)), None)
                yield line, text, {key: cell or "" for key, cell in found.groupdict().items()} if found else None
            return
        names = [name.strip().lower() for name in _cells(self.header)]
        kernel = next((names.index(name) for name in ("name", "kernel") if name in names), None)
        stated = [""] * len(names)
        for line, text in self.lines:
            cells = [cell.strip() for cell in _rejoined(_cells(text), len(names), kernel)]
            if not cells or len(cells) != len(names):
                yield line, text, None
            elif _is_units(cells):
                stated = cells
            else:
                yield line, text, dict(zip(names, map(_with_unit, cells, stated), strict=True))


def _sections(text: str) -> list[_Section]:
    """The sections of a file, in order."""
    found: list[_Section] = []
    title, inside = "", False
    for number, line in enumerate(text.split("\n"), start=1):
        row = line.rstrip("\r")
        if _MESSAGE.match(row):
            title = _MESSAGE.sub("", row).strip()
            inside = inside and title.lower().startswith(_BETWEEN_ROWS)
        elif kind := next((name for name, header in _KINDS if header.match(row)), None):
            found.append(_Section(kind, row, title, row.count(",") >= 3))
            inside = True
        elif inside and row.strip():
            found[-1].lines.append((number, row))
    return found


def _cells(row: str) -> list[str]:
    """The cells of a line of CSV; none if it can't be read."""
    try:
        return next(csv.reader([row]), [])
    except csv.Error:
        return []


def _rejoined(cells: list[str], width: int, name: int | None) -> list[str]:
    """A row's cells in ``width`` cells, where the unquoted name, the cell ``name``, holds commas: "f(float*, int)"."""
    surplus = len(cells) - width
    if surplus <= 0 or name is None:
        return cells
    return [*cells[:name], ",".join(cells[name : name + surplus + 1]), *cells[name + surplus + 1 :]]


def _is_units(cells: list[str]) -> bool:
    """True if a row of a table holds the units of its columns."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(units.unit(cell.partition("/")[0]) or units.unit(cell) for cell in filled)


def _with_unit(cell: str, unit: str) -> str:
    """A cell with the unit of its column; for "295702/300000", the draw and the limit, both get it."""
    if not unit or not cell:
        return cell
    if "/" in cell:
        return "/".join(f"{part}{unit.partition('/')[0]}" for part in cell.split("/"))
    return cell if units.split(cell)[1] else f"{cell}{unit}"


def _take_summary(section: _Section, stated: Stated, left: Left) -> None:
    """Add the rows of a summary: kernels and copies of the GPU, and other calls as ranges."""
    group = section.title.rstrip(":")
    for line, text, found in section.rows(_SUMMARY_ROW):
        row = found or {}
        group = row.get("type") or group
        calls = row.get("calls", "")
        times = {metric: quantity(row.get(key, ""), "s") for key, metric in _TIMES.items()}
        if not calls.isdecimal() or len(calls) > 15 or times["time_s"] is None:
            if row or not text.lstrip().startswith(_NO_ROWS):
                left.add("broken_rows", "rows of a summary can't be read", place=f"line {line}")
            continue
        gpu = not re.match(r"api|openacc|openmp", group, re.I)
        unit = stated.unit("kernel" if gpu else "range", row.get("name", ""), count=int(calls))
        for metric, value in times.items():
            stated.add(unit, metric, value, int(calls))
        share = plain_number((row.get("share") or row.get("time(%)", "")).rstrip("%"))
        stated.add(unit, "share", None if share is None else share / 100, int(calls))


def _take_metrics(section: _Section, stated: Stated, left: Left) -> None:
    """Add metrics: the mean of each is a figure of its kernel, with its minimum and maximum."""
    units_of: dict[tuple[str, str], int] = {}
    device = kernel = ""
    for line, text, row in section.rows(_METRIC_ROW, _EVENT_ROW):
        plain = text.strip()
        if row is None and not section.csv and plain.startswith('Device "'):
            device = plain.removeprefix('Device "').rstrip('"')
        elif row is None and not section.csv and plain.startswith("Kernel:"):
            kernel = plain.removeprefix("Kernel:").strip()
        elif row is None:
            left.add("broken_rows", "rows of metrics can't be read", place=f"line {line}")
        else:
            metric = row.get("metric name") or row.get("event name") or row.get("name", "")
            count = row.get("invocations", "")
            values = [_si(row.get(key, "")) for key in ("min", "max", "avg")]
            place = row.get("device", device), row.get("kernel", kernel)
            if not (place[0] or metric):
                continue
            if not count.isdecimal() or len(count) > 15 or None in values:
                left.add("not_a_number", "metrics have values that aren't numbers", place=f"line {line}")
                continue
            if place not in units_of:
                units_of[place] = stated.unit("kernel", place[1], module=place[0] or None, count=int(count))
            for suffix, (value, unit) in zip(("_min", "_max", ""), filter(None, values), strict=True):
                # The unit comes last in the printed form of a metric.
                stated.add(units_of[place], f"{metric}{suffix}{unit.suffix}", value, int(count))


def _si(text: str) -> tuple[float, units.Unit] | None:
    """A value in SI units, with its unit; for "Mid (5)" the number."""
    level = re.fullmatch(r"\w+ \((\d+)\)", text)
    digits, printed = (level[1], "") if level else units.split(text)
    unit = units.unit(printed)
    value = plain_number(digits.replace(",", ""))
    return None if value is None else (value * (unit.factor if unit else 1.0), unit or units.NO_UNIT)
