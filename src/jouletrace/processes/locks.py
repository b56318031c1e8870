"""One process at a time changes a GPU: its lock, the journal of what it was before, and who puts it back.

Lock and journal lie in a folder that all users of the host share, named by the GPU's UUID. ``flock`` excludes; what
the lock file says of its holder is for messages. The journal is on the disk before anything is changed, so that the
way back outlives a crash. A watcher (see ``watcher``) puts the GPU back if its holder dies.
"""

from __future__ import annotations

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

try:
    import fcntl
except ImportError:  # Windows, where no driver lets a GPU be changed
    fcntl = None  # type: ignore[assignment]

FOLDER_VARIABLE = "JOULETRACE_LOCKS"
LOCK = ".lock"
VERSION = 1
_SHARED = 0o1777
"""Mode of a folder in which every user may write, and nobody may remove what is another's."""

_ATTEMPTS = 100
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Whoever writes first in a shared folder must not make others write elsewhere."""


def shared_folder() -> Path:
    """``$JOULETRACE_LOCKS``, else ``/var/tmp``, which outlives a reboot as a MIG mode may, else ``/tmp``.

    Not ``$TMPDIR``: users and jobs that have their own would not see one another.
    """
    explicit = os.environ.get(FOLDER_VARIABLE)
    if explicit:
        return Path(explicit)
    for place in (Path("/var/tmp"), Path("/tmp")):
        with suppress(OSError):
            if place.stat().st_mode & _SHARED == _SHARED:
                return place
    return Path(tempfile.gettempdir())


def journal_of(gpu: DeviceInfo) -> Path:
    """Where it is written down what a GPU was before it was changed."""
    return _file_of(gpu, ".json")


def noted(gpu: DeviceInfo, change: str) -> dict[str, Any] | None:
    """What was written down of a GPU before a change of this kind; None if nothing was.

    Raises:
        BadInputError: If it can't be read, or belongs to another user: whoever overwrote it would lose the way back.
    """
    found = _read(journal_of(gpu)).get(change)
    return dict(found) if found is not None else None


class Hold:
    """A GPU that this process alone may change; made by ``hold``.

    Args:
        gpu: The GPU.
        handle: File descriptor of its lock, None where there are no locks; a watcher has the same.

    Attributes:
        gpu, handle: As given.
        left: Whether a watcher goes on holding it.
    """

    def __init__(self, gpu: DeviceInfo, handle: int | None) -> None:
        self.gpu = gpu
        self.handle = handle
        self.left = False

    def noted(self, change: str) -> dict[str, Any] | None:
        """See ``noted``."""
        return noted(self.gpu, change)

    def note(self, change: str, facts: Mapping[str, Any]) -> None:
        """Write down what the GPU is before a change of this kind; on the disk when this returns.

        Raises:
            NotPossibleError: If it can't be written: then nothing may be changed.
            BadInputError: As ``noted``.
        """
        path = journal_of(self.gpu)
        entry = {**facts, "time_ns": time.time_ns(), "pid": os.getpid()}
        _write(path, {**_read(path), change: entry})

    def forget(self, change: str) -> None:
        """The GPU is as it was before such a change: there is nothing to go back to.

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
    def watched(self, task: str, by_hand: str, **facts: Any) -> Iterator[Watch]:
        """Should this process end before ``Watch.done``, killed or not, another one does ``task``.

        Args:
            task: "module:function", called with a ``Hold`` and ``facts``; returns what it has done in words, or None.
            by_hand: The command that does the same, for the case that it can't.
            **facts: For ``task``, as JSON has them.

        Raises:
            NotPossibleError: If there can be no such process: then nothing may be changed.
        """
        gpu = {"id": self.gpu.id, "name": self.gpu.name, "simulated": self.gpu.simulated}
        order = {"gpu": gpu, "task": task, "facts": facts, "by_hand": by_hand, "handle": self.handle}
        with Watch(order, self.handle) as watch:
            try:
                yield watch
            finally:
                self.left = not watch.is_done


class Watch:
    """A process that outlives this one if this one is killed, and cleans up after it; used as a context.

    It removes temporary folders, and puts a GPU back unless ``done`` was called.

    Args:
        order: How to put a GPU back (see ``watcher``); None if there is none.
        handle: The lock of that GPU, which the process shares.

    Attributes:
        is_done: Whether no GPU is to be put back.

    Raises:
        NotPossibleError: If it can't be started.
    """

    def __init__(self, order: Mapping[str, Any] | None = None, handle: int | None = None) -> None:
        self.is_done = order is None
        self._process: subprocess.Popen[bytes] | None = None
        if fcntl is None:
            return
        told = json.dumps({**(order or {}), "holder": os.getpid()})
        try:
            self._process = subprocess.Popen(
                our_module("jouletrace.processes.watcher", told),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what is said there is the result
                env={**os.environ, "PYTHONPATH": python_path()},
                pass_fds=() if handle is None else (handle,),
                start_new_session=True,  # Ctrl-C, a dropped connection or a kill of our group is not for it
            )
        except OSError as error:
            raise NotPossibleError(
                f"no process can be started to watch over this one ({error.strerror}): nothing was changed"
            ) from None

    def done(self) -> None:
        """The GPU is as it should be, whatever ends this process now."""
        self.is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with suppress(OSError), self._process.stdin as pipe:
            pipe.write(b"done" if self.is_done else b"")
        if self.is_done:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)


