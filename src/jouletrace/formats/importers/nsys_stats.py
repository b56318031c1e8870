"""The GPU trace that ``nsys stats --report cuda_gpu_trace --format csv`` prints: kernels and copies, one a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.columns import Coded, Partly, block, coded, known
from jouletrace.formats.importers.delimited import rejoined, split_row
from jouletrace.formats.importers.numbers import decimal_sign, number
from jouletrace.run import DeviceInfo, Run

_HEADER = re.compile(r'^"?Start ?\((\w+)\)"?[,;]"?Duration ?\((\w+)\)"?[,;].*\bName"?\s*$', re.MULTILINE)
_TO_NS = {"ns": 1, "nsec": 1, "us": 1000, "usec": 1000, "ms": 10**6, "msec": 10**6, "s": 10**9, "sec": 10**9}
_DEVICE = re.compile(r"^(.*?)\s*\((\d{1,4})\)$")
_NUMBERS = {
    f"{what}_{axis}": f"{head}{axis.upper()}" for what, head in (("grid", "Grd"), ("block", "Blk")) for axis in "xyz"
}
_NUMBERS |= {"correlation": "CorrId", "registers": "Reg/Trd"}
_SIZES = {"shared_static_bytes": "StcSMem", "shared_dynamic_bytes": "DymSMem", "bytes": "Bytes"}


def sniff(head: bytes) -> bool:
    """Whether the header of a GPU trace stands in it."""
    return _HEADER.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a trace: each row becomes a kernel or copy; its times count from the start of the session.

    Raises:
        BadInputError: If it has no such header, or no row that can be read.
    """
    left = Left(path)
    text = read_text(path, left)
    found = _HEADER.search(text)
    if found is None:
        raise BadInputError(f"{path}: no header of a GPU trace in it (Start, Duration, ..., Name)")
    units = [found[1], found[2]]
    if not set(units) <= set(_TO_NS):
        raise BadInputError(f"{path}: unknown unit of time {units[0]!r} in its header")
    first_line = text.count("\n", 0, found.start()) + 1
    delimiter = ";" if ";" in found[0] else ","
    rows = _rows(text[found.start() :], delimiter, left, first_line)
    columns = {name.split(" (")[0].split("(")[0].strip(): k for k, name in enumerate(rows[0])}
    if "Name" not in columns:
        raise BadInputError(f"{path}: line {first_line}: the header of its GPU trace is damaged")
    body = [(row, line) for line, row in zip(range(first_line, first_line + len(rows)), rows, strict=True)][1:]
    decimal = decimal_sign(cell for row, _ in body[:200] for cell in row[:-1] if cell[:1].isdigit())
    times: list[tuple[int, int]] = []
    good: list[list[str]] = []
    for row, line in body:
        try:
            start, duration = (_ns(row[k], units[k], decimal) for k in (0, 1))
        except (ValueError, IndexError):
            if row:
                left.add("bad_rows", "rows have no start or no duration", 1, f"line {line}")
            continue
        if len(row) != len(rows[0]) or duration < 0 or not 0 <= start < 1 << 61 or duration > 1 << 61:
            left.add("bad_rows", "rows can't be read", 1, f"line {line}")
            continue
        times.append((start, duration))
        good.append(row)
    if not good:
        raise BadInputError(f"{path}: no row that can be read{left.first()}")
    run = new_run(path, "nsys_stats", RELATIVE)
    run.created_ns = path.stat().st_mtime_ns
    cells = list(zip(*good, strict=True))
    _add_spans(run, {name: cells[k] for name, k in columns.items()}, np.array(times), decimal, options, left)
    left.warn(run)
    return run


def _rows(text: str, delimiter: str, left: Left, first_line: int) -> list[list[str]]:
    """The table up to the first empty line; a printout of ``nsys stats`` may hold others after it."""
    table = re.split(r"\r?\n\s*\r?\n", text, maxsplit=1)[0]
    lines = table.splitlines()
    rows: list[list[str]] = []
    for line, content in enumerate(lines, start=first_line):
        cells = split_row(content, delimiter)
        if cells is None:
            left.add("bad_rows", "rows can't be read", 1, f"line {line}")
        elif rows and "Name" in rows[0]:
            cells = rejoined(cells, len(rows[0]), rows[0].index("Name"), delimiter)
        rows.append(cells or [])
    return rows


def _ns(text: str, unit: str, decimal: str) -> int:
    if unit in ("ns", "nsec") and text.isascii() and text.isdigit():
        return int(text)
    value = number(text, decimal)
    if value is None:
        raise ValueError("missing")
    return round(value * _TO_NS[unit])


def _add_spans(
    run: Run,
    columns: dict[str, Sequence[str]],
    times: NDArray[np.int64],
    decimal: str,
    options: ImportOptions,
    left: Left,
) -> None:
    n = len(times)
    missing = [""] * n
    names = columns["Name"]
    device_texts = columns.get("Device", missing)
    devices = {text: _device(text, options) for text in dict.fromkeys(device_texts)}
    numbers = {axis: _integers(columns.get(column, missing), decimal) for axis, column in _NUMBERS.items()}
    copies = np.array([name.startswith("[CUDA mem") for name in names])
    rounded = sum(bool(cell) for column in _SIZES.values() for cell in columns.get(column, missing))
    left.add("rounded_sizes", "sizes are rounded to MB in this file and were left out", rounded)
    run.spans = block(
        "spans",
        n,
        id=np.arange(n),
        kind=Coded(copies.astype(np.int32), ["kernel", "memcpy"]),
        name=coded(names),
        device=coded([devices[text].id for text in device_texts]),
        lane=coded([f"stream {text}" if text else "" for text in columns.get("Strm", missing)]),
        start_ns=times[:, 0],
        end_ns=times[:, 0] + times[:, 1],
        **numbers,
    )
    run.devices = list({info.id: info for info in devices.values()}.values())


def _device(text: str, options: ImportOptions) -> DeviceInfo:
    found = _DEVICE.match(text)
    name, number_ = (found[1], int(found[2])) if found else (text, 0)
    return DeviceInfo(id=f"imported:{number_}", name=options.device or name or f"device {number_}", index=number_)


def _integers(texts: Sequence[str], decimal: str) -> Partly:
    """Whole numbers; what is none is missing, as it is for copies."""
    values = np.full(len(texts), -1, np.int64)
    for k, text in enumerate(texts):
        try:
            value = int(text) if text.isascii() and text.isdigit() else number(text, decimal)
        except ValueError:
            continue
        if value is not None and 0 <= value < 1 << 31 and value == int(value):
            values[k] = int(value)
    return known(values)
