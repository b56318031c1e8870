"""``dcgmi dmon``, and its fields as CSV with a time in each row."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, read_text
from jouletrace.formats.importers.dcgm.fields import known
from jouletrace.formats.importers.dcgm.log import DcgmLog
from jouletrace.formats.importers.delimited import delimiter_of, read_delimited
from jouletrace.formats.importers.numbers import MISSING, decimal_sign
from jouletrace.run import Run

_DMON = re.compile(r"^.{0,40}#\s*Entity\s+\S", re.M)
_ROW = re.compile(
    r"^(?P<stamp>.{0,40}?)\s*\b(?P<kind>GPU|GPU-I|GPU-CI|CPU|Switch|Link)\s+(?P<id>\d{1,4})\s+(?P<cells>\S.*)$"
)
_INSTANCE_COLUMNS = {"mig_profile", "mig_instance", "mig_id", "gpu_i_profile", "gpu_i_id", "instance", "instanceid"}
_STAMP_COLUMNS = ("timestamp", "time", "datetime", "date")


def recognises(head: str) -> bool:
    """Whether text that begins so is either."""
    return _DMON.search(head) is not None or _is_csv(head.lstrip("\ufeff\r\n ").partition("\n")[0])


def read(path: Path, options: ImportOptions) -> Run:
    """Read either.

    Raises:
        BadInputError: If there is no reading in it, or the time zone is unknown.
    """
    left = Left(path)
    text = read_text(path, left)
    return (_dmon if _DMON.search(text[:65536]) else _csv)(path, text, left, options)


def _is_csv(header: str) -> bool:
    names = [cell.strip().strip('"') for cell in re.split(r"[,;\t]", header)]
    entity = any(name.lower() in ("entityid", "entity", "gpu", "gpu_id") for name in names)
    return entity and any(known(name) for name in names)


def _dmon(path: Path, text: str, left: Left, options: ImportOptions) -> Run:
    log = DcgmLog(options)
    names: list[str] = []
    stated: list[str] = []
    times: list[str] = []
    ticks: list[int] = []
    counts: dict[str, int] = {}
    board = ""
    for line, row in enumerate(text.split("\n"), start=1):
        if _DMON.match(row):
            names, stated = row.partition("Entity")[2].split(), []
            continue
        found = _ROW.match(row)
        if found is None:
            if re.match(r"^\s*.{0,40}?\bI[Dd]\b", row):
                stated = re.split(r"\bI[Dd]\b", row, maxsplit=1)[1].split()
            elif row.strip():
                left.add("broken_rows", "lines are no rows of dcgmi dmon", place=f"line {line}")
            continue
        cells = found["cells"].split()
        if len(cells) != len(names):
            left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
            continue
        if found["kind"] in ("CPU", "Switch", "Link"):
            left.add("other_entities", "rows are of no GPU", place=f"line {line}")
            continue
        instance = None
        if found["kind"] == "GPU":
            board = log.board(found["id"])
        else:
            # dmon does not say whose instance it is; it lists them under their board.
            board = board or log.board("0")
            instance = log.instance(board, f"{found['kind']} {found['id']}")
        counts[instance or board] = counts.get(instance or board, -1) + 1
        times.append(found["stamp"].strip())
        ticks.append(counts[instance or board])
        for i, (name, cell) in enumerate(zip(names, cells, strict=True)):
            # Units stand under their columns, but ratios have none: only a full row of them can be told apart.
            unit = stated[i] if len(stated) == len(names) else ""
            _take(log, left, name, unit, cell, board, instance, len(times) - 1, f"line {line}, column {name}", ".")
    return log.run(path, left, "dcgmi dmon", times, ticks, "rows")


def _csv(path: Path, text: str, left: Left, options: ImportOptions) -> Run:
    log = DcgmLog(options)
    text = text.lstrip("\ufeff\r\n ")
    table = read_delimited(text, left, delimiter=delimiter_of(text.partition("\n")[0]))
    lower = [name.strip('"').lower() for name in table.header]
    entity = next((i for i, name in enumerate(lower) if name in ("entityid", "entity", "gpu", "gpu_id")), None)
    stamp = next((i for i, name in enumerate(lower) if name in _STAMP_COLUMNS), None)
    if entity is None:
        raise BadInputError(f"{path}: DCGM's CSV without a column EntityId")
    parts = [i for i, name in enumerate(lower) if name in _INSTANCE_COLUMNS]
    fields = [i for i, name in enumerate(table.header) if i not in (entity, stamp, *parts) and name]
    decimal = decimal_sign(row[i] for row in table.rows[:200] for i in fields)
    counts: dict[str, int] = {}
    ticks: list[int] = []
    times: list[str] = []
    for cells, line in zip(table.rows, table.lines, strict=True):
        digits = re.sub(r"^\D+", "", cells[entity])
        if not digits.isdecimal() or len(digits) > 4:
            left.add("broken_rows", "rows have no entity", place=f"line {line}")
            continue
        board = log.board(digits)
        profile = " ".join(cells[i] for i in parts if cells[i].lower() not in MISSING)
        instance = log.instance(board, profile, profile) if profile else None
        counts[instance or board] = counts.get(instance or board, -1) + 1
        ticks.append(counts[instance or board])
        times.append(cells[stamp] if stamp is not None else "")
        for i in fields:
            place = f"line {line}, column {table.header[i]}"
            _take(log, left, table.header[i], "", cells[i], board, instance, len(times) - 1, place, decimal)
    return log.run(path, left, "csv", times, ticks, "rows")


def _take(
    log: DcgmLog,
    left: Left,
    name: str,
    unit: str,
    cell: str,
    board: str,
    instance: str | None,
    row: int,
    place: str,
    decimal: str,
) -> None:
    value = left.number(cell, decimal, place)
    if value is not None:
        log.add(name, unit, board, instance, row, value)
