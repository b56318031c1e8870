"""Saving what was measured: a fact that no reader accepts, or a place that is taken, loses none of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.run import tables
from jouletrace.run.division import divisions_of
from jouletrace.run.files import shown
from jouletrace.run.header import WrongField, plain_fields, values_of, wrong_field
from jouletrace.run.limits import DEEPEST_JSON
from jouletrace.run.model import Run, held
from jouletrace.run.places import fresh_folder
from jouletrace.run.sound import sound_rows
from jouletrace.run.store import holds, save

_MOST_NAMED = 100
"""Wrong parts of a field that are left out one by one; beyond that, the field is."""


def keep(run: Run, path: Path | str, *, taken: bool = False) -> Path:
    """Save a measured Run, which ``mend`` has changed if need be; returns the path.

    Args:
        run: The Run.
        path: Its place.
        taken: Whether the folder was taken for this Run, and its recording there is replaced; another Run is not.

    Raises:
        BrokenOffError: If it can't be saved there, because of another Run, say. Unless the folder holds its spool, it
            is then in a fresh folder beside it, which the message names.
    """
    target = Path(path)
    is_there = taken and holds(target, run.id)
    try:
        return save(mend(run), target, overwrite=is_there)
    except BadInputError as error:
        if is_there:
            raise BrokenOffError(error.text) from None
        beside = fresh_folder(target.absolute().parent, f"{target.stem}-recording")
        try:
            save(run, beside)
        except BadInputError:
            with suppress(OSError):
                beside.rmdir()
            raise BrokenOffError(error.text) from None
        raise BrokenOffError(f"{error.text}; the Run is in {shown(beside)}") from None


def mend(run: Run) -> Run:
    """The same Run, without facts and rows that no reader accepts; a warning names them."""
    header = plain_fields(run)
    wrong = [*_beyond_json(header), *_wrong_fields(header)]
    if wrong:
        values = values_of(header)
        usual = Run()
        for name in dict.fromkeys(str(fact.path[0]) for fact in wrong):
            _put(run, name, values.get(name, getattr(usual, name)))
        for fact in wrong:
            run.warn("facts_left_out", f"{fact}; it was left out", fact.name)
    for name in [name for name in tables.TABLES if isinstance(there := held(run, name), pa.Table) and len(there)]:
        _leave_out_uncastable(run, name)
        table = tables.conform(run.table(name), name)
        sound = sound_rows(table, name)
        if dropped := len(table) - len(sound):
            setattr(run, name, sound)
            rows = f"1 row of {name} had" if dropped == 1 else f"{dropped} rows of {name} had"
            code = "requests_left_out" if name == "requests" else "rows_left_out"
            run.warn(code, f"{rows} impossible values and {'was' if dropped == 1 else 'were'} left out")
    try:
        divisions_of(run)
    except ValueError:  # it can be solved again
        for name in tables.SOLVED:
            setattr(run, name, tables.empty(name))
    return run


def _leave_out_uncastable(run: Run, name: str) -> None:
    """Remove the columns of a table that don't have their type; a warning names them."""
    table = run.table(name)
    for field in tables.TABLES[name]:
        try:
            if field.name in table.column_names:
                table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            table = table.drop_columns([field.name])
            text = f"{name}: column {field.name} isn't {field.type} ({str(error).splitlines()[0]}), and was left out"
            run.warn("rows_left_out", text)
            setattr(run, name, table)


def _put(run: Run, name: str, value: Any) -> None:
    """Change a field of a Run, and what others hold of it."""
    there = getattr(run, name)
    if isinstance(there, dict) and isinstance(value, dict):
        there.clear()
        there.update(value)
    elif isinstance(there, list) and isinstance(value, list):
        there[:] = value
    else:
        setattr(run, name, value)


def _beyond_json(holder: Any, path: tuple[str | int, ...] = ()) -> Iterator[WrongField]:
    """Put null for integers of more than 64 bits, and for what is nested too deep."""
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            yield WrongField((*path, key), hex(value), "an integer of more than 64 bits")
            holder[key] = None
        elif isinstance(value, dict | list) and value and len(path) == DEEPEST_JSON - 3:
            yield WrongField((*path, key), None, f"nested more than {DEEPEST_JSON} deep")
            holder[key] = None
        elif isinstance(value, dict | list):
            yield from _beyond_json(value, (*path, key))


def _wrong_fields(header: dict[str, Any]) -> Iterator[WrongField]:
    """Remove what no reader accepts."""
    count = 0
    while (wrong := wrong_field(header)) is not None:
        count += 1
        *above, last = wrong.path if count < _MOST_NAMED else wrong.path[:1]
        holder: Any = header
        for step in above:
            holder = holder[step]
        del holder[last]
        yield wrong
