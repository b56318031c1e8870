"""One process at a time changes a GPU: the lock, the journal of the earlier state, and the restore after a crash.

Lock and journal lie in a folder that all users of the host share, and are named by the GPU's UUID. ``flock`` excludes
other processes; the content of the lock file only serves messages. The journal is on the disk before anything is
changed, so that the earlier state survives a crash. A watcher (see ``watcher``) restores the GPU if its holder dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.children import PATIENCE_S, our_module, python_path
from jouletrace.run import DeviceInfo
from jouletrace.run.files import safe_name, shown, sync_folder

FOLDER_VARIABLE = "JOULETRACE_LOCKS"
LOCK = ".lock"
VERSION = 1
_SHARED = 0o1777
"""Mode of a folder in which every user may write but not remove the files of other users (sticky bit)."""

_ATTEMPTS = 100
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""A symbolic link planted in a shared folder must not redirect the writes of other users."""


def shared_folder() -> Path:
    """``$JOULETRACE_LOCKS``, else ``/var/tmp``, which survives a reboot as a MIG mode may, else ``/tmp``.

    ``$TMPDIR`` isn't used: users and jobs with different values would not see each other's locks.
    """
    explicit = os.environ.get(FOLDER_VARIABLE)
    if explicit:
        return Path(explicit)
    for folder in (Path("/var/tmp"), Path("/tmp")):
        with suppress(OSError):
            if folder.stat().st_mode & _SHARED == _SHARED:
                return folder
    return Path(tempfile.gettempdir())


def journal_of(gpu: DeviceInfo) -> Path:
    """Path of the journal, which holds the state of a GPU before it was changed."""
    return _file_of(gpu, ".json")


def noted(gpu: DeviceInfo, change: str) -> dict[str, Any] | None:
    """The recorded state of a GPU before a change of this kind; None if none is recorded.

    Raises:
        BadInputError: If the journal can't be read, or belongs to another user: overwriting it would lose that state.
    """
    entry = _read(journal_of(gpu)).get(change)
    return dict(entry) if entry is not None else None


class Hold:
    """Exclusive right of this process to change a GPU; created by ``hold``.

    Attributes:
        gpu: The GPU.
        handle: File descriptor of its lock, shared with the watcher.
        left: Whether a watcher still holds the lock.
    """

    def __init__(self, gpu: DeviceInfo, handle: int) -> None:
        self.gpu = gpu
        self.handle = handle
        self.left = False

    def noted(self, change: str) -> dict[str, Any] | None:
        """See ``noted``."""
        return noted(self.gpu, change)

    def note(self, change: str, facts: Mapping[str, Any]) -> None:
        """Record the state of the GPU before a change of this kind; it is on the disk when this returns.

        Raises:
            NotPossibleError: If it can't be written: then nothing may be changed.
            BadInputError: As ``noted``.
        """
        path = journal_of(self.gpu)
        entry = {**facts, "time_ns": time.time_ns(), "pid": os.getpid()}
        _write(path, {**_read(path), change: entry})

    def forget(self, change: str) -> None:
        """Remove the recorded state of a change that was undone.

        Raises:
            NotPossibleError: If the journal can't be changed.
        """
        path = journal_of(self.gpu)
        changes = _read(path)
        if changes.pop(change, None) is None:
            return
        if changes:
            _write(path, changes)
            return
        try:
            path.unlink()
        except OSError as error:
            raise NotPossibleError(f"the journal {path} can't be removed: {error.strerror}") from None

    @contextmanager
    def watched(self, task: str, by_hand: str, **facts: Any) -> Iterator[Guard]:
        """Start a watcher process that runs ``task`` if this process ends or is killed before ``Guard.done``.

        Args:
            task: "module:function", called with a ``Hold`` and ``facts``; returns what it did, or None.
            by_hand: The command that does the same, for the message if the task fails.
            **facts: Arguments of ``task``; JSON values.

        Raises:
            NotPossibleError: If the watcher can't be started: then nothing may be changed.
        """
        gpu = {"id": self.gpu.id, "name": self.gpu.name, "simulated": self.gpu.simulated}
        order = {"gpu": gpu, "task": task, "facts": facts, "by_hand": by_hand, "handle": self.handle}
        with Guard(order, self.handle) as watch:
            try:
                yield watch
            finally:
                self.left = not watch.is_done


