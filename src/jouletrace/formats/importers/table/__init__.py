"""Any table with a time and readings: external meters, BMC and PDU logs, by a column mapping if need be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import columns, units
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.delimited import Delimited, delimiter_of, read_delimited
from jouletrace.formats.importers.numbers import decimal_sign
from jouletrace.formats.importers.power_sensor import METER
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.table.devices import Devices
from jouletrace.formats.importers.table.headings import Columns, Times, find_columns
from jouletrace.formats.importers.table.plausible import check_power
from jouletrace.formats.importers.table.times import read_times
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

_NUMERIC = re.compile(
    r"^[+-]?[\d.,]*\d[\d.,]*\s*[a-zA-Z%°/]{0,5}$|^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ,]+\d|^\d{1,2}:\d{2}:\d{2}"
)
_OPEN = re.compile(r"^[+-]?\d{1,3}[.,]\d{3}$")
_PREAMBLE_LINES = 100


def sniff(head: bytes) -> bool:
    """Whether a file that begins so is a table: a header, and rows of as many cells with numbers in them."""
    text = decode_text(head)
    return "\0" not in text and text.lstrip()[:1] not in ("{", "[", "<", "") and _header(text) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a table: readings become samples; rows with a start and an end become spans.

    Raises:
        BadInputError: If there is no time or no reading in it, or a column of the mapping isn't there.
    """
    left = Left(path)
    text = read_text(path, left)
    start = _header(text)
    if start is None:
        raise BadInputError(f"{path}: this is no table: no header with rows of as many cells under it")
    table = read_delimited(text[start:], left, before=text.count("\n", 0, start))
    meaning = find_columns(table.header, options.map, path)
    if meaning.start is not None and meaning.end is not None and meaning.time is None and table.rows:
        run = _spans(path, table, meaning, meaning.start, meaning.end, left, options)
    else:
        run = _samples(path, table, meaning, _checked(path, table, meaning), left, options)
    unknown = [name for name in meaning.unknown if name]
    left.add("unknown_columns", f"columns were left out ({', '.join(unknown)[:120]})", len(unknown))
    left.warn(run)
    return run


def _header(text: str) -> int | None:
    """Where the header begins: the first line that the next one, with numbers, fits. None if nowhere."""
    at = 0
    for _ in range(_PREAMBLE_LINES):
        end = text.find("\n", at)
        if end < 0:
            return None
        line, following = text[at:end].strip(), text[end + 1 :].partition("\n")[0]
        delimiter = delimiter_of(line)
        if delimiter is not None and not line.startswith("#"):
            bare = following.count(delimiter)
            cells = [cell.strip().strip('"') for cell in following.split(delimiter)]
            named = not any(_NUMERIC.match(cell.strip().strip('"')) for cell in line.split(delimiter))
            if named and abs(bare - line.count(delimiter)) <= 1 and any(_NUMERIC.match(cell) for cell in cells):
                return at
        at = end + 1
    return None


def _checked(path: Path, table: Delimited, meaning: Columns) -> Times:
    """The column of the time, once it is clear that there are readings too."""
    there = f"there are {', '.join(table.header)[:200]}"
    if not table.rows:
        raise BadInputError(f"{path}: a header and not one row that fits it")
    if meaning.time is None:
        raise BadInputError(f"{path}: which column is the time? Say --map time_s=COLUMN (or time_ms, ...); {there}")
    if not meaning.values:
        raise BadInputError(
            f"{path}: which column is the power? Say --map power_w=COLUMN if it is in watts, "
            f"--map power_mw=COLUMN if in milliwatts; {there}"
        )
    return meaning.time


