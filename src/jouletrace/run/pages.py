"""The page headers of a Parquet file: how many bytes a reader will unpack, known before it does.

The sizes in a file's footer may be wrong; a reader uses the header in front of each page. This module reads those
headers: structs of Thrift's compact protocol, of which only lengths and counts are decoded
(https://parquet.apache.org/docs/file-format/ and Thrift's thrift-compact-protocol.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_HEADER_BYTES = (1 << 9, 1 << 16)
"""A page header takes about 30 bytes; statistics of long texts, which writers truncate, add up to a few thousand."""

MOST_PAGES = 100_000
"""Pages of a column: a real page holds about a megabyte, or a whole row group."""

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
"""Kinds of pages."""

_ENCODING = {DATA: (5, 2), DICTIONARY: (7, 2), DATA_V2: (8, 4)}
"""By kind of page: the field of its specific header, and the field of the encoding within that header."""

PLAIN, DELTA_BYTE_ARRAY = 0, 7
"""Encodings: values in sequence; and texts as the length of the prefix shared with the previous one, and a suffix."""

_BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(3, 13)
_INTEGERS = (_I16, _I32, _I64)
_DEEPEST = 8

_Struct = dict[int, "int | _Struct | None"]


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        kind: ``DATA``, ``INDEX``, ``DICTIONARY`` or ``DATA_V2``.
        encoding: How its values are encoded.
        packed, unpacked: Its bytes in the file, and after decompression by a reader.
    """

    kind: int
    encoding: int
    packed: int
    unpacked: int


def pages(file: BinaryIO, start: int, end: int) -> Iterator[Page]:
    """The pages of a column chunk that lies in ``[start, end)`` of a file.

    Raises:
        ValueError: If a header is invalid, or a page extends beyond the chunk.
    """
    at, count = start, 0
    while at < end:
        count += 1
        if count > MOST_PAGES:
            raise ValueError(f"a column has more than {MOST_PAGES} pages")
        found, length = _header(file, at, end)
        kind, unpacked, packed = (found.get(field) for field in (1, 2, 3))
        if not (isinstance(kind, int) and isinstance(unpacked, int) and isinstance(packed, int)):
            raise ValueError("a page has no sizes")
        at += length + packed
        if packed < 0 or unpacked < 0 or at > end:
            raise ValueError("a page is longer than its column")
        yield Page(kind, _encoding(found, kind), packed, unpacked)


def _header(file: BinaryIO, at: int, end: int) -> tuple[_Struct, int]:
    """The header of a page, and its size in bytes."""
    for most in _HEADER_BYTES:
        file.seek(at)
        header = _Compact(file.read(min(most, end - at)))
        try:
            return header.struct(), header.at
        except _CutOffError:
            continue
    raise ValueError("a page header is cut off")


def _encoding(found: _Struct, kind: int) -> int:
    if kind not in _ENCODING:
        return PLAIN
    outer, inner = _ENCODING[kind]
    own = found.get(outer)
    encoding = own.get(inner) if isinstance(own, dict) else None
    if not isinstance(encoding, int):
        raise ValueError("a page has no encoding")
    return encoding


class _CutOffError(ValueError):
    """The data ends inside a header."""


class _Compact:
    """Reads structs; integers and nested structs are kept, everything else is skipped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> _Struct:
        if depth > _DEEPEST:
            raise ValueError("a page header is nested too deeply")
        found: _Struct = {}
        field = 0
        while (head := self._byte()) & 15:  # else it ends
            kind, step = head & 15, head >> 4
            field = field + step if step else self._integer()
            found[field] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> int | _Struct | None:
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (1, 2):  # true and false, which the kind itself encodes
            return None
        if kind in (_BYTE, _DOUBLE):
            self._skip(1 if kind == _BYTE else 8)
        elif kind == _BINARY:
            self._skip(self._varint())
        else:  # page headers hold no lists or maps
            raise ValueError("a page header holds a list or a map")
        return None

    def _integer(self) -> int:
        zigzag = self._varint()
        return zigzag >> 1 ^ -(zigzag & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a page header holds a number of more than 64 bits")

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise _CutOffError
