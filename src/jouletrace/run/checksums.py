"""Checksums of the files of a Run: SHA-256 by file name, in its ``run.json``, that of ``run.json`` itself too."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable

Checksums = dict[str, str | int]
"""By file name: SHA-256 in hexadecimal, or CRC-32 as a number in Runs of format 1.1 and older."""

_BLANK = "0" * 64
"""Stands in ``run.json`` for its own checksum while that is computed."""


def checksum(parts: Iterable[bytes]) -> str:
    """SHA-256 of a file that comes in pieces."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def matches(parts: Iterable[bytes], stated: str | int) -> bool:
    """Whether a file that comes in pieces is the one that a checksum was made of."""
    if isinstance(stated, str):
        return checksum(parts) == stated
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc == stated


def blank(name: str) -> Checksums:
    """What stands for a file's own checksum in its text until ``seal`` puts it there."""
    return {name: _BLANK}


def seal(text: bytes, name: str) -> bytes:
    """The same text with its own checksum in place of the blank, which is the last of that name."""
    before, after = _around(text, name) or (text, b"")
    return before + checksum([text]).encode() + after


def is_sealed(text: bytes, name: str) -> bool | None:
    """Whether a text is what its own checksum says; None if it states none."""
    around = _around(text, name)
    if around is None:
        return None
    before, after = around
    stated = text[len(before) : len(text) - len(after)].decode()
    return matches([before, _BLANK.encode(), after], stated)


def _around(text: bytes, name: str) -> tuple[bytes, bytes] | None:
    """What stands before and after the text's own checksum."""
    found = None
    # Quotes inside a JSON text are written as \\", so that only a key reads like this.
    for found in re.finditer(rb'"%s": "([0-9a-f]{64})"' % re.escape(name.encode()), text):  # noqa: B007
        pass
    return None if found is None else (text[: found.start(1)], text[found.end(1) :])


def understood(stated: object) -> Checksums:
    """Those checksums of a header that are any, whatever else stands there."""
    found = stated.items() if isinstance(stated, dict) else ()
    return {name: value for name, value in found if type(value) is int or _is_digest(value)}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
