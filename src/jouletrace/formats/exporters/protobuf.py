"""The wire format of Protocol Buffers, as far as traces need it, and Perfetto's interning of words.

Source: https://protobuf.dev/programming-guides/encoding. A message is bytes, the concatenation of its fields.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(number: int) -> bytes:
    """An unsigned number, seven bits per byte; a negative one as the 64 bits of its two's complement."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer(field: int, number: int) -> bytes:
    """A field of type uint, int, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(number)


def fixed64(field: int, number: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", number)


def double(field: int, number: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", number)


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds a message of these fields, or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, words: str) -> bytes:
    """A field of type string."""
    return message(field, words.encode("utf-8", "backslashreplace"))


EVENT_CATEGORIES, EVENT_NAMES, ARG_NAMES, ARG_TEXTS = 1, 2, 3, 29
"""Fields of InternedData: its tables of words."""


class Interned:
    """The words of one packet sequence."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._used = dict.fromkeys((EVENT_CATEGORIES, EVENT_NAMES, ARG_NAMES, ARG_TEXTS), 0)
        self._new: list[bytes] = []

    def number(self, table: int, word: str) -> int:
        """The number of a word, from 1; a new word is queued for writing."""
        found = self._numbers.get((table, word))
        if found is None:
            found = self._used[table] = self._used[table] + 1
            self._numbers[table, word] = found
            self._new.append(message(table, integer(1, found), text(2, word)))
        return found

    def take_new(self) -> bytes:
        """The new words since the last call, as fields of InternedData."""
        new = b"".join(self._new)
        self._new.clear()
        return new
