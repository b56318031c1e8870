"""Any table with a time and readings: external meters, BMC and PDU logs, if necessary with a column mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from jouletrace.analysis.power import WHICH_POWER
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, decode_text, read_text
from jouletrace.formats.importers.dates import DAY_S, NS
from jouletrace.formats.importers.delimited import (
    Delimited,
    decimal_commas,
    delimiter_of,
    first_rows,
    header_start,
    is_number,
    only_rows,
    read_delimited,
    time_between_rows,
    with_devices,
)
from jouletrace.formats.importers.log import MOST_W, NAMELESS, Log, is_power
from jouletrace.formats.importers.metric_rows import joined_rows
from jouletrace.formats.importers.power_sensor import METER
from jouletrace.formats.importers.stamps import Stamps, read_stamps, spread
from jouletrace.formats.importers.stated_units import words
from jouletrace.formats.importers.table_headings import (
    HOST,
    INSTANCE,
    NUMBER,
    UUID,
    TableColumns,
    Times,
    Value,
    ask_for_unit,
    find_columns,
)
from jouletrace.formats.importers.tools import KnownTool, tool_of
from jouletrace.formats.importers.units import decimal_sign, gpu_number
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.names import cut
from jouletrace.sensor.power_record import MOST_OF_A_BOARD_W, rated_w

_OPEN = re.compile(r"^[+-]?\d{1,3}[.,]\d{3}$")

_ROLES = (HOST, UUID, NUMBER, INSTANCE)

_MOST_DEVICES = 64
"""A column with more different cells doesn't state devices."""

_PART = re.compile(
    r"(?:\b|(?<=[A-Z])(?=[A-Z][a-z]))"
    r"(?i:chip|cores?|die|package|memory|v?ram|dram|hbm|mvddc|nvvdd|soc|uncore|cpu|slot|pci ?e|pin|rail)"
    r"(?![a-z]|[A-Z]{2})"
)
"""Words of headings of the power of a part, also in "GPUChipPower": what the rest draws isn't in it."""

_BOARD, _WHOLE = re.compile(r"\bboard\b", re.I), re.compile(r"\b(board|total)\b", re.I)

_WITH_DEVICE = "log the device of each row, in a column of its own"

_IN_WORDS = {"ms": "milliseconds", "us": "microseconds"}


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of a table: rows with as many cells and numbers, with a header or not."""
    text = decode_text(head)
    table = header_start(text) is not None or decimal_commas(text) != "" or _without_header(text)
    return "\0" not in text and text.lstrip()[:1] not in ("{", "[", "<", "") and table


def read(path: Path, options: ImportOptions) -> Run:
    """Read a table: its readings become samples.

    Raises:
        BadInputError: If no time or no reading is in it, or a column of the mapping is missing.
    """
    log = Log(path, options)
    text = read_text(path, log.left)
    if commas := decimal_commas(text):
        raise BadInputError(f"{path}: {commas}")
    start = header_start(text)
    numbers = [] if start is not None else _numbers_of_columns(path, text, options)
    table = read_delimited(text, log.left, header=numbers, start=start or 0)
    tool = tool_of(text)
    table = joined_rows(path, _of_tool(table, tool, text[: start or 0], log), options.map)
    return read_rows(path, log, table, options, tool, text)


def read_rows(path: Path, log: Log, table: Delimited, options: ImportOptions, tool: KnownTool, text: str = "") -> Run:
    """Read the rows of a table, by what is known of its ``tool``; ``text`` is that of the file, where it was one.

    Raises:
        BadInputError: As ``read``.
    """
    mapping = options.map or tool.mapping(table.header, path)
    meaning = find_columns(table.header, mapping, path, more=not options.map)
    table = with_devices(table, [column for _, column in meaning.device], log.left)
    _ask_for_twins(path, table, meaning, options)
    stamps = _times(path, text, table, meaning, options, tool.asked)
    if "interval_s" in tool.printed and stamps.valid.all():  # of one device, and faster than its stamps
        stamps = replace(stamps, time_ns=spread(stamps.time_ns, stamps.resolution_s))
    _ask_for_the_whole(path, table, stamps, tool)
    _add_readings(path, log, table, meaning, stamps, options.device)
    apart = _advice(path, table, meaning, stamps)
    log.apart = apart and (tool.asked or apart)
    _choose_power(log, tool.asked)
    whole = mapping is not options.map and any(target.startswith("power") for target in mapping)
    _check_power(path, log, table, meaning, whole=whole)
    unknown = [name for name in meaning.unknown if name]
    log.left.add("unknown_columns", f"columns were left out ({', '.join(unknown)[:120]})", len(unknown))
    return log.run("table", "rows", dialect=tool.name, sensor=lambda _, __: ("", METER), stamps=stamps)


def _without_header(text: str) -> bool:
    """True if a text begins with rows of as many cells, half of them numbers or times."""
    rows = first_rows(text.lstrip(), delimiter_of(text.lstrip().partition("\n")[0]) or ",", 3)
    filled = [sum(is_number(cell) or read_stamps([cell], "UTC").valid[0] for cell in row) for row in rows]
    return len({max(len(row), 2) for row in rows}) == 1 < len(rows) and all(2 * n >= len(rows[0]) for n in filled)


def _of_tool(table: Delimited, tool: KnownTool, above: str, log: Log) -> Delimited:
    """The rows that a tool's data keeps; where it says so, the line ``above`` is joined to the headings."""
    header = table.header
    for names in first_rows(above.rstrip().rpartition("\n")[2], table.delimiter, 1) if tool.above else ():
        header = [" ".join(filter(None, pair)) for pair in zip_longest(names, header, fillvalue="")][: len(header)]
    tests = [(header.index(name), form) for name, form in tool.rows.items() if name in header]
    kept = [all(re.fullmatch(form, row[column]) for column, form in tests) for row in table.rows]
    log.left.add("other_lines", f"rows of {tool.name} hold no readings of the whole", kept.count(False))
    return only_rows(replace(table, header=header), kept)


