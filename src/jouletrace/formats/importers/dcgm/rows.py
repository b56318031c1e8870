"""Fields of DCGM as CSV with a time in each row."""

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

_INSTANCE_COLUMNS = {"mig_profile", "mig_instance", "mig_id", "gpu_i_profile", "gpu_i_id", "instance", "instanceid"}
_ENTITY_COLUMNS = ("entityid", "entity", "gpu", "gpu_id")
_STAMP_COLUMNS = ("timestamp", "time", "datetime", "date")


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a CSV."""
    header = decode_text(head).lstrip("\ufeff\r\n ").partition("\n")[0]
    names = [cell.strip().strip('"') for cell in re.split(r"[,;\t]", header)]
    return any(name.lower() in _ENTITY_COLUMNS for name in names) and any(known(name) for name in names)


def read(path: Path, options: ImportOptions) -> Run:
    """Read such a CSV.

    Raises:
        BadInputError: If it holds no reading, or the time zone is unknown.
    """
    log = DcgmLog(path, options)
    text = read_text(path, log.left)
    _csv(path, text.lstrip("\ufeff\r\n "), log)
    return log.run("dcgm", "rows", dialect="csv")


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
