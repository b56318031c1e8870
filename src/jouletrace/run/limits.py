"""Refusing files that would unpack to absurd sizes, before they are unpacked.

A Run from elsewhere may be damaged or malicious: a few kilobytes can say that they are gigabytes.
What real recordings come to stays far below these limits.
"""

from __future__ import annotations

import io
from zipfile import ZipInfo

import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.errors import BadInputError

FREE_BYTES, MOST_RATIO = 64 * 2**20, 100
"""Anything may unpack to so many bytes; beyond them, to so many times its own size."""

FREE_ROWS, ROWS_PER_BYTE = 1_000_000, 10
"""Any table may have so many rows; beyond them, so many a byte. Real ones have less than one."""


def check_entry(entry: ZipInfo, where: str) -> None:
    """Refuse an entry of the zip file ``where`` that would unpack to an absurd size.

    Raises:
        BadInputError: If so.
    """
    if absurd := _absurd(entry.file_size, entry.compress_size):
        raise BadInputError(f"{where}/{entry.filename} {absurd}: refused")


def check_table(data: bytes) -> None:
    """Refuse a Parquet file that says that it holds absurdly much.

    Raises:
        ValueError: In one line, also if its metadata can't be read.
    """
    try:
        metadata = pq.read_metadata(io.BytesIO(data))
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    except (pa.ArrowException, OSError) as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None
    if metadata.num_rows > max(FREE_ROWS, ROWS_PER_BYTE * len(data)):
        raise ValueError(f"{metadata.num_rows} rows in {len(data)} bytes can't be")
    if absurd := _absurd(unpacked, len(data)):
        raise ValueError(f"it {absurd}")


def _absurd(unpacked: int, packed: int) -> str:
    if unpacked <= max(FREE_BYTES, MOST_RATIO * packed):
        return ""
    return f"would unpack from {packed / 2**20:.1f} MiB to {unpacked / 2**30:.1f} GiB, as no recording does"
