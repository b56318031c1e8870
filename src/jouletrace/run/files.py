"""Files whose names hold all of what was written, or what was there before; and names that any system takes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LONGEST = 80


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file so that whoever opens it finds the old bytes or the new ones, never half of them.

    Folders above it are made. A device or a pipe is written to as it is.

    Args:
        path: The file.
        data: All that it is to hold.
        durable: Whether it must be on the disk when this returns, so that even a power cut leaves it.

    Raises:
        OSError: If it can't be written; nothing is left behind then.
        ValueError: If the name holds a null byte.
    """
    path = Path(os.path.realpath(path))  # a link goes on to point where it did
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)  # a device or a pipe: written to, never replaced by a file
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.write_bytes(data)
        if durable:
            with partial.open("r+b") as file:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # elsewhere a folder can't be opened
        _sync_folder(path.parent)


def shown(path: Path) -> str:
    """A path as somebody in the current folder would write it, for messages."""
    with suppress(OSError, ValueError):  # the folder may be gone
        return str(path.relative_to(Path.cwd()))
    return str(path)


def safe_name(text: str) -> str:
    """A name for a file or folder made of a text: letters, digits, "-", "_" and "."; "" if none are in it."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip("-.")
    return name.encode()[:_LONGEST].decode(errors="ignore")  # file systems limit names in bytes


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