class Guard:
    """A process that survives a kill of this process and cleans up after it; used as a context.

    It removes temporary folders, and restores a GPU unless ``done`` was called.

    Args:
        order: How to restore a GPU (see ``watcher``); None if there is none.
        handle: The lock of that GPU, which the watcher shares.

    Raises:
        NotPossibleError: If it can't be started.
    """

    def __init__(self, order: Mapping[str, Any] | None = None, handle: int | None = None) -> None:
        self.is_done = order is None
        argument = json.dumps({**(order or {}), "holder": os.getpid()})
        try:
            self._process = subprocess.Popen(
                our_module("jouletrace.processes.watcher", argument),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # stdout carries this process's result
                env={**os.environ, "PYTHONPATH": python_path()},
                pass_fds=() if handle is None else (handle,),
                start_new_session=True,  # Ctrl-C, a hang-up or a kill of this process group must not reach it
            )
        except OSError as error:
            raise NotPossibleError(
                f"the watcher process can't be started ({error.strerror}): nothing was changed"
            ) from None

    def done(self) -> None:
        """Declare the GPU restored: the watcher has nothing left to do for it."""
        self.is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None, "Popen was given PIPE"
        with suppress(OSError), self._process.stdin as pipe:
            pipe.write(b"done" if self.is_done else b"")
        if self.is_done:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)


@contextmanager
def hold(gpu: DeviceInfo, doing: str) -> Iterator[Hold]:
    """Lock a GPU, so that no other process of this host changes it; the lock ends with the process.

    ``doing`` is the present participle for the message to a refused process: "dividing".

    Raises:
        NotPossibleError: If another process holds the lock, which is named; or the lock can't be created.
    """
    with _locked(_file_of(gpu, LOCK), f"{doing} {gpu.id}") as handle:
        held = Hold(gpu, handle)
        try:
            yield held
        finally:
            if not held.left:
                release(handle)


@contextmanager
def alone_in(folder: Path, doing: str, part: str = "") -> Iterator[None]:
    """Lock a folder, so that no other process of this host writes results into it; other hosts may.

    It is created if it is missing; ``doing`` as for ``hold``: "running a sweep". Each ``part`` has a lock of its own.

    Raises:
        NotPossibleError: If another process holds the lock, which is named.
        BadInputError: If the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "it, or a parent folder of it, is a file" if is_file else error.strerror or error
        raise BadInputError(f"cannot write {shown(folder)}: {reason}") from None
    path = folder.absolute() / f".{safe_name(platform.node()) or 'host'}{part}{LOCK}"
    with _locked(path, f"{doing} into {folder.absolute()}") as handle:
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
            release(handle)


@contextmanager
def alone_at(path: Path, doing: str) -> Iterator[None]:
    """Lock the name of a file that will be written, so that no other process writes it; ``doing`` as for ``hold``.

    Raises:
        BadInputError: If another process holds the lock, which is named; or the file can't be written.
    """
    lock = path.absolute().with_name(f".{path.name}{LOCK}")
    try:
        handle = _lock(lock)
    except NotPossibleError as error:
        cause = error.__context__
        if isinstance(cause, OSError) and not isinstance(cause, BlockingIOError):
            raise BadInputError(f"cannot write {shown(path)}: {cause.strerror or cause}") from None
        raise BadInputError(str(error)) from None
    say_who(handle, f"{doing} {shown(path)}")
    try:
        yield
    finally:
        with suppress(OSError):
            # Otherwise the program of ``run`` has closed it, and the number may be that of a file of its own.
            if _is_there(lock, handle):
                lock.unlink()
                release(handle)
                os.close(handle)


def say_who(handle: int, doing: str) -> None:
    """Write the holder into a lock file, for the message to refused processes."""
    record = {"pid": os.getpid(), "started": started(os.getpid()), "doing": doing}
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(record).encode(), 0)


def release(handle: int) -> None:
    """Release a lock at once, though a fork of this process may still have it open."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
    fcntl.flock(handle, fcntl.LOCK_UN)


