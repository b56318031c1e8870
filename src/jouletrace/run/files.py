"""Atomic writes of files and folders, checks before they are replaced, and file names valid on any system."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import IO, BinaryIO

from jouletrace.errors import BadInputError

try:
    import fcntl
except ImportError:  # Windows: what a killed process has left stays
    fcntl = None  # type: ignore[assignment]

RUN_JSON = "run.json"
"""The file that makes a folder a Run."""

_PARTIAL = re.compile(r"\..+\.\d+\.part-[0-9a-f]{8}", re.DOTALL)
"""Names of what isn't written yet."""

_LONGEST = 80
_HEAD = 1 << 20

_CHUNK = 1 << 20


def cache_folder() -> Path:
    """``$JOULETRACE_CACHE``, else ``$XDG_CACHE_HOME/jouletrace``, else ``~/.cache/jouletrace``."""
    explicit = os.environ.get("JOULETRACE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jouletrace"


Content = bytes | Callable[[IO[bytes]], object]
"""The content of a file: bytes, or a function that writes them."""


def write_content(data: Content, file: IO[bytes]) -> None:
    """Write the content of a file."""
    if isinstance(data, bytes):
        file.write(data)
    else:
        data(file)


def write_whole(
    path: Path,
    data: Content,
    *,
    durable: bool = True,
    mode: int | None = None,
    first: bool = False,
    over: os.stat_result | None = None,
) -> None:
    """Write a file atomically: a reader sees the old bytes or the new ones, never a mixture.

    Parent folders are created, and a device or a pipe is written to directly. ``durable`` syncs the file to the disk
    before this returns; otherwise a power cut may leave an empty file. ``mode`` are its permissions, the process's
    default if None. The ``first`` file of a name replaces none, and is gone again if this fails. One ``over`` a known
    file replaces no other, which another process may have put there since.

    Raises:
        FileExistsError: If a file is there that this doesn't replace.
        OSError: If it can't be written; no partial file is left then.
        ValueError: If the name holds a null byte.
    """
    path = Path(os.path.realpath(path))  # a link is followed, not replaced
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:  # a device or a pipe is never replaced by a file
            write_content(data, file)
        return
    made: os.stat_result | None = None
    try:
        with beside(path, mode=mode, durable=durable) as partial:
            with partial.open("wb") as file:
                write_content(data, file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            if first:
                made = partial.stat()
                link_first(partial, path)
            elif over is not None and not _is(path, over):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            else:
                partial.replace(path)
            if durable:
                sync_folder(path.parent)
    except BaseException:
        if made is not None and _is(path, made):
            with suppress(OSError):
                path.unlink()
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when the block ends: it is there whole, or not at all.

    An empty one that is there stays, as it may be the current folder, a mount, or have permissions of its own: what is
    written in it gets its names there when the block ends, ``run.json`` last.

    Raises:
        FileExistsError: If a file, or a folder with content, has the name by then.
        OSError: If it can't be written.
    """
    there = path.is_dir()
    if there and not is_empty(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with beside(path / "all" if there else path, is_folder=True) as partial:
        yield partial
        if there:
            _move_up(partial, path)
            return
        made = partial.stat()
        try:
            partial.rename(path)
            sync_folder(path.parent)
        except BaseException as error:
            if _is(path, made):
                with suppress(OSError):
                    path.rename(partial)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            raise


def is_empty(folder: Path) -> bool:
    """True if a folder holds nothing but what isn't written yet.

    Raises:
        OSError: If it can't be read.
    """
    return all(_PARTIAL.fullmatch(entry.name) for entry in folder.iterdir())


def _move_up(partial: Path, folder: Path) -> None:
    """Rename what a partial folder holds into the empty one around it; if that fails, that is empty again."""
    moved: list[Path] = []
    with ExitStack() as stack:
        if (lock := locked(folder, wait=True)) is not None:
            stack.callback(os.close, lock)
        if not is_empty(folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        try:
            for entry in sorted(partial.iterdir(), key=lambda entry: entry.name == RUN_JSON):
                moved.append(folder / entry.name)
                entry.rename(moved[-1])
            sync_folder(folder)
        except BaseException:
            for entry in moved:
                _remove(entry)
            raise


@contextmanager
def beside(path: Path, *, is_folder: bool = False, mode: int | None = None, durable: bool = True) -> Iterator[Path]:
    """A file or folder for what is to get a name, removed with the block where it is still there.

    It is locked as long: the next writer in the folder removes those of processes that were killed.

    Raises:
        OSError: If it can't be made.
    """
    make_folder(path.parent, durable=durable)
    _remove_left(path.parent)
    while True:
        # Containers that share a folder may have the same process numbers, and threads have one together.
        partial = path.with_name(f".{path.name}.{os.getpid()}.part-{secrets.token_hex(4)}")
        with ExitStack() as stack:
            for _ in range(2):  # the first may be interrupted
                stack.callback(_remove, partial)
            if is_folder:
                partial.mkdir()
            else:
                partial.touch(0o666 if mode is None else mode, exist_ok=False)  # before it holds data
            lock = locked(partial, wait=True)
            if lock is not None:
                stack.callback(os.close, lock)
            if lock is not None or partial.exists():  # another writer may have taken it for left behind
                yield partial
                return


def locked(path: Path, wait: bool = False) -> int | None:
    """The lock on an existing file or folder, which ends with its process; None if it can't be had, or is another's."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if path.exists():  # its holder may have removed it in between
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def _remove_left(folder: Path) -> None:
    """Remove what writers have left that were killed."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if _PARTIAL.fullmatch(entry.name) and (lock := locked(Path(entry.path))) is not None:
                _remove(Path(entry.path))
                os.close(lock)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def link_first(partial: Path, path: Path) -> None:
    """Give a file another name that must be free; in one step where the file system has links.

    Raises:
        FileExistsError: If it isn't.
        OSError: If that is not possible.
    """
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        partial.replace(path)


def _is(path: Path, file: os.stat_result) -> bool:
    """True if a name is that of a file, under whatever other names it is known."""
    try:
        return os.path.samestat(path.lstat(), file)
    except OSError:
        return False


def check_replaceable(path: Path, marks: Sequence[str], what: str) -> None:
    """Refuse to overwrite anything but an older file of the same kind, since it may be an input.

    A file of the kind ``what`` ("a report") contains one of the words ``marks`` near its beginning. A path that can't
    be read
    is left to the function that writes it.

    Raises:
        BadInputError: If the path is another file.
    """
    with suppress(OSError, ValueError):
        if not path.is_file() or path.stat().st_size == 0:  # a device accepts any data
            return
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not any(mark.encode() in head for mark in marks):
            raise BadInputError(f"{shown(path)} exists and is not {what} of jouletrace: only such a file is replaced")


def shown(path: Path) -> str:
    """A path relative to the current folder where possible, for messages."""
    with suppress(OSError, ValueError):  # the folder may be gone
        return str(path.relative_to(Path.cwd()))
    return str(path)


def quoted(path: Path) -> str:
    """The same path as a shell takes it, for commands in messages."""
    return shlex.quote(shown(path))


def make_folder(folder: Path, *, durable: bool = True) -> None:
    """Create a folder and its missing parents; ``durable`` as for ``write_whole``.

    Raises:
        OSError: If that is not possible.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if durable:
        for parent in missing:
            sync_folder(parent.parent)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; a pipe or a device, which may never end, raises at once.

    Raises:
        OSError: If it can't be opened, or isn't a regular file.
    """
    # Without O_NONBLOCK, opening a pipe without a writer would block.
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
    """The rest of a file, in pieces."""
    while chunk := file.read(_CHUNK):
        yield chunk


def safe_name(text: str) -> str:
    """A file name derived from a text: letters, digits, "-", "_" and "."; "" if the text contains none."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip("-.")
    return name.encode()[:_LONGEST].decode(errors="ignore")  # file systems limit names in bytes


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, as after a rename."""
    if os.name != "posix":  # elsewhere a folder can't be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def near(path: Path | str, pattern: str = "*", folders: Sequence[str] = ()) -> str:
    """Files with a name like one that isn't there, as a question; "" without any.

    Args:
        path: What isn't there.
        pattern: Of the names that are meant.
        folders: Where to look besides the folder of the path.
    """
    target = Path(path)
    near_ones: list[Path] = []
    for folder in dict.fromkeys([target.parent, *map(Path, folders)]):
        with suppress(OSError, ValueError):
            names = [file.name for file in folder.glob(pattern)]
            near_ones += [folder / name for name in get_close_matches(target.name, names, 3)]
    return f"; did you mean {' or '.join(map(str, near_ones[:3]))}?" if near_ones else ""
