"""Checksums of the files of a Run: SHA-256 by file name, stored in ``run.json``, which includes its own checksum."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable

Checksums = dict[str, str | int]
"""By file name: SHA-256 in hexadecimal, or CRC-32 as a number in Runs of format 1.1 and older."""

_BLANK = "0" * 64
"""Placeholder in ``run.json`` for its own checksum while that is computed."""


def checksum(parts: Iterable[bytes]) -> str:
    """SHA-256 of a file given in pieces."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def matches(parts: Iterable[bytes], stated: str | int) -> bool:
    """Whether a file given in pieces matches a checksum."""
    if isinstance(stated, str):
        return checksum(parts) == stated
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc == stated


def blank(name: str) -> Checksums:
    """The placeholder for a file's own checksum, which ``seal`` replaces."""
    return {name: _BLANK}


def seal(text: bytes, name: str) -> bytes:
    """The text with its own checksum in place of the placeholder, which is the last entry of that name."""
    before, after = _around(text, name) or (text, b"")
    return before + checksum([text]).encode() + after


def is_sealed(text: bytes, name: str) -> bool | None:
    """Whether a text matches its own checksum; None if it contains none."""
    around = _around(text, name)
    if around is None:
        return None
    before, after = around
    stated = text[len(before) : len(text) - len(after)].decode()
    return matches([before, _BLANK.encode(), after], stated)


def _around(text: bytes, name: str) -> tuple[bytes, bytes] | None:
    """The text before and after its own checksum."""
    found = None
    # Quotes inside a JSON string are escaped as \\", so only a key matches this pattern.
    for found in re.finditer(rb'"%s": "([0-9a-f]{64})"' % re.escape(name.encode()), text):  # noqa: B007
        pass
    return None if found is None else (text[: found.start(1)], text[found.end(1) :])


def understood(stated: object) -> Checksums:
    """The valid checksums of a header; anything else in that field is ignored."""
    found = stated.items() if isinstance(stated, dict) else ()
    return {name: value for name, value in found if type(value) is int or _is_digest(value)}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
