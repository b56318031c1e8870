"""Traces of ``nvprof``: one row per kernel, copy or API call; with system profiling also power and clocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.columns import LAUNCH_SHAPE, join
from jouletrace.formats.importers.log import LIMIT, Log
from jouletrace.formats.importers.stamps import Stamps
from jouletrace.formats.importers.units import UNITS, nanoseconds, plain_number, quantity
from jouletrace.run import Run, tables
from jouletrace.run.channels import POWER
from jouletrace.wings.traces.impossible import clear_impossible_times

_SENSORS = {
    "sm clock": ("clock_sm_mhz", "MHz", UNITS["MHz"]),
    "memory clock": ("clock_memory_mhz", "MHz", UNITS["MHz"]),
    "mem clock": ("clock_memory_mhz", "MHz", UNITS["MHz"]),
    "temperature": ("temperature_c", "C", UNITS["C"]),
    "power": ("power_w", "mW", UNITS["W"]),
    "fan": ("fan_pct", "%", UNITS["%"]),
    "fan speed": ("fan_pct", "%", UNITS["%"]),
}
"""Channel, unit of a number without one, and unit of the channel, of the columns of ``--system-profiling on``."""

_BYTES = {
    "shared_static_bytes": ("static smem", 2**31),
    "shared_dynamic_bytes": ("dynamic smem", 2**31),
    "bytes": ("size", 2**62),
}
"""Column of the table and the limit of each size."""

_KNOWN = {
    *("start", "duration", *(name.replace("_", " ") for name in LAUNCH_SHAPE), "registers per thread", "static smem"),
    *("dynamic smem", "size", "throughput", "srcmemtype", "dstmemtype", "device", "context", "stream", "name"),
    *("correlation_id", "src dev", "src ctx", "dst dev", "dst ctx", "unified memory", "virtual address"),
}

_BLOCK = 20_000

_LATEST = 2**61
"""Limit in ns of starts, until 2043, and of lengths: their sum is an int64, too."""

_CORRELATION = re.compile(r"\s\[(\d{1,15})\](?=\)?$)")
"""Behind a kernel's name, which a launch has in parentheses."""

_CALL = re.compile(r"cuda[A-Z]|cu(Launch|Mem|Ctx|Stream|Event|Module|Device|Init|Func|Graph)")
"""How the name of a call of the API begins; kernels may be named so, too, where a grid says that they are some."""

_INDEX = re.compile(r"\((\d{1,4})\)\s*$")


