"""Common parts of all importers: options, bounded reading of files, and counts of what was left out."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import BinaryIO

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.units import Unit, number, reading_unit
from jouletrace.run import Run
from jouletrace.run.files import open_regular
from jouletrace.run.forms import Imported

HEAD_BYTES = 64 * 1024
"""Bytes of a file from which its format is determined."""

LIMIT_BYTES = 4 << 30
"""Largest size in bytes, decompressed, of a file that is held in memory; it also bounds a small ``.gz``."""

UNIX, RELATIVE, NO_CLOCK = "unix", "relative", "none"
"""Times of a file: since the Unix epoch, since a start of its own, or none."""

_MOST_S = 1e10
"""Seconds below which an offset is: times since the Unix epoch are."""

_GZIP = b"\x1f\x8b"
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Byte order marks, that of UTF-8 first, which programs on Windows write."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of reading files, all with defaults.

    Attributes:
        format: Name in ``FORMATS``; None to determine it from the content.
        offsets_s: Seconds to add to the times of a file, by its path as given or its base name.
        offset_s: Seconds to add to the times of every other file but the first (or of the only one).
        map: Column mapping for tables, target -> column ("time" -> "Timestamp", "power_w" -> "P [W]").
        latency_s: Latency of an iteration in seconds, from another source.
        device: Name of the device, where the file doesn't report it.
        time_zone: IANA zone ("Europe/Berlin") of local times; None for UTC, which is then flagged.
        since, until: Times between which readings of logs are kept, as ``merge.moment`` reads them; None for all.
    """

    format: str | None = None
    offsets_s: dict[str, float] = field(default_factory=dict)
    offset_s: float | None = None
    map: dict[str, str] = field(default_factory=dict)
    latency_s: float | None = None
    device: str | None = None
    time_zone: str | None = None
    since: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            BadInputError: If the latency is no time of more than 0 s, or an offset is no number below ``_MOST_S``.
        """
        for offset in (self.offset_s, *self.offsets_s.values()):
            if offset is not None and not (isinstance(offset, Real) and abs(offset) < _MOST_S):
                raise BadInputError(f"--offset {offset}: must be a number of seconds below {_MOST_S:g}")
        if self.latency_s is not None and not (isinstance(self.latency_s, Real) and 0 < self.latency_s < math.inf):
            raise BadInputError(f"--latency {self.latency_s}: must be a number of seconds of more than 0")


class Left:
    """Counts the unusable content of a file, by reason; becomes warnings of the Run."""

    def __init__(self, path: Path) -> None:
        self._where = path.name
        self._found: dict[str, tuple[int, str, str]] = {}

    def add(self, code: str, text: str, count: int = 1, place: str | Callable[[], str] = "") -> None:
        """Count ``count`` items left out; ``text`` continues the sentence after the number ("rows without a time").

        ``place`` ("line 12") is kept for the first item; if it is a function, it is called for that item only.
        Nothing happens if ``count`` is 0.
        """
        if count and code in self._found:
            before, text, first = self._found[code]
            self._found[code] = (before + count, text, first)
        elif count:
            self._found[code] = (int(count), text, place() if callable(place) else place)

    def number(self, cell: str, decimal: str, place: str) -> float | None:
        """The number in a cell; None, and counted, where the cell is empty or holds no number."""
        try:
            value = number(cell, decimal)
        except ValueError:
            self.add("not_a_number", "cells hold no number", place=place)
            return None
        if value is None:
            self.add("missing_cells", "cells have no value", place=place)
        return value

    def unit(self, printed: str, usual: Unit, place: str) -> Unit | None:
        """The unit of a reading (``reading_unit``); None, and counted, where it is unknown or of another quantity."""
        found = reading_unit(printed, usual)
        if found is None:
            self.add("unknown_units", "cells have an unknown unit", place=f"{place} ({printed[:20]!r})")
        return found

    def first(self) -> str:
        """The first item left out, as the end of an error's line: " (2 events are no JSON, ...)"."""
        for count, text, place in self._found.values():
            return f" ({counted(count, text)}{f', the first at {place}' if place else ''})"
        return ""

    def warn(self, run: Run) -> None:
        """Write the counts into the warnings, and into ``settings["imported"]`` as numbers."""
        for code, (count, text, place) in self._found.items():
            first = f", {'the first ' if count > 1 else ''}at {place}" if place else ""
            run.warn(code, f"{counted(count, text)}{first}", self._where)
        about(run)["left_out"] = {code: count for code, (count, _, _) in self._found.items()}


