"""The wire format of Protocol Buffers, as far as a writer of traces needs it.

Source: https://protobuf.dev/programming-guides/encoding. A message is bytes; its fields are added up.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte; a negative one as the 64 bits of its two's complement."""
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
