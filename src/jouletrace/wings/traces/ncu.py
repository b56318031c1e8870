"""CSV output of Nsight Compute (``ncu --csv``), pages ``details`` and ``raw``: counters of each kernel launch."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import NO_CLOCK, ImportOptions, Left, about, decode_text, new_run, read_text
from jouletrace.formats.importers.columns import Partly, block, coded, launch_shape
from jouletrace.formats.importers.units import decimal_sign, number
from jouletrace.run import DeviceInfo, Run
from jouletrace.wings.traces.ncu_match import match_launches

__all__ = ["match_launches", "read", "sniff", "to_si"]

_HEADER = re.compile(r'^"?ID"?,"?Process ID"?,.*"?Kernel Name"?', re.MULTILINE)
_AXES = re.compile(r"^\(\s*(\d{1,9}),\s*(\d{1,9}),\s*(\d{1,9})\)$")
_IDENTITY = ("Process Name", "Kernel Name", "Stream", "Block Size", "Grid Size", "Device")
_NO_METRICS = frozenset((*_IDENTITY, "ID", "Process ID", "Host Name", "Kernel Time", "Context", "CC", "Section Name"))
_NVTX = "thread Domain:"
"""Prefix of the columns with NVTX ranges."""

_DOUBT = "(!)"
"""Prefix of readings that ncu doesn't guarantee."""

_LINES_OF_A_ROW = 100

_BOARD = ("device__attribute_", "c2clink__", "numa__", "nvlink__")
"""Prefixes of columns of the raw page about the GPU and its links, which are equal in every row of a device."""

_BOARD_NAME = "device__attribute_display_name"

_CURVE = re.compile(r"^(?:launch__occupancy|derived__pct_occupancy)_per_\w+$")
"""Occupancy as a function of block size, number of registers and so on. The raw page contains the sum over such a
curve, with the prefix of its unit inverted (2,570 %/byte is also 2.57 %/Kbyte)."""

_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASE = {"second": "s", "sec": "s", "s": "s", "hz": "Hz", "Hz": "Hz", "byte": "B", "B": "B"}
_UNIT = re.compile(r"^([numkKMGT]?)(second|sec|s|hz|Hz|byte|B)$")
_PER = re.compile(r"^([numkKMGT]?)(second|sec|s)$")


@dataclass
class Counts:
    """The contents of a file by rows: launches in their order, the readings of each, and the GPUs by number."""

    launches: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    launch: list[int] = field(default_factory=list)
    metric: list[str] = field(default_factory=list)
    section: list[str] = field(default_factory=list)
    unit: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    boards: dict[str, dict[str, str]] = field(default_factory=dict)
    rules: int = 0

    def add(self, launch: int, metric: str, section: str, unit: str, text: str) -> None:
        """Add a reading of a launch, by the launch's number."""
        self.launch.append(launch)
        self.metric.append(metric)
        self.section.append(section)
        self.unit.append(unit)
        self.text.append(text)


def sniff(head: bytes) -> bool:
    """True if the text contains a header of ncu, possibly after messages and the program's own output."""
    text = decode_text(head)
    return _HEADER.search(text) is not None or "==PROF== Connected to process" in text


def read(path: Path, options: ImportOptions) -> Run:
    """Read a page: each launch becomes a kernel span without times, with its metrics in ``counters``.

    ncu serialises and repeats launches. It therefore reports their order but not their
    times: they belong to no timeline, and ``merge`` assigns the metrics to the kernels of one.

    Raises:
        BadInputError: If it holds no header of ncu or no launch.
    """
    left = Left(path)
    text = read_text(path, left)
    found = _HEADER.search(text)
    if found is None:
        raise BadInputError(f"{path}: no header of ncu: was it made with ncu --csv?")
    rows = _rows(text[found.start() :], left, text.count("\n", 0, found.start()) + 1)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    counts = _details(header, rows, left) if "Metric Name" in header else _raw(header, rows, left)
    if not counts.launches:
        raise BadInputError(f"{path}: no launch of a kernel{left.first()}")
    run = new_run(path, "ncu", NO_CLOCK)
    run.created_ns = path.stat().st_mtime_ns
    _add_launches(run, counts, options)
    _add_counters(run, counts, left)
    file = about(run)
    file["page"] = "details" if "Metric Name" in header else "raw"
    file["launches"] = len(counts.launches)
    file["rules"] = counts.rules
    left.warn(run)
    return run