def _samples(path: Path, table: Delimited, meaning: Columns, when: Times, left: Left, options: ImportOptions) -> Run:
    if len(table.rows) > 2 and len({tuple(row[i] for i in when.places) for row in table.rows}) == 1:
        raise BadInputError(f"{path}: every row has the same {table.header[when.places[0]]}: is it the time?")
    stamps = read_times(path, table, {"time": when}, options)["time"]
    left.add("no_time", "rows without a readable time", int((~stamps.valid).sum()))
    decimal, doubt = _decimal(table, meaning)
    readings, devices = Readings(), Devices(meaning.device, options.device)
    for row, (cells, line) in enumerate(zip(table.rows, table.lines, strict=True)):
        if not stamps.valid[row]:
            continue
        for value in meaning.values:
            device = devices.id(cells, value.device)
            digits, printed = units.split(cells[value.column])
            unit = (units.unit(printed) if printed else None) or value.unit
            place = f"line {line}, column {table.header[value.column]}"
            reading = left.number(digits, decimal, place)
            if reading is not None:
                source = f"column {table.header[value.column]}"
                readings.add(device, value.channel, row, reading * unit.factor, unit.si, source)
    _choose_power(readings, devices.infos(), left)
    run = new_run(path, "table", stamps.clock)
    for code, note in {**stamps.notes, **doubt}.items():
        run.warn(code, note, path.name)
    if meaning.maybe_device and len(np.unique(stamps.time_ns[stamps.valid])) < int(stamps.valid.sum()):
        names = "+".join(table.header[i] for _, i in meaning.maybe_device)
        run.warn("one_device_assumed", f"rows share times: if they are of several devices, say --map device={names}")
    check_power(path, run, readings, devices.infos(), meaning.values, table.header)
    readings.write(run, stamps.time_ns, stamps.valid, stamps.resolution_s, devices.infos(), lambda _, __: METER)
    if not len(run.samples):
        raise BadInputError(f"{path}: not one row has a time and a reading{left.first()}")
    return run


def _decimal(table: Delimited, meaning: Columns) -> tuple[str, dict[str, str]]:
    """The decimal sign of the readings, and a warning where they leave it open."""
    texts = [units.split(row[value.column])[0] for row in table.rows for value in meaning.values]
    texts = [text for text in texts if "," in text or "." in text]
    sign = decimal_sign(texts)
    if not texts or not all(_OPEN.match(text) for text in texts):
        return sign, {}
    # "1,234" in every cell is 1234 or 1.234. Programs that separate cells by semicolons do so
    # since the comma is their decimal sign.
    if all("," in text for text in texts) and table.delimiter == ";":
        sign = ","
    elif table.delimiter == ",":
        return sign, {}
    words = (
        f"numbers such as {texts[0]} leave their decimal sign open: {'comma' if sign == ',' else 'point'} was assumed"
    )
    return sign, {"decimal_assumed": words}


def _choose_power(readings: Readings, devices: Iterable[DeviceInfo], left: Left) -> None:
    """Where one column alone is power, whatever it is called, energy rests on it."""
    for device in devices:
        powers = [channel for channel in readings.channels(device.id) if channel.endswith("_w")]
        if POWER not in powers and len(powers) == 1:
            readings.rename(device.id, powers[0], POWER)
        elif POWER not in powers and powers:
            text = f"powers of {device.name} and none named as the one for energy: say --map power_w=COLUMN"
            left.add("which_power", text, len(powers))


def _spans(
    path: Path, table: Delimited, meaning: Columns, first: Times, last: Times, left: Left, options: ImportOptions
) -> Run:
    """Rows with a start and an end: layers, phases or iterations that somebody timed."""
    found = read_times(path, table, {"start": first, "end": last}, options)
    start, end = found["start"], found["end"]
    use: NDArray[np.bool_] = start.valid & end.valid & (end.time_ns >= start.time_ns)
    left.add("no_time", "rows have no start before their end", int((~use).sum()))
    if not use.any():
        raise BadInputError(f"{path}: not one row has a start and an end")
    names = [row[meaning.name] for row in table.rows] if meaning.name is not None else ["row"] * len(table.rows)
    distinct = list(dict.fromkeys(names))
    place = {name: i for i, name in enumerate(distinct)}
    code = np.array([place[name] for name in names], np.int64)
    kind = "layer" if meaning.name is not None and "layer" in table.header[meaning.name].lower() else "range"
    devices = Devices(meaning.device, options.device)
    ids = [devices.id(row) for row in table.rows]
    place = {info.id: i for i, info in enumerate(devices.infos())}
    where = np.array([place[id] for id in ids], np.int64)
    run = new_run(path, "table", start.clock)
    n = int(use.sum())
    run.spans = columns.block(
        "spans",
        n,
        id=np.arange(n),
        kind=kind,
        name=columns.Coded(code[use], distinct),
        device=columns.Coded(where[use], list(place)),
        lane="rows",
        start_ns=start.time_ns[use],
        end_ns=end.time_ns[use],
    )
    run.devices = devices.infos()
    run.created_ns = int(start.time_ns[use].min())
    for what, note in {**start.notes, **end.notes}.items():
        run.warn(what, note, path.name)
    meaning.unknown += [table.header[value.column] for value in meaning.values]
    return run
