"""Temporary folders that are removed soon after their process, however it ended.

A process that is killed, and a fork that ends by ``os._exit``, can't remove its folders. So each process locks its
folder: an unlocked folder is unused, and any later process removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from jouletrace.run.files import locked

PREFIX = "jouletrace-scratch-"
_ATTEMPTS = 100


class Scratch:
    """A temporary folder of this process; used as a context, or ended by ``remove``.

    Attributes:
        path: The folder.

    Raises:
        OSError: If it can't be created or locked.
    """

    def __init__(self) -> None:
        remove_left_behind()
        self._owner = os.getpid()
        for _ in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = locked(self.path)
            if self._lock is not None or os.name != "posix":  # elsewhere the folders of a killed process stay
                return
        raise OSError(f"no folder in {tempfile.gettempdir()} can be locked")

    def remove(self) -> None:
        """Remove it with its content. Safe to call twice; a no-op in a fork of its process."""
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
    """Remove the folders that ended processes of this user have left."""
    with suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            lock = locked(path)
            if lock is None:
                continue
            if os.fstat(lock).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
