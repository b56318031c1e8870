"""Files whose names hold all of what was written, or what was there before; and names that any system takes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from jouletrace.errors import BadInputError

_LONGEST = 80
_HEAD = 1 << 20

_CHUNK = 1 << 20


def write_whole(path: Path, data: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Write a file so that whoever opens it finds the old bytes or the new ones, never half of them.

    Folders above it are made. A device or a pipe is written to as it is.

    Args:
        path: The file.
        data: All that it is to hold.
        durable: Whether it is on the disk when this returns, so that even a power cut leaves it. Without, a power
            cut may leave the name with nothing behind it.
        mode: Permissions of the file; None for what the process gives to new files.

    Raises:
        OSError: If it can't be written; nothing is left behind then.
        ValueError: If the name holds a null byte.
    """
    path = Path(os.path.realpath(path))  # a link goes on to point where it did
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)  # a device or a pipe: written to, never replaced by a file
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    make_folder(path.parent, durable=durable)
    try:
        if mode is not None:  # before anything is in it
            partial.unlink(missing_ok=True)
            partial.touch(mode)
        partial.write_bytes(data)
        if durable:
            with partial.open("r+b") as file:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def check_replaceable(path: Path, marks: Sequence[str], what: str) -> None:
    """Refuse to write over anything but an older file of the same kind: it may be what is being read.

    A path that can't be looked at is left to whoever writes it.

    Args:
        path: Where a file is to go.
        marks: Words of which a file of its kind holds one near its beginning.
        what: Its kind: "a report".

    Raises:
        BadInputError: If another file is there.
    """
    with suppress(OSError, ValueError):
        if not path.is_file() or path.stat().st_size == 0:  # a device takes what it is given
            return
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not any(mark.encode() in head for mark in marks):
            raise BadInputError(f"{shown(path)} exists and is not {what} of jouletrace: only such a file is replaced")


def shown(path: Path) -> str:
    """A path as somebody in the current folder would write it, for messages."""
    with suppress(OSError, ValueError):  # the folder may be gone
        return str(path.relative_to(Path.cwd()))
    return str(path)


def make_folder(folder: Path, *, durable: bool = True) -> None:
    """Make a folder and those above it that are missing; ``durable`` as of ``write_whole``.

    Raises:
        OSError: If that is not possible.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if durable:
        for place in missing:
            sync_folder(place.parent)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open an ordinary file to read: a pipe or a device, which may never end, raises at once.

    Raises:
        OSError: If it can't be opened, or is no ordinary file.
    """
    # A pipe that nobody writes to would be waited for.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    with os.fdopen(handle, "rb") as file:
        yield file


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """What is left of a file, in pieces."""
    while chunk := file.read(_CHUNK):
        yield chunk


def safe_name(text: str) -> str:
    """A name for a file or folder made of a text: letters, digits, "-", "_" and "."; "" if none are in it."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip("-.")
    return name.encode()[:_LONGEST].decode(errors="ignore")  # file systems limit names in bytes


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, as those of files that were just renamed."""
    if os.name != "posix":  # elsewhere a folder can't be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