def started(pid: int) -> int | None:
    """Start time of a process in ticks since boot, unlike that of a later one of the same id; None if unknown."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


@contextmanager
def _locked(path: Path, doing: str) -> Iterator[int]:
    handle = _lock(path)
    try:
        say_who(handle, doing)
        yield handle
    finally:
        os.close(handle)


def _lock(path: Path) -> int:
    for _ in range(_ATTEMPTS):
        handle = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = _open(path)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(path, handle):
                return handle
            os.close(handle)  # its holder has removed it in between
        except OSError as error:
            failed = "created" if handle is None else "taken"
            refusal = f"the lock {path} can't be {failed}: {error.strerror or error}"
            if handle is not None:
                refusal = _refusal(path, handle) if isinstance(error, BlockingIOError) else refusal
                os.close(handle)
            raise NotPossibleError(refusal) from None
    raise NotPossibleError(f"the lock {path} can't be taken: it is removed again and again")


def _open(path: Path) -> int:
    """Open a lock file that every user may lock.

    Linux refuses ``O_CREAT`` on a file of another user in a shared folder, so only its creator uses that flag.
    The sticky bit protects it from the clean-up of old files in such folders (tmpfiles.d).
    """
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | _NOFOLLOW
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(handle, 0o1666)  # whatever the umask
        except FileExistsError:
            return _open(path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("it is not a regular file")
    return handle


def _is_there(path: Path, handle: int) -> bool:
    """True if an opened file still exists under its name."""
    try:
        there, opened = os.stat(path, follow_symlinks=False), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _refusal(path: Path, handle: int) -> str:
    try:
        record = json.loads(os.pread(handle, 4096, 0))
        pid, since, doing = int(record["pid"]), record["started"], str(record["doing"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"another jouletrace holds {path}: wait for it to end"
    if since is None or started(pid) == since:
        return f"another jouletrace (pid {pid}) is {doing}: wait for it to end"
    return (
        f"{path} is locked, and the jouletrace that did it (pid {pid}, {doing}) has ended or is in another container: "
        f"a process that it left behind may hold the lock (fuser {path} names it)"
    )


def _file_of(gpu: DeviceInfo, ending: str) -> Path:
    """Path for a GPU; a simulated GPU exists once per user, since its state is in the user's cache."""
    of_user = f"-{os.getuid()}" if gpu.simulated and hasattr(os, "getuid") else ""
    return shared_folder() / f"{safe_name(f'jouletrace-{gpu.id}{of_user}')}{ending}"


def _read(path: Path) -> dict[str, Any]:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NOFOLLOW)
        with os.fdopen(handle) as file:
            owner = os.fstat(handle).st_uid
            data = json.load(file)
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        changes = {str(name): dict(entry) for name, entry in data["changes"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"the journal {path} can't be read ({error}); inspect it, then remove it") from None
    us: Callable[[], int] | None = getattr(os, "geteuid", None)
    if us is not None and owner not in (0, us()):
        raise BadInputError(
            f"the journal {path} was written by user {owner}, who would thereby decide how the GPU is changed: "
            "inspect it, then take ownership (chown) or remove it"
        )
    return changes


def _write(path: Path, changes: Mapping[str, Any]) -> None:
    """Write a journal atomically, readable by all users; it is on the disk when this returns."""
    text = json.dumps({"version": VERSION, "changes": changes}, indent=1)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            Path(partial).chmod(0o1644)  # sticky, like the lock
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise NotPossibleError(
            f"the journal {path} can't be written ({error.strerror or error}): nothing was changed"
        ) from None
