"""The tracer's files: a folder for each process, with ``rows`` of what ran and ``text`` of names, marks and facts.

``native/`` writes them while the program runs, and they can be read at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.run.files import open_regular

MAGIC, VERSION, HEADER_BYTES = b"JTROWS1\0", 1, 4096

KERNEL, COPY, SET, SYNC, LOAD = range(5)
"""Kinds of rows. SYNC and LOAD are intervals in which the host waited for the GPU, and for its data loader."""

ROW = np.dtype(
    [
        *(("start", "<u8"), ("end", "<u8"), ("name", "<u4"), ("owner", "<u4"), ("range", "<u4")),
        *(("correlation", "<u4"), ("stream", "<u4"), ("thread", "<u4"), ("device", "<u2")),
        *(("kind", "u1"), ("sampled", "u1"), ("extra", "<u4")),
    ]
)
"""A row. ``start`` and ``end`` are ns since the Unix epoch. ``name`` is the number of a name. ``owner`` and ``range``
are the innermost mark of code and of ranges at the launch, 0 for none. ``correlation`` ascends with launches; all
kernels of a CUDA graph share one. ``thread`` is a small number of the launching thread, ``device`` CUDA's number.
``sampled`` is 1 where operators were marked at the launch. ``extra`` is the number of a kernel's shape, 0 for none, and
the number of bytes of a copy or set, MOST_BYTES for as many and more."""

MOST_BYTES = 2**32 - 1

Shape = tuple[int, ...]
"""How a kernel is launched: grid and block (x, y, z), registers a thread, static and dynamic shared memory a block in
bytes."""

UNSHAPED: Shape = (0,) * 9
"""The shape of number 0: none is known."""

HEADER = np.dtype(
    [
        *(("magic", "V8"), ("version", "<u4"), ("row", "<u4"), ("rows", "<u8"), ("dropped", "<u8")),
        *(("pid", "<u8"), ("flushed_ns", "<u8"), ("ended_ns", "<u8")),
    ]
)

_MOST = 2**63 - 1
_MOST_DIGITS = len(str(_MOST))

_CONTROLS = bytes(range(32)) + b"\x7f"
_SPACES = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))


@dataclass(frozen=True)
class Header:
    """The first page of a process's rows, which describes them.

    Attributes:
        rows: Their number.
        dropped: Records that were lost before they became rows.
        pid: Of the process.
        flushed_ns: When rows were written last, ns since the Unix epoch.
        ended_ns: When the process ended; 0 while it runs, and for ever if it was killed.
    """

    rows: int = 0
    dropped: int = 0
    pid: int = 0
    flushed_ns: int = 0
    ended_ns: int = 0


@dataclass
class Text:
    """The lines of a process, by what they state.

    Attributes:
        names: By their numbers, as they were written.
        marks: Parent, kind and name of the marks 1, 2, ...
        shapes: The shapes 1, 2, ...
        edges: Whether tracing began, and when, ns.
        facts: Keys and values.
        fused: Operators by the kernel of a compiler.
        calls: How often a module was called outside of others, by its mark.
        warnings: Codes and messages about what is missing.
    """

    names: list[bytes] = field(default_factory=list)
    marks: list[tuple[int, str, int]] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    edges: list[tuple[bool, int]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    fused: dict[str, str] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)


def read_rows(folder: Path) -> tuple[Header, NDArray[np.void]]:
    """The header of a process, and its rows (mapped, not read): of a running one, those that are complete now.

    Raises:
        BadInputError: "damaged file (...)" or "file of version ..." if they can't be read.
    """
    try:
        with open_regular(folder / "rows") as file:
            head = file.read(HEADER_BYTES)
            header = _header(head)
            held = (file.seek(0, 2) - HEADER_BYTES) // ROW.itemsize
            if header.rows > held:
                raise BadInputError(f"damaged file (it states {header.rows} rows and holds {max(held, 0)})")
            if not header.rows:
                return header, np.empty(0, ROW)
            return header, np.memmap(file, ROW, "r", HEADER_BYTES, (header.rows,)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise BadInputError(f"damaged file ({error})") from None


def _header(head: bytes) -> Header:
    if len(head) < HEADER.itemsize:
        raise BadInputError("damaged file (its header is cut off)")
    found = np.frombuffer(head, HEADER, 1)[0]
    if found["magic"].tobytes() != MAGIC:
        raise BadInputError("damaged file (its header is not that of a tracer's rows)")
    version, row = int(found["version"]), int(found["row"])
    if (version, row) != (VERSION, ROW.itemsize):
        raise BadInputError(
            f"file of version {version} with rows of {row} bytes: "
            f"this jouletrace reads version {VERSION} with {ROW.itemsize}"
        )
    return Header(*(int(found[name]) for name in ("rows", "dropped", "pid", "flushed_ns", "ended_ns")))


def read_text(folder: Path) -> Text:
    """The lines of a process; the last one is left out if it is cut off, and so are lines that make no sense.

    Raises:
        BadInputError: "damaged file (...)" if there are none.
    """
    try:
        with open_regular(folder / "text") as file:
            lines = file.read().split(b"\n")[:-1]
    except OSError as error:
        raise BadInputError(f"damaged file ({error})") from None
    text = Text()
    for line in lines:
        letter, _, rest = line.partition(b" ")
        if letter == b"n":
            text.names.append(rest)
        elif letter == b"m":
            text.marks.append(_mark(rest))
        elif letter == b"c":
            text.shapes.append(_shape(rest))
        else:
            _line(text, letter, *rest.decode(errors="replace").partition(" ")[::2])
    return text


def _mark(rest: bytes) -> tuple[int, str, int]:
    """A mark; one that makes no sense keeps its number."""
    words = rest.decode(errors="replace").split(" ")
    if len(words) == 3 and (parent := number(words[0])) is not None and (name := number(words[2])) is not None:
        return parent, words[1], name
    return 0, "", 0


def _shape(rest: bytes) -> Shape:
    """A shape; one that makes no sense keeps its number."""
    words = [number(word) for word in rest.decode(errors="replace").split(" ")]
    known = tuple(min(word, 2**31 - 1) for word in words if word is not None)
    return known if len(known) == len(words) == len(UNSHAPED) else UNSHAPED


def _line(text: Text, letter: bytes, key: str, value: str) -> None:
    if letter in (b"s", b"e") and (at_ns := number(key)) is not None:
        text.edges.append((letter == b"s", at_ns))
    elif letter == b"i":
        text.facts.append((key, value))
    elif letter == b"k":
        text.fused[key] = value
    elif letter == b"r" and (mark := number(key)) is not None and (calls := number(value)) is not None:
        text.calls[mark] = calls
    elif letter == b"w":
        text.warnings.append((key, value))


def number(word: str) -> int | None:
    """The number that a word is, if it has 63 bits at most; None for other words."""
    found = int(word) if word.isdecimal() and len(word) <= _MOST_DIGITS else _MOST + 1
    return found if found <= _MOST else None


def plain(name: bytes) -> str:
    """A name as text: control characters are spaces, and bytes that are no UTF-8 are replaced."""
    return name.translate(_SPACES).decode(errors="replace")