class NvprofTrace:
    """Rows of all traces of a file."""

    def __init__(self, path: Path, options: ImportOptions, left: Left) -> None:
        self._left = left
        self._name = options.device
        self._log = Log(path, options, left)
        self._times: list[int] = []
        self._devices: dict[str, str] = {}
        self._contexts: dict[str, str] = {}
        self._spans: list[dict[str, Any]] = []
        self._blocks: list[pa.Table] = []
        self._count = 0
        self._counters: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._count + len(self._log)

    def take(self, rows: Iterable[tuple[int, str, dict[str, str] | None]]) -> None:
        """Add rows: line, text, and cells by the names of the columns; None for lines that are no rows."""
        for line, _, row in rows:
            if row is not None:
                self._row(line, row)
            else:
                self._broken(line)

    def _row(self, line: int, row: dict[str, str]) -> None:
        start, took = (nanoseconds(row.get(edge, "")) for edge in ("start", "duration"))
        if start is None or not 0 <= start < _LATEST:
            self._broken(line)
            return
        device = self._device(row.get("device", ""))
        sampled = self._sample(line, row, device, start)
        if took is None or not 0 <= took < _LATEST or not row.get("name"):
            if not sampled:
                self._broken(line)
            return
        number, self._count = self._count, self._count + 1
        span = _span(number, row, device, start, took)
        context = row.get("context", "")
        # each context counts its own streams
        if span["device"] and context != self._contexts.setdefault(device, context):
            span["lane"] = f"context {context} {span['lane']}"
        self._spans.append(span)
        if len(self._spans) >= _BLOCK:
            self._pack()
        for name, cell in row.items():
            if name in _KNOWN or name in _SENSORS or not cell:
                continue
            digits, unit = units.split(cell)
            kind, value = units.unit(unit) or units.NO_UNIT, plain_number(digits)
            if value is None:
                self._left.add("not_a_number", "metrics aren't numbers", place=f"line {line}, column {name}")
                continue
            counter = {"span": number, "metric": name, "value": value * kind.factor, "value_unit": kind.si}
            self._counters.append(counter)

    def _sample(self, line: int, row: dict[str, str], device: str, start: int) -> bool:
        """Add the readings of a row; returns whether it has any."""
        found = False
        for column, (channel, usual, si) in _SENSORS.items():
            draw, _, limit = row.get(column, "").partition("/")
            if not draw:
                continue
            value = quantity(draw, si.si, usual)
            if value is None:
                self._left.add("not_a_number", "readings aren't numbers", place=f"line {line}, column {column}")
                continue
            if not found:
                device = device or self._log.gpu("0")
                self._times.append(start)
                self._log.row("")
            found = True
            source = f"nvprof system profiling, {column}"
            self._log.add(device, channel, value, si, source)
            most = quantity(limit, si.si, usual) if channel == POWER else None
            if most is not None:
                self._log.add(device, LIMIT, most, si, source)
        return found

    def _device(self, text: str) -> str:
        """The id of a device; "" for a row that names none."""
        if text and text not in self._devices:
            index = _INDEX.search(text)
            # Text output truncates names and has no index: GPUs can then be distinguished by order only.
            number = int(index[1]) if index else len(self._devices)
            name = self._name or _INDEX.sub("", text).strip()
            self._devices[text] = self._log.device(f"imported:{number}", name, index=number)
        return self._devices.get(text, "")

    def _broken(self, line: int) -> None:
        self._left.add("broken_rows", "rows of a trace can't be read", place=f"line {line}")

    def _pack(self) -> None:
        """Pack the rows into a table: unpacked rows take ten times the memory, so they must stay few."""
        self._blocks.append(tables.from_rows(self._spans, "spans"))
        self._spans = []

    def write(self, run: Run) -> None:
        """Add spans, counters, samples and devices to a Run."""
        self._pack()
        run.spans = join("spans", self._blocks)
        clear_impossible_times(run, self._left)
        run.counters = tables.from_rows(self._counters, "counters")
        time = np.array(self._times, np.int64)
        self._log.write(run, Stamps(time, np.ones(len(time), bool), RELATIVE, 0.0))


def _span(number: int, row: dict[str, str], device: str, start: int, took: int) -> dict[str, Any]:
    name = row["name"]
    correlation: str | None = row.get("correlation_id")
    if found := _CORRELATION.search(name):
        name, correlation = name[: found.start()] + name[found.end() :], correlation or found[1]
    on_gpu = _on_gpu(row, name)
    span: dict[str, Any] = {
        "id": number,
        "kind": "launch" if not on_gpu else "memcpy" if name.startswith("[") else "kernel",
        "name": name,
        "device": device if on_gpu else None,
        "lane": f"stream {row.get('stream') or '?'}" if on_gpu else "API",
        "start_ns": start,
        "end_ns": start + took,
        "correlation": _integer(correlation, 2**62),
        "registers": _integer(row.get("registers per thread")),
    }
    span |= {size: _integer(row.get(size.replace("_", " "))) for size in LAUNCH_SHAPE}
    for column, (cell, most) in _BYTES.items():
        value = quantity(row.get(cell, ""), "B") if row.get(cell) else None
        span[column] = round(value) if value is not None and 0 <= value < most else None
    return span


def _on_gpu(row: dict[str, str], name: str) -> bool:
    """False for a call of the API, which may stand among kernels and copies: a kernel has a grid, or else a stream."""
    if "device" not in row or name.startswith("["):
        return "device" in row
    grid = row.get("grid x", row.get("grid size"))
    return not is_blank(row.get("stream", "") if grid is None else grid) and (grid is not None or not _CALL.match(name))


def _integer(text: str | None, limit: int = 2**31) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 20 and int(text) < limit else None
