"""Formats of several dialects, a module each, told apart by how a file begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_head
from jouletrace.run import Run


class Dialect(Protocol):
    """What the module of a dialect offers."""

    def recognises(self, head: str) -> bool:
        """Whether text that begins so is of this dialect."""

    def read(self, path: Path, options: ImportOptions) -> Run:
        """Read it."""


def sniff_any(dialects: Sequence[Dialect], head: bytes) -> bool:
    """Whether a file that begins so is of one of the dialects."""
    text = decode_text(head)
    return any(dialect.recognises(text) for dialect in dialects)


def read_any(dialects: Sequence[Dialect], path: Path, options: ImportOptions, needed: str) -> Run:
    """Read a file by the dialect that it is of.

    Raises:
        BadInputError: If it is of none, which names what is ``needed``, or nothing in it can be used.
    """
    head = decode_text(read_head(path))
    for dialect in dialects:
        if dialect.recognises(head):
            return dialect.read(path, options)
    raise BadInputError(f"{path}: this is neither {needed}")
