"""Summaries of ``nvprof``: time, calls, mean, minimum and maximum of each kernel and API call."""

from __future__ import annotations

import re

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.nvprof.sections import Section, seconds
from jouletrace.formats.importers.stated import Stated

_ROW = re.compile(
    r"^\s*(?:(?P<type>[A-Z][\w ]*?):\s+)?(?P<share>[\d.]+)%\s+(?P<time>\S+)\s+(?P<calls>\d+)\s+"
    r"(?P<avg>\S+)\s+(?P<min>\S+)\s+(?P<max>\S+)\s+(?P<name>\S.*)$"
)
_TIMES = {"time": "time_s", "avg": "time_mean_s", "min": "time_min_s", "max": "time_max_s"}


_NO_ROWS = ("No kernels", "No API", "API calls:", "GPU activities:")


def take(section: Section, stated: Stated, left: Left) -> None:
    """Add the rows of a summary: kernels and copies of the GPU, and other calls as ranges."""
    group = section.title.rstrip(":")
    for line, text, found in section.rows(_ROW):
        row = found or {}
        group = row.get("type") or group
        calls = row.get("calls", "")
        times = {metric: seconds(row.get(key, "")) for key, metric in _TIMES.items()}
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
