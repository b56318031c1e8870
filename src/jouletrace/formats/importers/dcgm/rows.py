"""``dcgmi dmon``, and its fields as CSV with a time in each row."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_text
from jouletrace.formats.importers.dcgm.fields import known
from jouletrace.formats.importers.dcgm.log import DcgmLog
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.formats.importers.numbers import MISSING, decimal_sign
from jouletrace.run import Run

_DMON = re.compile(r"^.{0,40}#\s*Entity\s+\S", re.M)
_ROW = re.compile(
    r"^(?P<stamp>.{0,40}?)\s*\b(?P<kind>GPU|GPU-I|GPU-CI|CPU|Switch|Link)\s+(?P<id>\d{1,4})\s+(?P<cells>\S.*)$"
)
_INSTANCE_COLUMNS = {"mig_profile", "mig_instance", "mig_id", "gpu_i_profile", "gpu_i_id", "instance", "instanceid"}
_ENTITY_COLUMNS = ("entityid", "entity", "gpu", "gpu_id")
_STAMP_COLUMNS = ("timestamp", "time", "datetime", "date")


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of either."""
    text = decode_text(head)
    return _DMON.search(text) is not None or _is_csv(text.lstrip("\ufeff\r\n ").partition("\n")[0])


def read(path: Path, options: ImportOptions) -> Run:
    """Read either format.

    Raises:
        BadInputError: If it holds no reading, or the time zone is unknown.
    """
    log = DcgmLog(path, options)
    text = read_text(path, log.left)
    if _DMON.search(text[:65536]):
        _dmon(text, log)
        return log.run("dcgm", "rows", dialect="dcgmi dmon")
    _csv(path, text.lstrip("\ufeff\r\n "), log)
    return log.run("dcgm", "rows", dialect="csv")


def _is_csv(header: str) -> bool:
    names = [cell.strip().strip('"') for cell in re.split(r"[,;\t]", header)]
    return any(name.lower() in _ENTITY_COLUMNS for name in names) and any(known(name) for name in names)


def _dmon(text: str, log: DcgmLog) -> None:
    names: list[str] = []
    stated: list[str] = []
    board = ""
    for line, row in enumerate(text.split("\n"), start=1):
        found = _ROW.match(row)
        if _DMON.match(row):
            names, stated = row.partition("Entity")[2].split(), []
        elif found is None and re.match(r"^\s*.{0,40}?\bI[Dd]\b", row):
            stated = re.split(r"\bI[Dd]\b", row, maxsplit=1)[1].split()
        elif found is None:
            log.left.add("broken_rows", "lines aren't rows of dcgmi dmon", bool(row.strip()), f"line {line}")
        elif len(cells := found["cells"].split()) != len(names):
            log.left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
        elif found["kind"] in ("CPU", "Switch", "Link"):
            log.left.add("other_entities", "rows don't belong to a GPU", place=f"line {line}")
        else:
            # dmon doesn't state the GPU of an instance; it lists instances below their GPU.
            board = log.board(found["id"]) if found["kind"] == "GPU" else board or log.board("0")
            instance = None if found["kind"] == "GPU" else log.instance(board, f"{found['kind']} {found['id']}")
            number = log.row(found["stamp"].strip(), instance or board)
            # Units stand below their columns, but ratios have none, so only a full row of units can be recognised.
            units = stated if len(stated) == len(names) else [""] * len(names)
            for name, unit, cell in zip(names, units, cells, strict=True):
                value = log.left.number(cell, ".", f"line {line}, column {name}")
                if value is not None:
                    log.take(name, unit, board, instance, number, value)


def _csv(path: Path, text: str, log: DcgmLog) -> None:
    table = read_delimited(text, log.left)
    lower = [name.strip('"').lower() for name in table.header]
    entity = next((i for i, name in enumerate(lower) if name in _ENTITY_COLUMNS), None)
    stamp = next((i for i, name in enumerate(lower) if name in _STAMP_COLUMNS), None)
    if entity is None:
        raise BadInputError(f"{path}: DCGM's CSV without a column EntityId")
    parts = [i for i, name in enumerate(lower) if name in _INSTANCE_COLUMNS]
    fields = [i for i, name in enumerate(table.header) if i not in (entity, stamp, *parts) and name]
    decimal = decimal_sign(row[i] for row in table.rows[:200] for i in fields)
    for cells, line in zip(table.rows, table.lines, strict=True):
        digits = re.sub(r"^\D+", "", cells[entity])
        if not digits.isdecimal() or len(digits) > 4:
            log.left.add("broken_rows", "rows have no entity", place=f"line {line}")
            continue
        board = log.board(digits)
        profile = " ".join(cells[i] for i in parts if cells[i].lower() not in MISSING)
        instance = log.instance(board, profile, profile) if profile else None
        number = log.row(cells[stamp] if stamp is not None else "", instance or board)
        for i in fields:
            value = log.left.number(cells[i], decimal, f"line {line}, column {table.header[i]}")
            if value is not None:
                log.take(table.header[i], "", board, instance, number, value)
