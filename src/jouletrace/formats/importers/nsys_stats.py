"""The GPU trace that ``nsys stats --report cuda_gpu_trace --format csv`` prints: one kernel or copy per row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.columns import Coded, Partly, block, coded, known
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.run import DeviceInfo, Run

_HEADER = re.compile(r'^"?Start ?\((\w+)\)"?[,;]"?Duration ?\((\w+)\)"?[,;].*\bName"?\s*$', re.MULTILINE)
_DEVICE = re.compile(r"^(.*?)\s*\((\d{1,4})\)$")
_NUMBERS = {
    f"{what}_{axis}": f"{head}{axis.upper()}" for what, head in (("grid", "Grd"), ("block", "Blk")) for axis in "xyz"
}
_NUMBERS |= {"correlation": "CorrId", "registers": "Reg/Trd"}
_SIZES = {"shared_static_bytes": "StcSMem", "shared_dynamic_bytes": "DymSMem", "bytes": "Bytes"}


def sniff(head: bytes) -> bool:
    """Whether the text contains the header of a GPU trace."""
    return _HEADER.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a trace: each row becomes a kernel or copy; times count from the start of the session.

    Raises:
        BadInputError: If the header is missing, or no row can be read.
    """
    left = Left(path)
    text = read_text(path, left)
    found = _HEADER.search(text)
    if found is None:
        raise BadInputError(f"{path}: no header of a GPU trace in it (Start, Duration, ..., Name)")
    for unit in found.groups():
        if (units.unit(unit) or units.NO_UNIT).si != "s":
            raise BadInputError(f"{path}: unknown unit of time {unit!r} in its header")
    whole = re.split(r"\r?\n\s*\r?\n", text[found.start() :], maxsplit=1)[0]  # other tables may follow
    above = text.count("\n", 0, found.start())
    table = read_delimited(whole, left, before=above, name="Name")
    columns = {name.split("(")[0].strip(): k for k, name in enumerate(table.header)}
    if "Name" not in columns:
        raise BadInputError(f"{path}: line {above + 1}: the header of its GPU trace is damaged")
    start, took = (read_stamps([row[k] for row in table.rows], unit=found[k + 1]) for k in (0, 1))
    good = start.valid & took.valid & (start.time_ns >= 0) & (took.time_ns >= 0)
    good &= (start.time_ns < 1 << 61) & (took.time_ns < 1 << 61)
    bad = np.flatnonzero(~good)
    left.add("bad_rows", "rows have no start or no duration", len(bad), lambda: f"line {table.lines[bad[0]]}")
    if not good.any():
        raise BadInputError(f"{path}: no readable row{left.first()}")
    run = new_run(path, "nsys_stats", RELATIVE)
    run.created_ns = path.stat().st_mtime_ns
    cells = list(zip(*(row for row, use in zip(table.rows, good, strict=True) if use), strict=True))
    by_name = {name: cells[k] for name, k in columns.items()}
    _add_spans(run, by_name, start.time_ns[good], took.time_ns[good], options, left)
    left.warn(run)
    return run


def _add_spans(
    run: Run,
    columns: Mapping[str, Sequence[str]],
    start: NDArray[np.int64],
    took: NDArray[np.int64],
    options: ImportOptions,
    left: Left,
) -> None:
    n = len(start)
    missing = [""] * n
    names = columns["Name"]
    device_texts = columns.get("Device", missing)
    devices = {text: _device(text, options) for text in dict.fromkeys(device_texts)}
    numbers = {axis: _integers(columns.get(column, missing)) for axis, column in _NUMBERS.items()}
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
        start_ns=start,
        end_ns=start + took,
        **numbers,
    )
    run.devices = list({info.id: info for info in devices.values()}.values())


def _device(text: str, options: ImportOptions) -> DeviceInfo:
    found = _DEVICE.match(text)
    name, number_ = (found[1], int(found[2])) if found else (text, 0)
    return DeviceInfo(id=f"imported:{number_}", name=options.device or name or f"device {number_}", index=number_)


def _integers(texts: Sequence[str]) -> Partly:
    """Whole numbers of 32 bits; other values are missing, as for copies."""
    return known(np.array([int(text) if text.isdecimal() and len(text) < 10 else -1 for text in texts], np.int64))
