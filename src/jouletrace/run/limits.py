"""What a Run may take up when it is opened, whatever its files say of themselves.

A Run from elsewhere may be damaged or malicious: a few kilobytes can unpack to gigabytes. Limits hold on what
comes out: a gigabyte of memory in all for files of up to 100 MiB. What real recordings come to stays far below.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.errors import BadInputError
from jouletrace.run.pages import DELTA_BYTE_ARRAY, pages

VARIABLE = "JOULETRACE_OPEN_GIB"
"""Environment variable: so many GiB may come out of any Run, for who trusts a very large one."""

_MIB = 1 << 20

FREE_BYTES, RATIO = 64 * _MIB, 32
"""Tables of any Run may come to so many bytes; beyond them, to so many times the bytes of its files. Real ones
come to 3 to 12 times."""

LARGE_BYTES, MOST_BYTES = 100 * _MIB, 512 * _MIB
"""Tables of a Run whose files have no more than ``LARGE_BYTES`` never come to more than ``MOST_BYTES``."""

MOST_FILE_BYTES = 4096 * _MIB
"""Size of a file, holes included: all of it is read to compare its checksum."""

FREE_ROWS = {"units": 250_000, "windows": 250_000, "results": 250_000}
OTHER_FREE_ROWS, ROWS_PER_BYTE = 1_000_000, 2
"""Any table may have so many rows; beyond them, so many a byte. Real ones have about one, or fewer."""

MOST_FOOTER_BYTES = 4 * _MIB
MOST_PAGE_BYTES = 64 * _MIB
MOST_JSON_BYTES, MOST_JSON_VALUES, DEEPEST_JSON = 64 * _MIB, 2_000_000, 100
MOST_ENTRIES = 20_000
"""Files in a zip: a Run has seven, and may hold some of those that it was made of."""

FIXED = {"INT32": 4, "INT64": 8, "DOUBLE": 8, "FLOAT": 8, "BOOLEAN": 1}
"""Bytes of a value in memory, by physical type."""

_CODE_BYTES = 4
"""Of a text, beside the distinct texts themselves."""


class Allowance:
    """How many bytes may yet come out of the files of a Run.

    Args:
        packed: Bytes of its files as they lie on the disk, holes included.
    """

    def __init__(self, packed: int) -> None:
        self.packed = packed
        most = max(FREE_BYTES, RATIO * packed)
        if packed <= LARGE_BYTES:
            most = min(most, MOST_BYTES)
        self.left = max(most, stated_bytes())

    def check(self, wanted: int) -> None:
        """Refuse what would come to more than is left.

        Raises:
            ValueError: If so.
        """
        if wanted > self.left:
            raise ValueError(
                f"it would unpack from {self.packed / _MIB:.1f} MiB to {wanted / 2**30:.1f} GiB or more, as no "
                f"recording does (where it is to be trusted, {VARIABLE}=8 allows for 8 GiB)"
            )

    def spend(self, wanted: int) -> None:
        """Take so many bytes.

        Raises:
            ValueError: If there are not so many left.
        """
        self.check(wanted)
        self.left -= wanted


def stated_bytes() -> int:
    """What the environment allows for, 0 if it says nothing.

    Raises:
        BadInputError: If it says what is no number.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return 0
    try:
        return int(float(text) * 2**30)
    except (ValueError, OverflowError):
        raise BadInputError(f"{VARIABLE}={text}: must be a number of GiB") from None


def check_table(file: BinaryIO, name: str, columns: set[str], allowance: Allowance) -> list[str]:
    """Refuse a Parquet file of which more would come out than is allowed, before anything is unpacked.

    Args:
        file: The file; its position doesn't matter.
        name: Of the table.
        columns: Those that are going to be read.
        allowance: Isn't touched: what really came out is to be spent.

    Returns:
        Those columns that are there.

    Raises:
        ValueError: In one line; also if its metadata can't be read.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    footer = int.from_bytes(file.read(4), "little")
    if footer > MOST_FOOTER_BYTES:
        raise ValueError(f"its metadata of {footer / _MIB:.1f} MiB can't be")
    file.seek(0)
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None
    wanted = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path in columns]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = max(metadata.num_rows, sum(max(group.num_rows, 0) for group in groups))
    if rows > max(FREE_ROWS.get(name, OTHER_FREE_ROWS), ROWS_PER_BYTE * size):
        raise ValueError(f"{rows} rows in {size} bytes can't be")
    widths = {i: _width(metadata.schema.column(i)) for i in wanted}
    laid_out = unpacked = 0
    for group in groups:
        for i in wanted:
            chunk = group.column(i)
            if min(group.num_rows, chunk.num_values) < 0:
                raise ValueError(f"column {chunk.path_in_schema!r} has less than no rows")
            laid_out += widths[i] * max(group.num_rows, chunk.num_values)
            unpacked += _unpacked(file, chunk, size)
            allowance.check(max(laid_out, unpacked))
    return [metadata.schema.column(i).path for i in wanted]


def _width(column: pq.ColumnSchema) -> int:
    if column.max_repetition_level or column.max_definition_level > 1:
        raise ValueError(f"column {column.path!r} is nested")
    if column.physical_type == "BYTE_ARRAY":
        return _CODE_BYTES
    if column.physical_type not in FIXED:
        raise ValueError(f"column {column.path!r} is of type {column.physical_type}")
    return FIXED[column.physical_type]


def _unpacked(file: BinaryIO, chunk: pq.ColumnChunkMetaData, size: int) -> int:
    """Bytes of the pages of a column in one row group, as a reader lays them out."""
    # Where Arrow begins to read: at a dictionary in front of the data.
    offsets = [offset for offset in (chunk.data_page_offset, chunk.dictionary_page_offset or 0) if offset > 0]
    start = min(offsets, default=0)
    end = start + chunk.total_compressed_size
    if start < 0 or end > size or end < start:
        raise ValueError(f"column {chunk.path_in_schema!r} goes beyond the file")
    total = 0
    for page in pages(file, start, end):
        if max(page.packed, page.unpacked) > MOST_PAGE_BYTES:
            raise ValueError(f"a page of {max(page.packed, page.unpacked) / _MIB:.0f} MiB can't be")
        if page.encoding == DELTA_BYTE_ARRAY:  # a few bytes may stand for a text of any length
            raise ValueError(f"column {chunk.path_in_schema!r} is encoded in a way that is not supported")
        total += page.unpacked
    return total
