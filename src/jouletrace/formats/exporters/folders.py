"""The whole Run for other programs: a folder of CSV files, a folder of Parquet tables, or one zip."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from jouletrace.errors import BadInputError
from jouletrace.run import Run, tables
from jouletrace.run.files import RUN_JSON, write_whole
from jouletrace.run.header import encode
from jouletrace.run.places import check_free, file_mode, first_folder, written
from jouletrace.run.store import save
from jouletrace.spreadsheets import csv_text


def write_parquet(run: Run, path: Path | str) -> Path:
    """Write a Run as a folder of Parquet tables; the folder is a Run that ``load`` reads.

    Tables of a simulated Run have a last column SIMULATED.

    Raises:
        BadInputError: If the path exists already, can't be written, or is the name of a zip file.
    """
    if Path(path).suffix.lower() == ".zip":
        raise BadInputError(f"{path}: Parquet tables go to a folder; for one file use the format zip")
    return save(run, check_free(path))


def write_zip(run: Run, path: Path | str) -> Path:
    """Write a Run as one file; ".zip" is appended to a name without it.

    Raises:
        BadInputError: If the path exists already, or can't be written.
    """
    target = Path(path)
    if target.suffix.lower() != ".zip":
        target = target.with_name(f"{target.name}.zip")
    return save(run, check_free(target))


def write_csv(run: Run, path: Path | str) -> Path:
    """Write a Run as CSV files: times in whole nanoseconds, numbers in full precision.

    A heading states its unit by its suffix ("start_ns") or in brackets ("grid_x [blocks]"). An empty
    cell is null. Text that a spreadsheet would run as a formula is prefixed by an apostrophe.
    Tables of a simulated Run have a last column SIMULATED. ``run.json`` in the same folder holds the units
    of the channels and everything else; the division of energy with its covariance (``tables.SOLVED``) isn't written.

    Raises:
        BadInputError: If the path exists already, or can't be written.
    """
    target = check_free(path)
    with written(target, BadInputError), first_folder(target) as folder:
        write_whole(folder / RUN_JSON, encode(run), mode=file_mode(), first=True)
        left_out = (*tables.SOLVED, *(name for name in tables.OF_LONG if not len(run.table(name))))
        for name in [name for name in tables.TABLES if name not in left_out]:
            table = tables.conform(run.table(name), name)
            if run.simulated:
                table = tables.mark_simulated(table)
            plain = pa.table({_heading(field): _plain(table[field.name]) for field in table.schema})
            with (folder / f"{name}.csv").open("wb") as file:  # Arrow accepts no file name that isn't UTF-8
                pacsv.write_csv(plain, file)
    return target


def _heading(field: pa.Field) -> str:
    """The column's name, with its unit where the name doesn't end in the unit."""
    unit = field.metadata[b"unit"].decode()
    suffix = {"Cel": "c", "B": "bytes"}.get(unit, unit.lower())
    named = not unit or field.name == suffix or field.name.endswith(f"_{suffix}")
    return str(field.name) if named else f"{field.name} [{unit}]"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without a dictionary, which CSV doesn't support, and without formulas."""
    if pa.types.is_dictionary(column.type):
        chunks = [pa.DictionaryArray.from_arrays(one.indices, _texts(one.dictionary)) for one in column.chunks]
        return pa.chunked_array(chunks, column.type).cast(column.type.value_type)
    if pa.types.is_string(column.type):
        return pa.chunked_array([_texts(chunk) for chunk in column.chunks], column.type)
    return column


def _texts(values: pa.Array) -> pa.Array:
    return pa.array([None if text is None else csv_text(text) for text in values.to_pylist()], pa.string())
