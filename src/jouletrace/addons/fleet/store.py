"""Where the results of a fleet lie: a folder, or any place that fsspec reaches."""

from __future__ import annotations

import importlib
import os
import uuid
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import alone_in
from jouletrace.run.files import write_whole
from jouletrace.run.store import file_mode


class Store(Protocol):
    """Files by name; names are relative, with "/" between their parts.

    Attributes:
        root: As the user gave it.
    """

    root: str

    def write(self, name: str, data: bytes) -> None:
        """Write a file so that it is there whole or not at all.

        Raises:
            BadInputError: If it can't be written.
        """

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if there is none.

        Raises:
            BadInputError: If it is there and can't be read.
        """

    def tail(self, name: str, size: int) -> bytes:
        """The last ``size`` bytes of a file that is there; all of a shorter one.

        Raises:
            BadInputError: If it can't be read.
        """

    def names(self, folder: str, ending: str) -> list[str]:
        """All files under a folder whose names end so, sorted; empty if there is no such folder.

        Raises:
            BadInputError: If it can't be listed.
        """

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def alone(self, doing: str) -> AbstractContextManager[None]:
        """Nobody else on this host writes there meanwhile, as far as that can be known; other hosts may.

        Args:
            doing: For the message to whoever is refused: "running a fleet".

        Raises:
            NotPossibleError: If somebody else does, who is named.
        """


def open_store(root: str | Path) -> Store:
    """The store at a path or URL ("s3://bucket/fleet", "memory://fleet").

    Raises:
        NotPossibleError: If it is a URL and fsspec, or what it needs for it, is missing.
    """
    text = str(root)
    return RemoteStore(text) if "://" in text else FolderStore(text)


class FolderStore:
    """A folder of this host, or of a file system that several hosts share; see ``Store``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = Path(root).absolute()

    def write(self, name: str, data: bytes) -> None:
        """See ``Store.write``."""
        target = self._root / name
        try:
            write_whole(target, data, mode=file_mode())
        except OSError as error:
            raise BadInputError(f"cannot write {target}: {error.strerror or error}") from None

    def read(self, name: str) -> bytes | None:
        """See ``Store.read``."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BadInputError(f"cannot read {self._root / name}: {error.strerror or error}") from None

    def tail(self, name: str, size: int) -> bytes:
        """See ``Store.tail``."""
        try:
            with (self._root / name).open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - size, 0))
                return file.read()
        except OSError as error:
            raise BadInputError(f"cannot read {self._root / name}: {error.strerror or error}") from None

    def names(self, folder: str, ending: str) -> list[str]:
        """See ``Store.names``."""
        found = []
        for place, _, files in os.walk(self._root / folder):
            here = Path(place).relative_to(self._root)
            found += [(here / file).as_posix() for file in files if file.endswith(ending) and not file.startswith(".")]
        return sorted(found)

    def remove(self, name: str) -> None:
        """See ``Store.remove``."""
        (self._root / name).unlink(missing_ok=True)

    def alone(self, doing: str) -> AbstractContextManager[None]:
        """See ``Store.alone``."""
        return alone_in(self._root, doing)


class RemoteStore:
    """A place that fsspec reaches; see ``Store``."""

    def __init__(self, root: str) -> None:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            raise NotPossibleError(f"{root} needs fsspec: pip install 'jouletrace[fleet]'") from None
        self.root = root
        try:
            self._files, self._path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise NotPossibleError(f"{root}: {str(error).splitlines()[0]}") from None

    def write(self, name: str, data: bytes) -> None:
        """See ``Store.write``; what isn't an object store gets it under another name first."""
        target = self._at(name)
        partial = f"{target.rpartition('/')[0]}/.{uuid.uuid4().hex}.part"
        self._guarded(f"write {self.root}/{name}", self._put, partial, target, data)

    def read(self, name: str) -> bytes | None:
        """See ``Store.read``."""
        try:
            data: bytes = self._guarded(f"read {self.root}/{name}", self._files.cat_file, self._at(name))
        except FileNotFoundError:
            return None
        return data

    def tail(self, name: str, size: int) -> bytes:
        """See ``Store.tail``."""
        try:
            end: bytes = self._guarded(f"read {self.root}/{name}", self._files.tail, self._at(name), size)
        except FileNotFoundError as error:
            raise BadInputError(f"cannot read {self.root}/{name}: {error}") from None
        return end

    def names(self, folder: str, ending: str) -> list[str]:
        """See ``Store.names``."""
        try:
            found = self._guarded(f"list {self.root}/{folder}", self._files.find, self._at(folder))
        except FileNotFoundError:
            return []
        inside = [name[name.index(self._path) + len(self._path) :].lstrip("/") for name in found]
        return sorted(name for name in inside if name.endswith(ending) and not PurePosixPath(name).name.startswith("."))

    def remove(self, name: str) -> None:
        """See ``Store.remove``."""
        if self._files.exists(self._at(name)):
            self._guarded(f"remove {self.root}/{name}", self._files.rm_file, self._at(name))

    def alone(self, doing: str) -> AbstractContextManager[None]:
        """See ``Store.alone``: what fsspec reaches has no locks."""
        return nullcontext()

    def _put(self, partial: str, target: str, data: bytes) -> None:
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(partial, data)
        self._files.mv(partial, target)

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _guarded(self, doing: str, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except FileNotFoundError:
            raise
        except Exception as error:  # every file system of fsspec raises its own
            lines = str(error).splitlines() or [type(error).__name__]
            raise BadInputError(f"cannot {doing}: {lines[0]}") from None
