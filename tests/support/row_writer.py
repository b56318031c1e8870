"""Writes the tracer's files of a process, as its native library does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from jouletrace.tracer.rows import HEADER, HEADER_BYTES, KERNEL, MAGIC, ROW, VERSION, Shape

_CONTROLS = bytes(range(32)) + b"\x7f"
_SPACES = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))


class Writer:
    """The files of a process, open for writing.

    Args:
        folder: Of all processes.
        pid: Of the process.
        start_ns: When it started, ns since the Unix epoch.

    Attributes:
        folder: Of the process.
        dropped: As in ``Header``.
    """

    def __init__(self, folder: Path, pid: int, start_ns: int | None = None) -> None:
        self.folder = folder / f"{pid}-{time.time_ns() if start_ns is None else start_ns}"
        self.folder.mkdir(mode=0o700, parents=True)
        self.dropped = 0
        self._pid, self._count, self._last_ns = pid, 0, 0
        self._names, self._marks = dict[bytes, int](), dict[tuple[int, str, int], int]()
        self._shapes = dict[Shape, int]()
        self._waiting: list[tuple[int, ...]] = []
        self._text = (self.folder / "text").open("ab", buffering=0)
        self._rows = (self.folder / "rows").open("w+b", buffering=0)
        self._state()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def name(self, name: str | bytes) -> int:
        """The number of a name."""
        raw = (name if isinstance(name, bytes) else name.encode(errors="surrogateescape")).translate(_SPACES)
        if raw not in self._names:
            self._names[raw] = len(self._names)
            self._line(b"n " + raw)
        return self._names[raw]

    def mark(self, parent: int, kind: str, name: str | bytes) -> int:
        """The number of a mark."""
        key = parent, kind, self.name(name)
        if key not in self._marks:
            self._marks[key] = len(self._marks) + 1
            self._line(f"m {key[0]} {key[1]} {key[2]}".encode())
        return self._marks[key]

    def shape(self, shape: Shape) -> int:
        """The number of a shape, for ``extra``."""
        if shape not in self._shapes:
            self._shapes[shape] = len(self._shapes) + 1
            self._line(f"c {' '.join(map(str, shape))}".encode())
        return self._shapes[shape]

    def row(
        self,
        start_ns: int,
        end_ns: int,
        name: str | bytes = b"",
        *,
        owner: int = 0,
        range: int = 0,
        correlation: int = 0,
        stream: int = 0,
        thread: int = 1,
        device: int = 0,
        kind: int = KERNEL,
        sampled: bool = False,
        extra: int = 0,
    ) -> None:
        """Add a row; ``flush`` writes it."""
        numbers = self.name(name), owner, range, correlation, stream, thread, device, kind, int(sampled), extra
        self._waiting.append((start_ns, end_ns, *numbers))

    def rows(self, rows: NDArray[np.void]) -> None:
        """Write many rows, of the type ``ROW``."""
        self.flush()
        self._append(rows.astype(ROW))

    def traced(self, segments: Sequence[tuple[int, int | None]]) -> None:
        """State when the process was traced, ns; a segment without an end goes on."""
        for begin, end in segments:
            self._line(f"s {begin}".encode())
            if end is not None:
                self._line(f"e {end}".encode())

    def fact(self, key: str, value: str) -> None:
        """State a fact."""
        self._line(f"i {key} {value}".encode(errors="surrogateescape").replace(b"\n", b" "))

    def fused(self, kernel: str, operators: str) -> None:
        """State which operators a compiler's kernel stands for."""
        self._line(f"k {kernel} {operators}".encode().translate(_SPACES))

    def calls(self, mark: int, calls: int) -> None:
        """State how often a module was called outside of others."""
        self._line(f"r {mark} {calls}".encode())

    def warn(self, code: str, text: str) -> None:
        """Say that something is missing."""
        self._line(f"w {code} {text}".encode(errors="surrogateescape").translate(_SPACES))

    def flush(self) -> None:
        """Write all rows so far."""
        rows, self._waiting = np.array(self._waiting, ROW), []
        self._append(rows)

    def close(self, ended: bool = True) -> None:
        """End the files; unless it has ``ended``, as after a kill."""
        if not self._rows.closed:
            self.flush()
            if ended:
                self._state(ended_ns=max(self._last_ns, 1))
            self._rows.close()
            self._text.close()

    def _append(self, rows: NDArray[np.void]) -> None:
        self._rows.seek(0, 2)
        self._rows.write(rows.tobytes())
        self._count += len(rows)
        self._last_ns = max(self._last_ns, int(rows["end"].max()) if len(rows) else 0)
        self._state()

    def _state(self, ended_ns: int = 0) -> None:
        """Write the header, after the rows that it counts."""
        values = MAGIC, VERSION, ROW.itemsize, self._count, self.dropped, self._pid, self._last_ns, ended_ns
        self._rows.seek(0)
        self._rows.write(np.array([values], HEADER).tobytes().ljust(HEADER_BYTES, b"\0"))

    def _line(self, line: bytes) -> None:
        self._text.write(line + b"\n")
