"""Crash-safe recording: tables are appended to Arrow IPC streams while a run goes on.

A stream that a crash cut off is readable up to its last whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from jouletrace.run import tables

SUFFIX = ".arrows"


class SpoolWriter:
    """Appends batches of one table to ``FOLDER/NAME[.PART].arrows``; each batch is flushed.

    Several writers may feed one table of a folder, each with a ``part`` of its own.
    """

    def __init__(self, folder: Path | str, table: str, part: str = "") -> None:
        self._schema = _plain(tables.TABLES[table])
        name = f"{table}.{part}{SUFFIX}" if part else f"{table}{SUFFIX}"
        self.path = Path(folder) / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("wb")
        self._stream = pa.ipc.new_stream(self._file, self._schema)
        self._file.flush()

    def append(self, columns: Mapping[str, Any]) -> None:
        """Append rows given by column (absent columns become null) and flush them to the file."""
        length = len(next(iter(columns.values())))
        arrays = [
            tables.array(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type)
            for f in self._schema
        ]
        self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._file.flush()

    def close(self) -> None:
        """End the stream."""
        if not self._file.closed:
            self._stream.close()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def read_spool(folder: Path | str, table: str) -> pa.Table:
    """All whole batches of a table in a spool folder, cut-off streams included."""
    parts = [tables.empty(table)]
    for path in sorted(Path(folder).glob(f"{table}*{SUFFIX}")):
        if path.name != f"{table}{SUFFIX}" and not path.name.startswith(f"{table}."):
            continue
        batches = _whole_batches(path)
        if batches:
            parts.append(tables.conform(pa.Table.from_batches(batches), table))
    return tables.conform(pa.concat_tables(parts), table)


def _whole_batches(path: Path) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, OSError, EOFError):
        # The writer was killed inside a batch (or before the schema was out); keep what is whole.
        pass
    return batches


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionary types, since a stream may not replace a dictionary freely."""
    return pa.schema(
        [
            pa.field(f.name, f.type.value_type) if pa.types.is_dictionary(f.type) else pa.field(f.name, f.type)
            for f in schema
        ]
    )
