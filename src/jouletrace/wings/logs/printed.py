"""Logs in which values are printed between words: what ``tools.toml`` knows of a tool makes them a table.

A tool's data has these keys in ``printed``:

- ``record``: pattern that begins what was printed at one time;
- ``device``: pattern that begins the part of a device there, with its name as the first group;
- ``values``: pattern of a value, in the group ``v`` or else the last -> heading of its column, with the groups;
- ``time``: pattern of a record's own time, and ``stamp``, that time by its groups. Lines of ``date`` above each record
  count before it;
- ``interval_s``: the tool's own interval, of records without times;
- ``heading``: that of the column of devices;
- ``gpus``: the headings are those of ``nvidia-smi --query-gpu``, whose reader knows the sensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import table
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_head, read_text
from jouletrace.formats.importers.delimited import Delimited
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.stamps import time_line
from jouletrace.formats.importers.tools import KnownTool, tool_of
from jouletrace.run import Run
from jouletrace.wings.logs import nvidia_smi

_COLOUR = re.compile(r"\x1b(?:\[[\d;]*m|\(B)")
"""What colours a text of a terminal, as that of ``gpustat --color``."""

_HOSTS = 8
"""As many readings may stand below each time, before the times are those of something else."""


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of a log of a tool whose values are printed between words."""
    return _tool(_COLOUR.sub("", decode_text(head))) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log by what is known of its tool.

    Raises:
        BadInputError: If no tool is known, nothing says when its values were read, or none is in it.
    """
    tool = _tool(_COLOUR.sub("", decode_text(read_head(path))))
    if tool is None:
        raise BadInputError(f"{path}: not recognised as what a tool prints")
    log = Log(path, options)
    text = _COLOUR.sub("", read_text(path, log.left)).replace("\r\n", "\n")
    rows = _rows(path, log, text, tool)
    if tool.printed.get("gpus"):
        return nvidia_smi.read_rows(path, log, rows, options, tool.name)
    return table.read_rows(path, log, rows, options, tool)


def _tool(text: str) -> KnownTool | None:
    tool = tool_of(text)
    return tool if "record" in tool.printed and re.search(tool.printed["record"], text, re.M) else None


def _rows(path: Path, log: Log, text: str, tool: KnownTool) -> Delimited:
    """A row for each device of each record; the first value of a heading counts.

    Raises:
        BadInputError: If some records have times and others have none, or the tool's interval is unknown.
    """
    how = tool.printed
    records = list(_parts(how["record"], text, 0, len(text)))
    times = _times(path, log, text, tool, [start for start, _, _ in records])
    columns = {"timestamp" if isinstance(times[0], str) else "time_s": 0}
    rows: list[list[str]] = []
    lines: list[int] = []
    line, before = 1, 0
    for (start, end, _), time in zip(records, times, strict=True):
        parts = list(_parts(how["device"], text, start, end)) if "device" in how else [(start, end, "")]
        line, before = line + text.count("\n", before, start), start
        if not parts:
            log.left.add("broken_rows", "records name no device", place=f"line {line}")
        for first, last, device in parts:
            row = {0: str(time)}
            if device:
                row[columns.setdefault(how.get("heading", "device"), len(columns))] = device
            for pattern, heading in how["values"].items():
                for found in re.finditer(pattern, text[first:last], re.M):
                    value = found["v"] if "v" in found.groupdict() else found[found.lastindex or 0]
                    row.setdefault(columns.setdefault(found.expand(heading), len(columns)), value.strip())
            rows.append([row.get(k, "") for k in range(len(columns))])
            lines.append(line)
    whole = [row + [""] * (len(columns) - len(row)) for row in rows]
    return Delimited(list(columns), whole, lines, ",", [""] * len(rows), [0] * len(rows))


def _parts(pattern: str, text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Start, end and first group ("" without one) of each part that begins with a pattern."""
    found = list(re.compile(pattern, re.M).finditer(text, start, end))
    for this, after in pairwise([*((one.start(), one) for one in found), (end, None)]):
        match: Any = this[1]
        yield this[0], after[0], match[1] if match.re.groups else ""


def _times(path: Path, log: Log, text: str, tool: KnownTool, starts: list[int]) -> list[str] | list[float]:
    """The time of each record: that of a line above, its own, or seconds since the first by the tool's interval.

    Raises:
        BadInputError: If the interval is unknown, or several readings stand below each time.
    """
    how = tool.printed
    above = [time_line(text[max(0, start - 200) : start].rstrip().rpartition("\n")[2]) for start in starts]
    timed = len(above) - above.count("")
    if timed > 1 and 3 * timed <= 2 * len(above) and len(above) <= _HOSTS * timed and "gpus" not in how:
        several = f"several readings of {tool} stand below one time, as of several hosts"
        raise BadInputError(f"{path}: {several}: print the time before each, and each host to a file of its own")
    if 2 * sum(map(bool, above)) >= len(above):
        return above
    ends = [*starts[1:], len(text)]
    own = (
        [re.compile(how["time"], re.M).search(text, *ends) for ends in zip(starts, ends, strict=True)]
        if "time" in how
        else []
    )
    if any(own):
        return [found.expand(how.get("stamp", r"\1")).strip("- []:") if found else "" for found in own]
    if "interval_s" not in how:
        raise BadInputError(f"{path}: nothing says when {tool} was written: print `LC_ALL=C date` before each reading")
    seconds = float(how["interval_s"])
    log.note(
        "interval_assumed",
        f"the rows have no times: an interval of {seconds:g} s is assumed, the default of {tool.name}",
    )
    return [k * seconds for k in range(len(starts))]
