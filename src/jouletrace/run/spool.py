"""Crash-safe recording: tables are appended to Arrow IPC streams while a run goes on.

A stream cut off by a crash is readable up to its last complete batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from jouletrace.errors import BadInputError
from jouletrace.known_secrets import refresh
from jouletrace.run import tables
from jouletrace.run.files import open_regular
from jouletrace.run.limits import MOST_FILE_BYTES, stated_bytes
from jouletrace.run.masking import masked_array

SPOOL = "spool"
"""Folder of what is being recorded, within that of the Run."""

SUFFIX = ".arrows"
_PIECE, _PIECE_ROWS = 1000, 1 << 19
"""Batches, and rows, from which on they are combined: a batch takes some kilobytes in addition to its rows."""


class SpoolWriter:
    """Appends batches of one table to ``FOLDER/NAME[.PART].arrows``; each batch is flushed.

    Several writers may feed one table of a folder, each with its own ``part``.
    """

    def __init__(self, folder: Path | str, table: str, part: str = "") -> None:
        refresh()
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
            tables.array(columns[f.name], f.type) if f.name in columns else tables.nulls(length, f.type)
            for f in self._schema
        ]
        safe = [masked_array(array) for array in arrays]  # what is left of a crash is passed on too
        self._stream.write_batch(pa.record_batch(safe, schema=self._schema))
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
    """All complete batches of a table in a spool folder, cut-off streams included.

    Raises:
        BadInputError: If a file is too large, or doesn't hold this table.
    """
    return tables.concat(pieces(folder, table), table)


def pieces(folder: Path | str, table: str) -> Iterator[pa.Table]:
    """The same, some hundred thousand rows at a time.

    Raises:
        BadInputError: Likewise.
    """
    for path in sorted(Path(folder).glob(f"{table}*{SUFFIX}")):
        if path.name == f"{table}{SUFFIX}" or path.name.startswith(f"{table}."):
            yield from _pieces_of(path, table)


def read_part(path: Path, table: str) -> pa.Table:
    """All complete batches of one file of a table."""
    return tables.concat(_pieces_of(path, table), table)


def _pieces_of(path: Path, table: str) -> Iterator[pa.Table]:
    """All complete batches of a file, combined into pieces, copied into memory."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in chain(_whole_batches(path), [None]):
        if batch is not None:
            batches.append(batch)
            rows += len(batch)
        if batches and (batch is None or rows >= _PIECE_ROWS or len(batches) == _PIECE):
            try:
                yield tables.conform(pa.Table.from_batches(batches), table).combine_chunks()
            except (pa.ArrowException, KeyError) as error:
                raise BadInputError(f"{path} is not of a recording: {str(error).splitlines()[0]}") from None
            batches, rows = [], 0


def _whole_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > max(MOST_FILE_BYTES, stated_bytes()):
                raise BadInputError(f"{path} is larger than any recording: refused")
            # A buffer has a known end, whatever lengths the messages state.
            source = pa.BufferReader(mmap(file.fileno(), 0, access=ACCESS_READ) if size else b"")
        schema = pa.ipc.read_schema(pa.ipc.read_message(source))
        while True:
            message = pa.ipc.read_message(source)
            if _is_packed(message):
                raise BadInputError(f"{path} is compressed, as no recording is: refused")
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
            yield batch
    except (pa.ArrowException, OSError, EOFError):
        # The end; or the writer was killed within a batch or before the schema: complete batches are kept.
        pass


def _is_packed(message: pa.ipc.Message) -> bool:
    """True if the buffers of a record batch are compressed: a few bytes may then unpack to any length.

    Arrow's messages are FlatBuffers (``Message.fbs``): a table begins with the offset of its list of fields, where
    an absent field is 0. Field 2 of a message is its batch, and field 3 of a batch is its compression.
    """
    data = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int:
        fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
        entry = fields + 4 + 2 * number
        if entry + 2 > fields + int.from_bytes(data[fields : fields + 2], "little"):
            return 0
        return int.from_bytes(data[entry : entry + 2], "little")

    root = int.from_bytes(data[:4], "little")
    at = root + field(root, 2)
    return field(at + int.from_bytes(data[at : at + 4], "little"), 3) != 0


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionary types, since a stream can't replace a dictionary freely."""
    plain = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema}
    return pa.schema(plain)
