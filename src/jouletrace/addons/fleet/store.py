"""The storage of a fleet's results: a folder, or any place that fsspec reaches."""

from __future__ import annotations

import importlib
import os
import uuid
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import alone_in
from jouletrace.run.files import write_whole
from jouletrace.run.store import file_mode


def open_store(root: str | Path) -> Store:
    """The store at a path or URL ("s3://bucket/fleet", "memory://fleet").

    Raises:
        NotPossibleError: If it is a URL and fsspec, or a library that it needs, is missing.
    """
    text = str(root)
    return RemoteStore(text) if "://" in text else Store(text)


class Store:
    """Files by name in a folder of this host, or of a file system shared by several hosts.

    Names are relative, with "/" between their parts. A failure to read, write or list raises ``BadInputError``.

    Attributes:
        root: As the user gave it.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = Path(root).absolute()

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all."""
        target = self._root / name
        try:
            write_whole(target, data, mode=file_mode())
        except OSError as error:
            raise BadInputError(f"cannot write {target}: {error.strerror or error}") from None

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """The contents of a file, or their ``last`` bytes; None if it doesn't exist."""
        path = self._root / name
        try:
            with path.open("rb") as file:
                if last is not None:
                    file.seek(max(file.seek(0, os.SEEK_END) - last, 0))
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BadInputError(f"cannot read {path}: {error.strerror or error}") from None

    def names(self, folder: str, ending: str) -> list[str]:
        """All files under a folder with this suffix, sorted; empty if the folder doesn't exist."""
        found = [Path(place) / file for place, _, files in os.walk(self._root / folder) for file in files]
        return _visible([path.relative_to(self._root).as_posix() for path in found], ending)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        (self._root / name).unlink(missing_ok=True)

    def alone(self, doing: str) -> AbstractContextManager[None]:
        """Exclude other processes of this host from writing there, as far as possible; other hosts aren't excluded.

        Args:
            doing: Present participle for the message to a refused process: "running a fleet".

        Raises:
            NotPossibleError: If another process holds the lock, which is named.
        """
        return alone_in(self._root, doing)


class RemoteStore(Store):
    """A place that fsspec reaches."""

    def __init__(self, root: str) -> None:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            raise NotPossibleError(f"{root} needs fsspec: pip install 'jouletrace[fleet]'") from None
        super().__init__(root)
        try:
            self._files, self._path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise NotPossibleError(f"{root}: {str(error).splitlines()[0]}") from None

    def write(self, name: str, data: bytes) -> None:
        """See ``Store.write``; on file systems other than object stores a temporary name is used first."""
        folder = self._at(name).rpartition("/")[0]
        partial = f"{folder}/.{uuid.uuid4().hex}.part"

        def put() -> None:
            self._files.makedirs(folder, exist_ok=True)
            self._files.pipe_file(partial, data)
            self._files.mv(partial, self._at(name))

        self._guarded("write", name, put)

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        try:
            if last is not None:
                return bytes(self._guarded("read", name, self._files.tail, self._at(name), last))
            return bytes(self._guarded("read", name, self._files.cat_file, self._at(name)))
        except FileNotFoundError:
            return None

    def names(self, folder: str, ending: str) -> list[str]:
        """See ``Store.names``."""
        try:
            found = self._guarded("list", folder, self._files.find, self._at(folder))
        except FileNotFoundError:
            return []
        return _visible([name[name.index(self._path) + len(self._path) :].lstrip("/") for name in found], ending)

    def remove(self, name: str) -> None:
        """See ``Store.remove``."""
        if self._files.exists(self._at(name)):
            self._guarded("remove", name, self._files.rm_file, self._at(name))

    def alone(self, doing: str) -> AbstractContextManager[None]:
        """See ``Store.alone``: fsspec offers no locks."""
        return nullcontext()

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _guarded(self, doing: str, name: str, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except FileNotFoundError:
            raise
        except Exception as error:  # every file system of fsspec raises its own
            lines = str(error).splitlines() or [type(error).__name__]
            raise BadInputError(f"cannot {doing} {self.root}/{name}: {lines[0]}") from None


def _visible(names: list[str], ending: str) -> list[str]:
    return sorted(name for name in names if name.endswith(ending) and not PurePosixPath(name).name.startswith("."))