_SINGULAR = {
    **{"are": "is", "aren't": "isn't", "were": "was", "have": "has", "do": "does"},
    **{"hold": "holds", "lack": "lacks", "repeat": "repeats", "stand": "stands", "end": "ends"},
}


def counted(count: int, text: str) -> str:
    """A number in front of a plural noun and its verb, which are in the singular of one: "1 cell is empty"."""
    if count != 1:
        return f"{count} {text}"
    noun, *words = text.split(" ")
    for place, word in enumerate(words):
        if word in _SINGULAR and (not place or words[place - 1] not in ("should", "for")):
            words[place] = _SINGULAR[word]
            break
    return " ".join(["1", noun.removesuffix("s"), *words])


def new_run(path: Path, form: str, clock: str, dialect: str = "") -> Run:
    """An empty Run for the content of a file; ``clock`` is ``UNIX``, ``RELATIVE`` or ``NO_CLOCK``."""
    file: Imported = {"path": path.name, "format": form, "clock": clock, "aligned": ""}
    if dialect:
        file["dialect"] = dialect
    return Run(kind="import", settings={"imported": [file]}, workload={"name": path.name})


def about(run: Run) -> Imported:
    """The content of ``settings["imported"]`` for the one file of a Run."""
    return run.settings["imported"][0]


def read_head(path: Path) -> bytes:
    """The first bytes of a file (``HEAD_BYTES``), decompressed, in UTF-8 without a byte order mark.

    Raises:
        BadInputError: If it can't be read or is empty.
    """
    data = _read(path, HEAD_BYTES, None)
    return decode_text(data).encode() if data.startswith(_MARKS) else data


def read_bytes(path: Path, left: Left | None = None) -> bytes:
    """A whole file, decompressed; the readable part of a damaged ``.gz``, counted in ``left``.

    Raises:
        BadInputError: If it can't be read, is empty, or is larger than ``LIMIT_BYTES``.
    """
    if path.is_file() and path.stat().st_size > LIMIT_BYTES:
        raise BadInputError(f"{path} is larger than {LIMIT_BYTES >> 30} GiB: record a shorter time")
    data = _read(path, LIMIT_BYTES + 1, left)
    if len(data) > LIMIT_BYTES:
        raise BadInputError(f"{path} holds more than {LIMIT_BYTES >> 30} GiB: record a shorter time")
    return data


def _read(path: Path, size: int, left: Left | None) -> bytes:
    try:
        with open_regular(path) as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            data = _unpack(file, size, path, left) if packed else file.read(min(size, path.stat().st_size))
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not data:
        raise BadInputError(f"{path} is empty")
    return data


def read_text(path: Path, left: Left | None = None) -> str:
    r"""A whole text file in UTF-8 or, by its byte order mark, UTF-16. Other bytes are spelt out as ``\xNN``.

    ``left`` counts a last line without an end, since its last number may be cut off.

    Raises:
        BadInputError: If it can't be read, is empty, too large, or binary.
    """
    data = read_bytes(path, left)
    text = decode_text(data)
    if "\0" in text[:HEAD_BYTES]:
        raise BadInputError(f"{path} is a binary file, not text")
    unfinished = text[-1:] not in ("\n", "\r") and text.rstrip()[-1:] not in ("]", "}")  # JSON has its own end
    if left is not None and unfinished:
        what = "line at the end has no line break: if the file was cut off, its last value was too"
        left.add("unfinished_line", what)
    return text


def decode_text(data: bytes) -> str:
    """Bytes of a text file as text; never raises."""
    if data.startswith(_MARKS[1:]):  # output of PowerShell's ">"
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "backslashreplace")


def _unpack(file: BinaryIO, size: int, path: Path, left: Left | None = None) -> bytes:
    """Up to ``size`` bytes of a gzip file with all its members, or up to a damaged place."""
    parts: list[bytes] = []
    rest = size
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            while rest > 0 and (part := packed.read1(min(rest, 1 << 20))):
                parts.append(part)
                rest -= len(part)
    except (EOFError, OSError, zlib.error) as error:
        if not parts:
            raise BadInputError(f"cannot read {path}: {error}") from None
        if left is not None:
            left.add("damaged_gzip", f"damaged place in the compressed file; the rest is lost ({error})")
    return b"".join(parts)
