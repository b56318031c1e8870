"""Limits on the memory that opening a Run takes, independent of the sizes that its files state.

A foreign Run may be damaged or malicious: a few kilobytes can unpack to gigabytes. The limits apply to the unpacked
data: a gigabyte of memory in total for files of up to 100 MiB. Real recordings stay far below.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa

from jouletrace.errors import BadInputError
from jouletrace.run.lazily import parquet as pq

VARIABLE = "JOULETRACE_OPEN_GIB"
"""Environment variable: GiB that any Run may unpack to, for users who trust a very large one."""

_MIB = 1 << 20

FREE_BYTES, RATIO = 88 * _MIB, 32
"""Texts of any Run may take ``FREE_BYTES``; beyond that, ``RATIO`` times the bytes of its files. Real recordings take 3
to 12 times."""

LARGE_BYTES, MOST_BYTES = 100 * _MIB, 512 * _MIB
"""Tables of a Run whose files take at most ``LARGE_BYTES`` never unpack to more than ``MOST_BYTES``; those of a larger
one, to ``RATIO`` times its bytes. Numbers have no other limit: equal readings at equal distances take hardly a byte, so
a valid log of months may come to thousands of times its file."""

MOST_FILE_BYTES = 4096 * _MIB
"""Size of a file, holes included: all of it is read to compare its checksum."""

ROW_BY_ROW, FREE_ROWS, ROWS_PER_BYTE = ("units", "windows", "results"), 250_000, 2
"""Tables whose rows become Python objects may have ``FREE_ROWS``; beyond that, ``ROWS_PER_BYTE`` per byte. Each row has
a name or a figure of its own: real ones have at most about one per byte."""

MOST_FOOTER_BYTES = 4 * _MIB
MOST_JSON_BYTES, MOST_JSON_VALUES, DEEPEST_JSON = 64 * _MIB, 2_000_000, 100
MOST_ENTRIES = 20_000
"""Files in a zip: a Run has seven, and may contain the Runs that it was made from."""

FIXED = {"INT32": 4, "INT64": 8, "DOUBLE": 8, "FLOAT": 8, "BOOLEAN": 1}
"""Bytes of a value in memory, by physical type."""

_CODE_BYTES = 4
"""Bytes per text value, in addition to the distinct texts themselves."""


class TooLargeError(ValueError):
    """Data would unpack to more than is allowed."""


class Allowance:
    """How many more bytes the files of a Run may unpack to, and how many of these may be texts.

    Args:
        packed: Bytes of its files on the disk, holes included.
    """

    def __init__(self, packed: int) -> None:
        self.packed = packed
        stated = stated_bytes()
        self.left = max(MOST_BYTES if packed <= LARGE_BYTES else RATIO * packed, stated)
        self.left_for_texts = min(max(FREE_BYTES, RATIO * packed, stated), self.left)

    def check(self, wanted: int, texts: int = 0) -> None:
        """Refuse data larger than the remaining allowance, or with more texts than remain.

        Raises:
            TooLargeError: If it is larger.
        """
        if wanted > self.left or texts > self.left_for_texts:
            raise TooLargeError(
                f"it would unpack from {self.packed / _MIB:.1f} MiB to {max(wanted, texts) / 2**30:.1f} GiB or more, "
                f"as no recording does (for a file that you trust, {VARIABLE}=8 allows 8 GiB)"
            )

    def spend(self, wanted: int, texts: int = 0) -> None:
        """Subtract bytes from the allowance.

        Raises:
            TooLargeError: If fewer are left.
        """
        self.check(wanted, texts)
        self.left -= wanted
        self.left_for_texts -= texts


def stated_bytes() -> int:
    """Bytes that the environment variable allows, 0 if it isn't set.

    Raises:
        BadInputError: If its value isn't a number.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return 0
    try:
        return int(float(text) * 2**30)
    except (ValueError, OverflowError):
        raise BadInputError(f"{VARIABLE}={text}: must be a number of GiB") from None


def metadata_of(file: BinaryIO) -> pq.FileMetaData:
    """Read the metadata of a Parquet file.

    Raises:
        ValueError: With one line, if it can't be read, or is larger than that of any recording.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    footer = int.from_bytes(file.read(4), "little")
    if footer > MOST_FOOTER_BYTES:
        raise ValueError(f"its metadata claims an impossible size of {footer / _MIB:.1f} MiB")
    file.seek(0)
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None


def check_table(
    file: BinaryIO, name: str, columns: set[str], allowance: Allowance, groups: Sequence[int] | None = None
) -> list[str]:
    """Refuse a Parquet file that would unpack to more than is allowed, before anything is unpacked.

    Only ``columns`` count, of the row ``groups`` (None: all); those of them that the file contains are returned. The
    allowance is not reduced here, since the caller spends the bytes really unpacked.

    Raises:
        ValueError: With one line; also if the metadata can't be read.
    """
    size, metadata = file.seek(0, os.SEEK_END), metadata_of(file)
    wanted = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path in columns]
    numbers = range(metadata.num_row_groups) if groups is None else groups
    read = [metadata.row_group(number) for number in numbers]
    stated = metadata.num_rows if groups is None else 0
    rows = max(stated, sum(max(group.num_rows, 0) for group in read))
    if name in ROW_BY_ROW and rows > max(FREE_ROWS, ROWS_PER_BYTE * size):
        raise ValueError(f"{rows} rows in {size} bytes are impossible")
    widths = {i: _width(metadata.schema.column(i)) for i in wanted}
    laid_out = unpacked = texts = 0
    for group in read:
        for i in wanted:
            chunk = group.column(i)
            if min(group.num_rows, chunk.num_values) < 0:
                raise ValueError(f"column {chunk.path_in_schema!r} has a negative number of rows")
            laid_out += widths[i] * max(group.num_rows, chunk.num_values)
            stated = _unpacked(chunk, size)
            unpacked += stated
            texts += stated * (chunk.physical_type == "BYTE_ARRAY")
            allowance.check(max(laid_out, unpacked), texts)
    return [metadata.schema.column(i).path for i in wanted]


def _width(column: pq.ColumnSchema) -> int:
    if column.max_repetition_level or column.max_definition_level > 1:
        raise ValueError(f"column {column.path!r} is nested")
    if column.physical_type == "BYTE_ARRAY":
        return _CODE_BYTES
    if column.physical_type not in FIXED:
        raise ValueError(f"column {column.path!r} is of type {column.physical_type}")
    return FIXED[column.physical_type]


def _unpacked(chunk: pq.ColumnChunkMetaData, size: int) -> int:
    """Bytes of the pages of a column in one row group after decompression, as the file states."""
    # Arrow begins to read at the dictionary in front of the data.
    offsets = [offset for offset in (chunk.data_page_offset, chunk.dictionary_page_offset or 0) if offset > 0]
    start = min(offsets, default=0)
    end = start + chunk.total_compressed_size
    if start < 0 or end > size or end < start:
        raise ValueError(f"column {chunk.path_in_schema!r} extends beyond the file")
    return int(chunk.total_uncompressed_size)
