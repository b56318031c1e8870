"""Temporary folders that don't outlive their process for long, however it ended.

A process that is killed, and a fork that ends by ``os._exit``, can't remove what it has made. So each folder is
locked by its process: whoever finds one unlocked knows that nobody needs it any more, and removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

PREFIX = "jouletrace-scratch-"
_ATTEMPTS = 100


class Scratch:
    """A temporary folder of this process; used as a context, or ended by ``remove``.

    Attributes:
        path: The folder.

    Raises:
        OSError: If there is no room for it.
    """

    def __init__(self) -> None:
        remove_left_behind()
        self._owner = os.getpid()
        for _ in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = _lock(self.path)
            if self._lock is not None or fcntl is None:
                return
        raise OSError(f"no folder in {tempfile.gettempdir()} can be locked")

    def remove(self) -> None:
        """Remove it with all that is in it. Safe to call twice; a fork of its process leaves it alone."""
        if os.getpid() != self._owner:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.remove()


def remove_left_behind() -> None:
    """Remove the folders of this user's processes that have ended without having done so."""
    if fcntl is None:
        return
    with suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            lock = _lock(path)
            if lock is None:
                continue
            if os.fstat(lock).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int | None:
    """The lock on a folder that is there; None if somebody has it, or it is gone."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():  # who had it may have removed it in between
            return handle
    except OSError:
        pass
    os.close(handle)
    return None
