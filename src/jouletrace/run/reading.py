"""Reads the files of a Run from a folder or a zip. Only regular files are opened, and their size is limited."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.files import RUN_JSON, chunks, near, open_regular, quoted
from jouletrace.run.limits import FREE_BYTES, MOST_ENTRIES, MOST_FILE_BYTES, stated_bytes

FILES = (*(f"{name}.parquet" for name in tables.TABLES), RUN_JSON)

_ENTRY = b"PK\x01\x02"
_ZIPPED_RATIO = 2
"""Size of the unpacked files of a zip over its own size: tables are compressed already."""

_NOT_A_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
    MemoryError,
)
"""RuntimeError: encrypted, or compressed by a method that this Python doesn't support. The last: impossible sizes."""


class RunFiles:
    """The files of one Run, in a folder.

    Attributes:
        packed: Total size in bytes, holes included.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        if not (source / RUN_JSON).exists():
            parts = any(source.glob(f"rank-*/{RUN_JSON}"))
            hint = f", but parts of ranks: jouletrace merge {quoted(source)}" if parts else _within(source)
            raise BadInputError(f"no Run in {source}: it holds no {RUN_JSON}{hint}")
        self.packed = sum((source / name).stat().st_size for name in self.names())

    def names(self) -> list[str]:
        """The names of ``FILES`` that exist."""
        return [name for name in FILES if (self._source / name).exists()]

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """One of them, opened for random access.

        Raises:
            BadInputError: If it is larger than allowed.
            OSError: If it can't be read.
        """
        path = self._source / name
        size = path.stat().st_size
        if size > max(MOST_FILE_BYTES, stated_bytes()):
            raise BadInputError(f"{path} has {size / 2**30:.0f} GiB, as no recording does: refused")
        with open_regular(path) as file:
            yield file


class _Zip(RunFiles):
    """The same in a zip."""

    def __init__(self, archive: zipfile.ZipFile, source: Path) -> None:
        self._archive = archive
        self._source = source
        self.packed = source.stat().st_size
        there = set(archive.namelist())
        places = [PurePosixPath(name).parent for name in there if PurePosixPath(name).name == RUN_JSON]
        if not places:
            raise BadInputError(f"no Run in {source}: it holds no {RUN_JSON}")
        top = min(places, key=lambda folder: len(folder.parts))  # a Run may contain the Runs that it was made from
        if not all(folder.is_relative_to(top) for folder in places):
            raise BadInputError(f"{source} holds {len(places)} Runs; unpack it and name one")
        self._inside = {name: str(top / name) for name in FILES if str(top / name) in there}

    def names(self) -> list[str]:
        """See ``RunFiles``."""
        return list(self._inside)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """See ``RunFiles``; a whole file, limited by its unpacked size: the sizes in the directory may be wrong."""
        if name not in self._inside:
            raise BadInputError(f"no Run in {self._source}: it holds no {name}")
        data = io.BytesIO()
        with _readable(self._source):
            entry = self._archive.getinfo(self._inside[name])
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                where = f"{self._source}/{entry.filename}"
                raise BadInputError(f"{where} is compressed by a method other than deflate: refused")
            self._check(entry, entry.file_size)
            with self._archive.open(entry) as packed:
                for chunk in chunks(packed):
                    data.write(chunk)
                    self._check(entry, data.tell())
        data.seek(0)
        yield data

    def _check(self, entry: zipfile.ZipInfo, size: int) -> None:
        if size > max(FREE_BYTES, _ZIPPED_RATIO * self.packed, stated_bytes()):
            raise BadInputError(
                f"{self._source}/{entry.filename} would unpack from {entry.compress_size / 2**20:.1f} MiB to "
                f"{size / 2**30:.1f} GiB, as no recording does: refused"
            )


_RUNS = "runs"
"""Folder of Runs without a place of their own."""


def _within(source: Path) -> str:
    """The Runs in a folder that is none itself; of a campaign they lie deeper."""
    each = (sorted(source.glob(f"{'*/' * depth}{RUN_JSON}")) for depth in (1, 2, 3))
    inside = next(filter(None, each), [])
    if len(inside) == 1:
        return f"; its one Run is {inside[0].parent}"
    return f"; it contains {len(inside)} Runs, such as {inside[0].parent}; show lists them" if inside else ""


def of_csv(source: Path) -> str:
    """Why a folder with CSV files in place of tables is no Run, though it holds a ``run.json``; "" of any other."""
    if not (source / "results.csv").is_file() or (source / "results.parquet").exists():
        return ""
    return f"{source} is an export to CSV, which isn't read back: name the Run that it was made from"


@contextmanager
def run_files(source: Path) -> Iterator[RunFiles]:
    """The files of the Run in a folder or a zip.

    Raises:
        BadInputError: If there is no Run, or it can't be read.
    """
    if "\0" in str(source):
        raise BadInputError(f"cannot read {str(source)!r}: a name can't hold a null byte")
    try:
        if not source.exists():
            raise BadInputError(f"no Run at {source}: there is no such file or folder{near(source, folders=[_RUNS])}")
        if source.is_dir():
            yield RunFiles(source)
            return
        with open_regular(source) as file, _archive(file, source) as archive:
            yield _Zip(archive, source)
    except OSError as error:
        raise BadInputError(f"cannot read {error.filename or source}: {error.strerror or error}") from None


@contextmanager
def _archive(file: BinaryIO, source: Path) -> Iterator[zipfile.ZipFile]:
    with _readable(source):
        if _count(file, _ENTRY) > MOST_ENTRIES:
            raise BadInputError(f"{source} holds more than {MOST_ENTRIES} files: refused")
        archive = zipfile.ZipFile(file)
    with archive:
        yield archive


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    try:
        yield
    except _NOT_A_ZIP as error:
        text = f"{str(error) or type(error).__name__}; files of other tools are read by jouletrace import"
        raise BadInputError(f"{source} is neither a folder nor a readable zip file: {text}") from None


def _count(file: BinaryIO, pattern: bytes) -> int:
    """How often a pattern occurs in a file; the position is at the beginning before and after."""
    count, tail = 0, b""
    for chunk in chunks(file):
        count += (tail + chunk).count(pattern)
        tail = chunk[1 - len(pattern) :]
    file.seek(0)
    return count