def _numbers_of_columns(path: Path, text: str, options: ImportOptions) -> list[str]:
    """The columns of a table without a header, counted from 1: the user's mapping gives some by number.

    Raises:
        BadInputError: If it doesn't, or this is no table.
    """
    line = text.lstrip().partition("\n")[0]
    cells = [cell for row in first_rows(line, delimiter_of(line) or ",", 1) for cell in row]
    given = [part for wanted in options.map.values() for part in wanted.split("+")]
    if given and all(map(str.isdecimal, given)) and len(cells) > 1:
        return [str(number) for number, _ in enumerate(cells, start=1)]
    way = "; if it has none, give columns by number, such as --map time=1 --map power=2"
    advice = way if len(cells) > 1 and any(map(is_number, cells)) else ""
    raise BadInputError(f"{path}: this isn't a table: it has no header with rows of as many cells{advice}")


def _ask_for_twins(path: Path, table: Delimited, meaning: TableColumns, options: ImportOptions) -> None:
    """Ask which column states the time or the device, where two of one heading differ.

    Raises:
        BadInputError: If the user doesn't name one by its number.
    """
    names = [name.strip().lower() for name in table.header]
    given = {part for wanted in options.map.values() for part in wanted.split("+")}
    when = meaning.time.places if meaning.time else ()
    used = dict.fromkeys(when, "time_s") | {place: "device" for _, place in meaning.device}
    for place, target in used.items():
        for other in (i for i, name in enumerate(names) if name == names[place] and i not in used):
            if str(place + 1) not in given and any(row[place] != row[other] for row in table.rows):
                both = f"columns {place + 1} and {other + 1} are both {table.header[place]!r}, and differ"
                raise BadInputError(f"{path}: {both}: choose one, --map {target}={place + 1}")


def _ask_for_the_whole(path: Path, table: Delimited, stamps: Stamps, tool: KnownTool) -> None:
    """Ask for a log of sums alone, where rows of a machine's parts come in bursts, and none of their columns is there.

    Raises:
        BadInputError: If a third of the rows follows the one before in less than a tenth of the mean interval, again
            and again: a single pause in a log makes no bursts.
    """
    apart = np.diff(np.sort(stamps.time_ns[stamps.valid]))
    if len(apart) < 3 or not tool.rows or any(name in table.header for name in tool.rows):
        return
    near = int(np.sum(apart < 0.1 * apart.mean()))
    if 3 * near >= len(apart) and 20 * (len(apart) - near) >= len(apart):
        columns = ", ".join(tool.rows)
        raise BadInputError(
            f"{path}: rows come in bursts, and no column ({columns}) says which has a sum: {tool.asked}"
        )


