"""Tables of kernels, copies and calls, one or a name in each row: of ``nsys stats`` and rocprofv3."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.delimited import Delimited, read_delimited
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.stated_units import read_heading
from jouletrace.formats.importers.units import nanoseconds, plain_number, quantity
from jouletrace.run import Run
from jouletrace.wings.traces.nvprof_trace import NvprofTrace

_COLUMNS = {
    **{"start": "start", "duration": "duration", "corrid": "correlation_id", "strm": "stream", "ctx": "context"},
    **{f"{short}{axis}": f"{name} {axis}" for short, name in (("grd", "grid"), ("blk", "block")) for axis in "xyz"},
    **{"reg/trd": "registers per thread", "stcsmem": "static smem", "dymsmem": "dynamic smem", "bytes": "size"},
    **{"device": "device", "name": "name", "start_timestamp": "start", "end_timestamp": "end"},
    **{"correlation_id": "correlation_id", "queue_id": "stream", "agent_id": "device", "kernel_name": "name"},
    **{f"workgroup_size_{axis}": f"block {axis}" for axis in "xyz"},
    **{f"grid_size_{axis}": f"threads {axis}" for axis in "xyz"},
    **{"function": "name", "vgpr_count": "registers per thread", "lds_block_size": "static smem"},
    **{"direction": "direction", "source_agent_id": "from", "destination_agent_id": "to"},
    **{"total time": "time_s", "totaldurationns": "time_s", "instances": "count", "num calls": "calls"},
    **{"calls": "count", "count": "count", "operation": "name", "range": "name"},
    **{"avg": "time_mean_s", "averagens": "time_mean_s", "min": "time_min_s", "minns": "time_min_s"},
    **{"max": "time_max_s", "maxns": "time_max_s", "med": "time_median_s"},
}
"""The meaning of each column, by its heading without a unit in lower case."""

_TIMES = ("time_s", "time_mean_s", "time_median_s", "time_min_s", "time_max_s")

_HEADER = re.compile(
    r"^[^\w\n]*(Start ?\(\w+\),(?=.*\bCorrId\b)|Name,Start ?\(\w+\),Duration ?\(\w+\),|"
    r'Time ?\(%\),Total Time ?\(\w+\),|"?(Kind|Domain)"?,.*"?Start_Timestamp"?,'
    r'"?End_Timestamp\b|"?Name"?,"?Calls"?,"?TotalDurationNs\b).*$',
    re.M,
)
"""The header of a table."""

_REPORT = re.compile(r"^[^\d\n]*\((?:%|[num]?s|[KMG]?i?B)\),.*,.*$", re.M)
"""The headings of any report of `nsys stats`: units in parentheses, and no number."""


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of such a table."""
    return _HEADER.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a table: a trace becomes spans, a summary units with figures.

    Raises:
        BadInputError: If it holds neither.
    """
    left = Left(path)
    text = read_text(path, left)
    found = _HEADER.search(text)
    if found is None:
        raise BadInputError(f"{path}: not recognised as a table of nsys stats or rocprofv3")
    if len({match.group().strip() for match in _REPORT.finditer(text)}) > 1:
        raise BadInputError(f"{path}: reports of nsys stats of several kinds: print one: -r cuda_gpu_trace")
    tool = "rocprofv3" if re.search(r"Timestamp|DurationNs", found.group()) else "nsys stats"
    table = read_delimited(text, left, start=found.start())
    names, units = zip(*(_meaning(heading) for heading in table.header), strict=True)
    if "time_s" in names:
        return _read_summary(path, options, left, table, names, tool)
    trace = NvprofTrace(path, options, left)
    for cells, line in zip(table.rows, table.lines, strict=True):
        row = {name: cell + unit for name, cell, unit in zip(names, cells, units, strict=True) if name and cell}
        trace.take([(line, "", _row(row, "device" in names))])
    if not len(trace):
        raise BadInputError(f"{path}: output of {tool} without a single kernel{left.first()}")
    run = new_run(path, "trace_tables", RELATIVE, tool)
    trace.write(run)
    left.warn(run)
    return run


def _meaning(heading: str) -> tuple[str, str]:
    """The name of a column, "" if unknown, and the unit of its cells."""
    stated = read_heading(heading.strip().removeprefix("#"))
    plain = heading.strip().lower()
    name = _COLUMNS.get(plain) or _COLUMNS.get(re.sub(r" ?\(.*\)", "", plain), "")
    timed = name in ("start", "end", "duration", *_TIMES)
    unit = stated.unit if stated.known is not None else "ns" if timed else ""
    return name, unit if timed or name in ("static smem", "dynamic smem", "size") else ""


def _row(row: dict[str, str], on_gpu: bool) -> dict[str, str]:
    """A row of a trace by nvprof's names of its columns: rocprofv3 states ends, threads in place of blocks, agents."""
    start, end = nanoseconds(row.get("start", "")), nanoseconds(row.pop("end", ""))
    if start is not None and end is not None:
        row["duration"] = f"{end - start}ns"
    if direction := row.pop("direction", ""):
        to_gpu = direction.upper().endswith("TO_DEVICE")
        row |= {"name": f"[{direction}]", "device": row.get("to" if to_gpu else "from", "")}
    for axis in "xyz":
        threads, block = row.pop(f"threads {axis}", ""), row.get(f"block {axis}", "")
        if threads.isdecimal() and block.isdecimal() and int(block) and int(threads) % int(block) == 0:
            row[f"grid {axis}"] = str(int(threads) // int(block))
    if on_gpu and "name" in row and not row["name"].startswith("["):
        row.setdefault("grid x", "1")
    return row


def _read_summary(
    path: Path, options: ImportOptions, left: Left, table: Delimited, names: tuple[str, ...], tool: str
) -> Run:
    """Times of each name, as the tool states them, without intervals."""
    stated = Stated(tool)
    units = [_meaning(heading)[1] for heading in table.header]
    for cells, line in zip(table.rows, table.lines, strict=True):
        row = {name: cell + unit for name, cell, unit in zip(names, cells, units, strict=True) if name}
        count = plain_number(row.get("count", row.get("calls", "")))
        times = {metric: quantity(row.get(metric, ""), "s") for metric in _TIMES}
        if count is None or not 0 < count < 1e15 or times["time_s"] is None or not row.get("name"):
            left.add("broken_rows", "rows of a summary can't be read", place=f"line {line}")
            continue
        called = "calls" in row or re.match(r"hip[A-Z_]|hsa_|roctx", row["name"]) is not None
        unit = stated.unit("range" if called else "kernel", row["name"], count=int(count))
        for metric, value in times.items():
            stated.add(unit, metric, value, int(count))
    if not len(stated):
        raise BadInputError(f"{path}: a summary of {tool} without a single figure{left.first()}")
    run = stated.run(path, "trace_tables", options.device, {}, tool)
    left.warn(run)
    return run