def _rows(text: str, left: Left, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line numbers; messages of the tool and output of the program are counted."""
    waiting: list[str] = []
    began = first_line
    for line, content in enumerate(text.split("\n"), start=first_line):
        if not waiting:
            if content[:1] not in ('"', ",") and not content[:1].isdigit() and line > first_line:
                if content.strip():
                    left.add("other_lines", "lines are messages or the program's own output", 1, f"line {line}")
                continue
            began = line
        waiting.append(content)
        if sum(part.count('"') for part in waiting) % 2 == 0:
            try:
                yield began, next(csv.reader(["\n".join(waiting).rstrip("\r")]))
            except (csv.Error, StopIteration):
                left.add("bad_rows", "rows can't be read", 1, f"line {began}")
            waiting = []
        elif len(waiting) > _LINES_OF_A_ROW:
            left.add("bad_rows", "rows can't be read", 1, f"line {began}")
            waiting = []
    if waiting:
        left.add("cut_off", "row at the end breaks off", 1, f"line {began}")


def _launch(counts: Counts, header: list[str], row: list[str]) -> int | None:
    """The launch of a row; None if the row isn't data."""
    if len(row) < len(header) - 6 or len(row) > len(header) or not row[0].isdigit():
        return None
    cells = dict(zip(header, row, strict=False))
    key = (cells.get("Process ID", ""), row[0])
    if key not in counts.launches:
        number = str(len(counts.launches))
        counts.launches[key] = {**{name: cells.get(name, "") for name in _IDENTITY}, "number": number}
    return int(counts.launches[key]["number"])


def _details(header: list[str], rows: Iterator[tuple[int, list[str]]], left: Left) -> Counts:
    """The page with a row per metric; rows of rules have none."""
    counts = Counts()
    place = {name: k for k, name in enumerate(header)}
    metric, unit, value = (place.get(f"Metric {name}") for name in ("Name", "Unit", "Value"))
    section = place.get("Section Name")
    for line, row in rows:
        launch = _launch(counts, header, row)
        if launch is None or metric is None or value is None:
            left.add("bad_rows", "rows can't be read", 1, f"line {line}")
            continue
        cells = row + [""] * (len(header) - len(row))  # newer versions end rows early
        if not cells[metric]:
            counts.rules += 1
            continue
        of, printed = (cells[k] if k is not None else "" for k in (section, unit))
        counts.add(launch, cells[metric], of, printed, cells[value])
    return counts


def _raw(header: list[str], rows: Iterator[tuple[int, list[str]]], left: Left) -> Counts:
    """The page with a row per launch, a column per metric and units in the second row.

    Facts about the GPU, which every row repeats, are added to the device once.
    """
    counts = Counts()
    units = [""] * len(header)
    board = [k for k, name in enumerate(header) if name.startswith(_BOARD)]
    curves = [k for k, name in enumerate(header) if _CURVE.match(name)]
    others = {k for k, name in enumerate(header) if name in _NO_METRICS or name.startswith(_NVTX)}
    metrics = [k for k in range(len(header)) if k not in others.union(board, curves)]
    device = header.index("Device") if "Device" in header else None
    for line, row in rows:
        if not counts.launches and len(row) == len(header) and not row[0].strip():
            units = row
            continue
        launch = _launch(counts, header, row) if len(row) == len(header) else None
        if launch is None:
            left.add("bad_rows", "rows can't be read", 1, f"line {line}")
            continue
        if board:
            counts.boards.setdefault(row[device] if device is not None else "", {header[k]: row[k] for k in board})
        left.add("curves", "readings are sums over a curve", sum(1 for k in curves if row[k]))
        for k in metrics:
            if row[k]:
                counts.add(launch, header[k], "", units[k], row[k])
    return counts


def _add_launches(run: Run, counts: Counts, options: ImportOptions) -> None:
    launches = list(counts.launches.values())
    n = len(launches)
    several = len({process for process, _ in counts.launches}) > 1
    lanes = [
        f"process {process} stream {about['Stream']}" if several else f"stream {about['Stream']}"
        for (process, _), about in counts.launches.items()
    ]
    devices = coded([f"imported:{_number(about['Device'])}" for about in launches])
    axes = np.full((6, n), -1, np.int64)
    for k, launch in enumerate(launches):
        for first, key in ((0, "Grid Size"), (3, "Block Size")):
            if found := _AXES.match(launch[key]):
                axes[first : first + 3, k] = [int(axis) for axis in found.groups()]
    run.spans = block(
        "spans",
        n,
        id=np.arange(n),
        kind="kernel",
        name=coded([about["Kernel Name"] for about in launches]),
        device=devices,
        lane=coded(lanes),
        **launch_shape(axes),
    )
    boards = {_number(device): attributes for device, attributes in counts.boards.items()}
    for id in devices.values:
        number = id.removeprefix("imported:")
        about_it = boards.get(number, {})
        shown = options.device or about_it.get(_BOARD_NAME) or f"device {number}"
        details = {"attributes": about_it} if about_it else {}
        run.devices.append(DeviceInfo(id=id, name=shown, index=int(number), details=details))
    run.workload["processes"] = sorted({f"{p} ({a['Process Name']})" for (p, _), a in counts.launches.items()})


def _number(device: str) -> str:
    """The device of the process on which a launch ran; older versions don't report it."""
    return device if device.isdigit() else "0"


def _add_counters(run: Run, counts: Counts, left: Left) -> None:
    """Add readings in SI units; missing and impossible ones become null, and texts are counted."""
    decimal = decimal_sign(text.removeprefix(_DOUBT) for text in counts.text)
    values = np.full(len(counts.text), np.nan)
    scales = [to_si(unit) for unit in counts.unit]
    texts = np.zeros(len(counts.text), bool)
    for k, text in enumerate(counts.text):
        try:
            value = number(text.removeprefix(_DOUBT), decimal)
        except ValueError:
            texts[k] = True
        else:
            values[k] = np.nan if value is None else value * scales[k][0]
    units = [si for _, si in scales]
    impossible = (values < 0) & np.isin(units, ("%", "s"))
    values[impossible] = np.nan
    left.add("below_zero", "readings are below 0, which is impossible", int(impossible.sum()))
    left.add("text_metrics", "readings are text, not numbers", int(texts.sum()))
    keep = np.flatnonzero(~texts)
    run.counters = block(
        "counters",
        len(keep),
        span=np.array(counts.launch, np.int64)[keep],
        metric=coded([counts.metric[k] for k in keep]),
        section=coded([counts.section[k] or None for k in keep]),
        value=Partly(values[keep], ~np.isnan(values[keep])),
        value_unit=coded([units[k] for k in keep]),
    )


@cache
def to_si(unit: str) -> tuple[float, str]:
    """The factor for a reading in ``unit``, and the resulting unit.

    Seconds, hertz and bytes (decimal multiples, as in ncu) and rates of them become s, Hz, B and
    B/s; cycles per time become Hz; a missing unit becomes 1; other units stay unchanged ("%",
    "inst/cycle", "register/thread").
    """
    plain = unit.strip()
    over, _, under = plain.partition("/")
    if not plain:
        return 1.0, "1"
    time = _PER.match(under)
    per = _PREFIX[time[1]] if time else 1.0
    if over == "cycle" and time:
        return 1 / per, "Hz"
    found = _UNIT.match(over)
    if found is None:
        return 1.0, plain
    base = _BASE[found[2]]
    return _PREFIX[found[1]] / per, f"{base}/s" if time else f"{base}/{under}" if under else base