@contextmanager
def hold(gpu: DeviceInfo, doing: str) -> Iterator[Hold]:
    """Nobody else changes this GPU meanwhile, on this host; it ends with the process, however that ends.

    Args:
        gpu: The GPU.
        doing: For the message to whoever is refused: "dividing".

    Raises:
        NotPossibleError: If somebody else does, who is named; or the lock can't be made.
    """
    with _locked(_file_of(gpu, LOCK), f"{doing} {gpu.id}") as handle:
        held = Hold(gpu, handle)
        try:
            yield held
        finally:
            if handle is not None and not held.left:
                release(handle)


@contextmanager
def alone_in(folder: Path, doing: str) -> Iterator[None]:
    """Nobody else on this host writes results into this folder meanwhile; other hosts may.

    Args:
        folder: Made if it isn't there.
        doing: As of ``hold``: "running a sweep".

    Raises:
        NotPossibleError: If somebody else does, who is named.
        BadInputError: If the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise BadInputError(f"cannot write {shown(folder)}: it, or what it should be in, is a file") from None
    except OSError as error:
        raise BadInputError(f"cannot write {shown(folder)}: {error.strerror or error}") from None
    path = folder.absolute() / f".{safe_name(platform.node()) or 'host'}{LOCK}"
    with _locked(path, f"{doing} into {folder.absolute()}") as handle:
        try:
            yield
        finally:
            if handle is not None:
                with suppress(OSError):
                    path.unlink()
                release(handle)


def say_who(handle: int, doing: str) -> None:
    """Write into a lock who has it, for those who are refused."""
    record = {"pid": os.getpid(), "started": started(os.getpid()), "doing": doing}
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(record).encode(), 0)


def release(handle: int) -> None:
    """Give a lock up at once, though a fork of this process may still have it open."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
    fcntl.flock(handle, fcntl.LOCK_UN)


def started(pid: int) -> int | None:
    """When a process was started, in ticks since boot: what tells it from a later one of its number.

    None if there is no such process, or the system doesn't tell.
    """
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


@contextmanager
def _locked(path: Path, doing: str) -> Iterator[int | None]:
    """A lock file, held; closed in the end."""
    if fcntl is None:
        yield None
        return
    handle = _lock(path)
    try:
        say_who(handle, doing)
        yield handle
    finally:
        os.close(handle)


def _lock(path: Path) -> int:
    for _ in range(_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = _open(path)
        except OSError as error:
            raise NotPossibleError(f"the lock {path} can't be made: {error.strerror or error}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(path, handle):
                return handle
        except BlockingIOError:
            refusal = _refusal(path, handle)
            os.close(handle)
            raise NotPossibleError(refusal) from None
        except OSError as error:
            os.close(handle)
            raise NotPossibleError(f"the lock {path} can't be had: {error.strerror or error}") from None
        os.close(handle)  # who had it has removed it in between
    raise NotPossibleError(f"the lock {path} can't be had: it comes and goes")


def _open(path: Path) -> int:
    """Open a lock file that every user may lock.

    Linux refuses ``O_CREAT`` of what another user has made in a shared folder, so that only who makes it asks for it.
    The sticky bit keeps it from what clears such folders of old files (tmpfiles.d).
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
        raise OSError("it is no file")
    return handle


def _is_there(path: Path, handle: int) -> bool:
    """Whether a file that was opened still has its name."""
    try:
        there, opened = os.stat(path, follow_symlinks=False), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _refusal(path: Path, handle: int) -> str:
    """Who has a lock that can't be had."""
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
    """A simulated GPU is one for each user, since what becomes of it is kept in the user's cache."""
    own = f"-{os.getuid()}" if gpu.simulated and hasattr(os, "getuid") else ""
    return shared_folder() / f"{safe_name(f'jouletrace-{gpu.id}{own}')}{ending}"


def _read(path: Path) -> dict[str, Any]:
    """All that is in a journal, by kind of change."""
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
        raise BadInputError(f"the journal {path} can't be read ({error}); look at it, then remove it") from None
    us: Callable[[], int] | None = getattr(os, "geteuid", None)
    if us is not None and owner not in (0, us()):
        raise BadInputError(
            f"the journal {path} was written by user {owner}, and would change the GPU as that one likes: "
            "look at it, then make it yours (chown), or remove it"
        )
    return changes


def _write(path: Path, changes: Mapping[str, Any]) -> None:
    """Write a journal whole or not at all, readable for all; on the disk when this returns."""
    text = json.dumps({"version": VERSION, "changes": changes}, indent=1)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            Path(partial).chmod(0o1644)  # sticky as the lock is
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise NotPossibleError(
            f"the journal {path} can't be written ({error.strerror or error}): nothing was changed"
        ) from None
