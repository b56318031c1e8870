"""A folder with one CSV file a table, units in the headings, beside ``run.json``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from jouletrace.errors import BadInputError
from jouletrace.run import Run, tables
from jouletrace.run.store import check_free, save_header
from jouletrace.spreadsheets import csv_text


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as CSV files: times as whole nanoseconds, numbers so that they read back equal.

    A heading names its unit by its suffix ("start_ns") or in brackets ("grid_x [blocks]"); an empty
    cell is null, and text that a spreadsheet would run as a formula has an apostrophe before it.
    Tables of a simulated Run have a last column SIMULATED. ``run.json`` beside them holds the units of
    the channels and everything else.

    Raises:
        BadInputError: If something is there already, or the place can't be written.
    """
    target = check_free(path)
    save_header(run, target)
    for name in tables.TABLES:
        table = tables.conform(run.table(name), name)
        if run.simulated:
            table = tables.mark_simulated(table)
        plain = pa.table({_heading(field): _plain(table[field.name]) for field in table.schema})
        try:
            with (target / f"{name}.csv").open("wb") as file:  # Arrow itself takes no name that isn't UTF-8
                pacsv.write_csv(plain, file)
        except OSError as error:
            raise BadInputError(f"cannot write {target / name}.csv: {error.strerror or error}") from None
    return target


def _heading(field: pa.Field) -> str:
    """The column's name, with its unit where the name doesn't end in it."""
    unit = field.metadata[b"unit"].decode()
    suffix = {"Cel": "c", "B": "bytes"}.get(unit, unit.lower())
    named = not unit or field.name == suffix or field.name.endswith(f"_{suffix}")
    return str(field.name) if named else f"{field.name} [{unit}]"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names spelt out, which CSV has no dictionaries for, and no formula among them."""
    if not pa.types.is_dictionary(column.type):
        return pa.chunked_array([_texts(chunk) for chunk in column.chunks], column.type) if _is_text(column) else column
    chunks = [pa.DictionaryArray.from_arrays(one.indices, _texts(one.dictionary)) for one in column.chunks]
    return pa.chunked_array(chunks, column.type).cast(column.type.value_type)


def _is_text(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type))


def _texts(values: pa.Array) -> pa.Array:
    return pa.array([None if text is None else csv_text(text) for text in values.to_pylist()], pa.string())