def _advice(path: Path, table: Delimited, meaning: TableColumns, stamps: Stamps) -> str:
    """The advice that distinguishes readings of several devices; "" where a column does so.

    Raises:
        BadInputError: If columns that the mapping leaves out do, at times that rows share.
    """
    if meaning.device or any(value.device for value in meaning.values):
        return ""
    times = stamps.time_ns[stamps.valid]
    if len(np.unique(times)) == len(times):
        return _WITH_DEVICE
    pairs = zip(stamps.time_ns.tolist(), table.rows, strict=True)
    rows = {(time, *row) for (time, row), valid in zip(pairs, stamps.valid, strict=True) if valid}
    columns = [i + 1 for _, i in meaning.maybe_device]
    if len({tuple(row[i] for i in columns) for row in rows}) > 1:
        names = "+".join(table.header[i] for _, i in meaning.maybe_device)
        raise BadInputError(f"{path}: rows of several devices share times: give --map device={names}")
    used = {*(meaning.time.places if meaning.time else ()), *(value.column for value in meaning.values)}
    for i, name in enumerate(table.header):
        few = name and i not in used and 1 < len({row[i + 1] for row in rows}) <= _MOST_DEVICES
        if few and len({(row[0], row[i + 1]) for row in rows}) == len(rows):
            return f"give --map device={name}"
    return _WITH_DEVICE


def _add_readings(
    path: Path, log: Log, table: Delimited, meaning: TableColumns, stamps: Stamps, name: str | None
) -> None:
    """Add the readings of all rows with a time; devices are named ``name``, if it is given.

    Raises:
        BadInputError: If a column of power is in a unit that is unknown.
    """
    decimal = _decimal(table, meaning, log)
    devices: dict[tuple[str, ...], str] = {}
    odd: dict[Value, str] = {}
    read: set[int] = set()
    for row, (cells, line) in enumerate(zip(table.rows, table.lines, strict=True)):
        log.row("")
        for value in meaning.values if stamps.valid[row] else ():
            heading = table.header[value.column]
            digits, printed = units.split(cells[value.column])
            reading = log.left.number(digits, decimal, f"line {line}, column {heading}")
            key = (*(cells[column] for _, column in meaning.device), value.device)
            if key not in devices:
                devices[key] = _device(log, meaning, cells, value.device, name)
            if reading is None:
                log.empty(devices[key], value.channel, heading)
                continue
            unit = log.left.unit(printed, value.unit, f"line {line}, column {heading}")
            if unit is None:
                odd.setdefault(value, printed)
                continue
            read.add(value.column)
            # The channel keeps its name whatever the unit of a single cell.
            log.add(devices[key], value.channel, reading, unit._replace(suffix=""), f"column {heading}")
    for value, printed in odd.items():
        if value.unit.si == "W" and value.column not in read:
            what = f"cells of {table.header[value.column]!r} are in {printed[:20]!r}"
            raise BadInputError(f"{path}: {what}, which is no unit of power that is known here: write W, mW or kW")


def _times(
    path: Path, text: str, table: Delimited, meaning: TableColumns, options: ImportOptions, asked: str
) -> Stamps:
    """The times of rows, where the table has times and readings; ``asked`` is what its tool needs (``mapping``)."""
    there = f"the columns are {', '.join(table.header)[:200]}"
    if not table.rows:
        raise BadInputError(f"{path}: a header without a row that fits it")
    if meaning.time is None:
        given = "Give --map time_s=COLUMN (or time_ms, ...)" if _numbered(table) else "Log one with each reading"
        if line := time_between_rows(text):
            given = f"A time between rows, as in {line}, isn't read in this table: write it into each row"
        raise BadInputError(f"{path}: {asked or f'which column is the time? {given}'}; {there}")
    ask_for_unit(meaning, path)
    if not meaning.values:
        wanted = "--map power_w=COLUMN if it is in watts, --map power_mw=COLUMN if in milliwatts"
        given = f"Give {wanted}" if _numbered(table, meaning.time.places) else "None holds numbers: log one"
        raise BadInputError(f"{path}: {asked or f'which column is the power? {given}'}; {there}")
    return read_times(path, table, meaning.time, options)


def _numbered(table: Delimited, others: Sequence[int] = ()) -> bool:
    """True if some column but ``others`` holds numbers or times in half of its rows: one that a mapping can name."""
    rows = table.rows[:200]
    columns = ([row[i] for row in rows] for i in range(len(table.header)) if i not in others)
    return any(2 * max(read_stamps(cells).valid.sum(), sum(map(is_number, cells))) >= len(rows) for cells in columns)


def read_times(path: Path, table: Delimited, when: Times, options: ImportOptions) -> Stamps:
    """The times of rows. Their unit is stated or asked for: a wrong one changes all energies by factors of 1000.

    Raises:
        BadInputError: If it is neither stated nor certain, or all times are the same.
    """
    cells = [" ".join(row[i] for i in when.places) for row in table.rows]
    if len(cells) > 2 and len(set(cells)) == 1:
        raise BadInputError(f"{path}: every row has the same {table.header[when.places[0]]}: is it the time?")
    stamps = read_stamps(cells, options.time_zone, when.unit)
    unit, column = stamps.assumed_unit, table.header[when.places[0]]
    if not unit:
        return stamps
    apart = np.diff(np.sort(stamps.time_ns[stamps.valid]))
    apart = apart[apart > 0]
    if stamps.clock == RELATIVE or (len(apart) and float(np.median(apart)) > DAY_S * NS):  # in another unit
        say = f"give --map time_s={column} (or time_ms, time_us, time_ns)"
        raise BadInputError(f"{path}: the unit of {column!r} isn't stated: {say}")
    if unit in _IN_WORDS:
        text = f"{column!r} is taken for {_IN_WORDS[unit]} since 1970, by the size of its numbers"
        stamps.notes["time_unit_assumed"] = f"{text}: if that is wrong, give --map time_ns={column}"
    return stamps


def _decimal(table: Delimited, meaning: TableColumns, log: Log) -> str:
    """The decimal sign of the readings, with a warning where it is ambiguous."""
    texts = [units.split(row[value.column])[0] for row in table.rows for value in meaning.values]
    texts = [text for text in texts if "," in text or "." in text]
    sign = decimal_sign(texts)
    if not texts or not all(_OPEN.match(text) for text in texts):
        return sign
    # "1,234" in every cell is 1234 or 1.234. Programs that separate cells by semicolons do so
    # because the comma is their decimal sign.
    if all("," in text for text in texts) and table.delimiter == ";":
        sign = ","
    elif table.delimiter == "," and not any("," in text for text in texts):
        return sign
    assumed = "comma" if sign == "," else "point"
    text = f"numbers such as {texts[0]} are ambiguous in their decimal sign: {assumed} was assumed"
    log.note("decimal_assumed", text)
    return sign


def _choose_power(log: Log, asked: str) -> None:
    """Compute energy from the only column of power, whatever its name, or that of the whole; of a counter likewise."""
    for device in log.devices.values():
        powers = sorted(one for one in log.channels(device.id) if is_power(one))
        energies = [one for one in log.channels(device.id) if one.endswith("_j") and "per" not in one.split("_")]
        if len(energies) == 1:
            log.rename(device.id, energies[0], ENERGY_COUNTER)
        names = {one: log.source(device.id, one).removeprefix("column ") for one in powers}
        wholes = [one for one in powers if len(powers) == 1 or _of_the_whole(names[one])]
        if POWER not in powers and len(wholes) == 1:
            log.rename(device.id, wholes[0], POWER)
            if others := [name for one, name in names.items() if one not in wholes]:
                text = f"energy is that of {names[wholes[0]]!r}, the whole; other powers are {', '.join(others)}"
                log.note("power_of_the_whole", text, device.id)
        elif POWER not in powers and powers:
            device.details["no_power"] = WHICH_POWER
            columns = ", ".join(sorted(names.values()))[:200]
            text = f"powers of {device.name} ({columns}) without a choice of one for energy"
            way = "give --map power_w=COLUMN; for the sum, --map power_w:0=COLUMN --map power_w:1=COLUMN"
            log.left.add(WHICH_POWER, f"{text}: {asked or way}", len(powers))


def _of_a_part(heading: str) -> bool:
    """True for the power of a part: the total of a memory is that of a part too."""
    plain = words(heading)
    return _PART.search(plain) is not None and _BOARD.search(plain) is None


def _of_the_whole(heading: str) -> bool:
    return _WHOLE.search(words(heading)) is not None and not _of_a_part(heading)


def _check_power(path: Path, log: Log, table: Delimited, meaning: TableColumns, *, whole: bool) -> None:
    """Warn of power above that of any GPU board: the usual mistake is milliwatts read as watts.

    A meter of several devices may read as much, where the heading or the user states the unit.

    Raises:
        BadInputError: If power is above that of any GPU and its unit isn't stated, or above that of
            anything with a single meter.
    """
    values = {table.header[value.column]: value for value in meaning.values}
    for device in log.devices.values():
        typical = log.median(device.id, POWER)
        if typical is None:
            _check_counter(log, device, values)
            continue
        source = log.source(device.id, POWER).removeprefix("column ")
        slip = f"if {source!r} is in milliwatts, give --map power_mw={source}"
        value = values[source]
        if not whole and _of_a_part(source):
            device.details["power_of"] = cut(source)
            text = f"energy is that of {source!r}, a part: what the rest of the device draws isn't in it"
            log.note("power_of_a_part", f"{text}; log the power of the whole", device.id)
        stated = value.stated or any(units.split(row[value.column])[1] for row in table.rows)
        if not stated and typical <= MOST_OF_A_BOARD_W:
            text = f"the unit of {source!r} isn't stated: watts were assumed"
            log.note("power_unit_assumed", f"{text}; if it is in kilowatts, give --map power_kw={source}", device.id)
        if typical <= MOST_OF_A_BOARD_W:
            continue
        if not stated:
            raise BadInputError(
                f"{path}: the unit of {source!r} isn't stated, and {typical:.6g} W is more than any GPU board "
                f"draws: {slip}; if it is in watts, --map power_w={source}"
            )
        if typical > MOST_W:
            raise BadInputError(f"{path}: {typical:.3g} W is more than anything behind a single meter draws: {slip}")
        text = f"power of {typical:.6g} W (median) is more than any GPU board draws"
        if _of_one_gpu(device, source, table, meaning):
            log.note("power_implausible", f"{text}: {slip}", device.id)
        else:
            device.kind = "meter"
            log.note("above_a_board", f"{text}: it is taken for that of several; {slip}", device.id)


def _check_counter(log: Log, device: DeviceInfo, values: Mapping[str, Value]) -> None:
    """Warn of a counter in no stated unit, where energy is that counter's."""
    if ENERGY_COUNTER not in log.channels(device.id):
        return
    source = log.source(device.id, ENERGY_COUNTER).removeprefix("column ")
    if not values[source].stated:
        text = f"the unit of {source!r} isn't stated: joules were assumed"
        log.note("power_unit_assumed", f"{text}; if not, give --map energy_counter_mj={source} or _kwh", device.id)


def _of_one_gpu(device: DeviceInfo, source: str, table: Delimited, meaning: TableColumns) -> bool:
    """True if the table, or the user, states a power of one GPU: by its UUID, a number of GPUs, or a known name."""
    names = [table.header[column] for role, column in meaning.device if role != HOST]
    numbered = re.search(r"gpu[ _#-]*\d", source, re.I) is not None
    known = device.id.startswith(("GPU-", "MIG-")) or rated_w(device.name) is not None
    return known or numbered or any("gpu" in name.lower() for name in names)


def _device(log: Log, roles: TableColumns, cells: Sequence[str], number: str, name: str | None) -> str:
    """Id of the device of a row, by host, UUID, number and MIG instance; ``number`` where a row holds several."""
    facts = {role: [cells[column] for of, column in roles.device if of == role] for role in _ROLES}
    host, uuid, instance = "/".join(filter(None, facts[HOST])), "".join(facts[UUID]), "".join(facts[INSTANCE])
    number = number or "".join(facts[NUMBER])
    known = uuid.upper().startswith(("GPU-", "MIG-"))
    index = gpu_number(re.sub(r"(?i)^gpu[ _#-]?", "", number))
    if not (uuid or number or host):
        index = 0
    plain = uuid if known else f"imported:{uuid or number or (host if not instance else '') or 0}"
    words = [f"device {number or uuid or host}" if (number or uuid or host) else NAMELESS]
    words += [f"of {host}"] if host and (number or uuid) else []
    words += [f"MIG {instance}"] if instance else []
    kind = "mig" if instance else "gpu" if index is not None or known else "meter"
    id = f"{plain}/{instance}" if instance else plain
    return log.device(id, name or " ".join(words), kind=kind, host=host, index=index)
