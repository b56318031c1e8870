"""A Run on disk: a folder or a zip file with ``run.json`` and Parquet tables; taking its place, and saving it."""

from __future__ import annotations

import io
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.known_secrets import refresh
from jouletrace.run import tables
from jouletrace.run.division import divisions_of
from jouletrace.run.files import safe_name, shown, write_whole
from jouletrace.run.header import RUN_JSON, checksum, decode, encode
from jouletrace.run.limits import Allowance
from jouletrace.run.loading import checked_table, load_header
from jouletrace.run.masking import masked, masked_table
from jouletrace.run.model import Run
from jouletrace.run.reading import FILES
from jouletrace.run.spool import SPOOL

MODE_VARIABLE = "JOULETRACE_FILE_MODE"
"""Environment variable: permissions of the files of a Run in octal digits; 600 if it isn't set."""


@dataclass(frozen=True)
class _Taken:
    """A folder that this process has taken, which gives it the right to remove it and to write over what is in it.

    Attributes:
        process: The process, which isn't that of a fork.
        run: Id of the Run whose ``run.json`` it has written there; "" before.
        is_new: Whether the folder was made for it.
    """

    process: int
    run: str
    is_new: bool


_taken: dict[Path, _Taken] = {}


def owns(folder: Path) -> bool:
    """True if this process has taken a folder for a Run, and no other Run has come there since."""
    taken = _taken.get(folder.absolute())
    if taken is None or taken.process != os.getpid():
        return False
    return holds(folder, taken.run) if (folder / RUN_JSON).exists() else not taken.run


def holds(folder: Path, id: str) -> bool:
    """True if a folder holds the Run of this id, in whatever state."""
    try:
        return load_header(folder).id == id
    except BadInputError:
        return False


def remove_own(folder: Path) -> None:
    """Remove what this process has recorded in a folder that it has taken, unless that is a complete Run."""
    if not owns(folder) or ((folder / RUN_JSON).exists() and load_header(folder).complete):
        return
    if _taken.pop(folder.absolute()).is_new:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def fresh_folder(base: Path | str, name: str) -> Path:
    """Create a new folder ``BASE/YYYYmmdd-HHMMSS-NAME``, with a counter if it exists.

    Raises:
        BadInputError: If the place can't be written.
    """
    stem = Path(base) / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(name) or 'run'}"
    for n in range(1, 10_000):
        folder = stem if n == 1 else stem.with_name(f"{stem.name}-{n}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.exists():  # a parent is a file
                raise BadInputError(f"cannot write {folder}: a parent of it is a file") from None
            continue
        except OSError as error:
            raise BadInputError(f"cannot write {folder}: {error.strerror}") from None
        _taken[folder.absolute()] = _Taken(os.getpid(), "", True)
        return folder
    raise BadInputError(f"all names from {stem} to {stem.name}-9999 are taken")


def check_free(path: Path | str) -> Path:
    """The path of a new Run, refused early if it exists or can't be written.

    Raises:
        BadInputError: In both cases.
    """
    target = Path(path)
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise BadInputError(f"{shown(target)} exists; results are never overwritten")
        parent = target.absolute().parent
        while not parent.exists():
            parent = parent.parent
    except OSError as error:
        raise BadInputError(f"cannot write {shown(target)}: {error.strerror or error}") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInputError(f"cannot write {shown(target)}: {parent} is not a writable folder")
    return target


def file_mode() -> int:
    """Permissions of the files of a Run: the owner's only, unless the environment states others.

    Raises:
        BadInputError: If the variable isn't a valid mode.
    """
    text = os.environ.get(MODE_VARIABLE, "600")
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0o400 <= mode <= 0o777:
        raise BadInputError(f"{MODE_VARIABLE}={text}: must be permissions in octal digits, such as 640")
    return mode


def save(run: Run, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a Run to a folder, or to one file if the name ends in ".zip".

    A folder that holds the incomplete recording of this same Run is completed; its spool is removed once the tables
    are written. If this fails, nothing of it is left at a place that was free.

    Raises:
        BadInputError: If the path holds another Run, or this one complete, and ``overwrite`` is False; or ``load``
            would refuse what would be written.
        BrokenOffError: If writing fails; existing files stay, a spool included.
    """
    target = Path(path)
    files = _files(run, target)
    with _written(target, BrokenOffError):
        if target.suffix.lower() == ".zip":
            data = _zipped(files)
            if overwrite:
                write_whole(target, data, mode=file_mode())
            else:
                _write_first(target, data)
        elif not any((target / name).exists() for name in FILES):
            _fill(target, run, files)
        elif overwrite or _is_cut_off(run, target):
            _replace(target, files)
        else:
            raise BadInputError(f"{target} holds a Run already; results are never overwritten")
    return target


def _files(run: Run, target: Path) -> dict[str, bytes]:
    """The files of a Run by name, ``run.json`` last; each has been read as ``load`` will read it.

    Raises:
        BadInputError: If that refuses one; the message names the field, or the row of the table.
    """
    where = f"cannot write {shown(target)}: the Run"
    files: dict[str, bytes] = {}
    refresh()
    for name in tables.TABLES:
        if name in tables.OPTIONAL and not len(run.table(name)):
            continue
        sink = io.BytesIO()
        try:
            tables.write(masked_table(run.table(name)), name, sink, simulated=run.simulated)
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise BadInputError(f"{where}'s {name}.parquet can't be made: {_one_line(error)}") from None
        files[f"{name}.parquet"] = sink.getvalue()
    try:
        # run.json goes last: during a recording it states complete=false, which stays true if this fails.
        files[RUN_JSON] = encode(run, {name: checksum([data]) for name, data in files.items()})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{where} can't be stated as JSON: {_one_line(error)}") from None
    decode(files[RUN_JSON], where)
    allowance = Allowance(sum(map(len, files.values())))
    for name in tables.TABLES:
        if f"{name}.parquet" in files:
            try:
                checked_table(io.BytesIO(files[f"{name}.parquet"]), name, allowance)
            except ValueError as error:
                raise BadInputError(f"{where}'s {name}.parquet is damaged: {error}") from None
    try:
        divisions_of(run)
    except ValueError as error:
        raise BadInputError(f"{where} can't be read: {error}") from None
    return files


def _one_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _fill(folder: Path, run: Run, files: dict[str, bytes]) -> None:
    """Write the files of a Run to a folder that holds none: all or, if that fails, none."""
    is_new, is_taken = not folder.exists(), False
    try:
        _take(folder, replace(run, complete=False))
        is_taken = True
        _replace(folder, files)
    except BaseException:
        for name in files if is_taken else ():
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # something else is in it
                folder.rmdir()
        raise


def _take(folder: Path, run: Run) -> None:
    """Take a folder for a Run, by linking its ``run.json``, which no other process can do then.

    Raises:
        BadInputError: If another Run is there.
        OSError: If it can't be written.
    """
    is_new = not folder.exists() or (owns(folder) and _taken[folder.absolute()].is_new)
    _write_first(folder / RUN_JSON, encode(run))
    _taken[folder.absolute()] = _Taken(os.getpid(), run.id, is_new)


def _replace(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of a Run over what the folder holds of it."""
    mode = file_mode()
    for name, data in files.items():
        write_whole(folder / name, data, mode=mode)
    for name in set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPOOL, ignore_errors=True)


def _write_first(path: Path, data: bytes) -> None:
    """Write a file that must not be there, so that no other process takes its place.

    Raises:
        BadInputError: If it is there.
        OSError: If it can't be written.
    """
    try:
        write_whole(path, data, mode=file_mode(), first=True)
    except FileExistsError:
        if not path.exists():  # a folder above it is a file
            raise
        raise BadInputError(f"{shown(path)} exists; results are never overwritten") from None


@contextmanager
def _written(target: Path, kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise kind(f"cannot write {shown(target)}: {getattr(error, 'strerror', None) or error}") from None


def save_header(run: Run, folder: Path, *, first: bool = False) -> None:
    """Write only ``run.json``, so that the spooled tables can be read after a crash.

    Raises:
        BadInputError: If it can't be written, or is that of another Run, or is there though this is the ``first``.
    """
    with _written(folder, BadInputError):
        if first:
            _take(folder, run)
        elif (folder / RUN_JSON).exists() and load_header(folder).id != run.id:
            raise BadInputError(f"another Run has been put into {shown(folder)} meanwhile")
        else:
            write_whole(folder / RUN_JSON, encode(run), mode=file_mode())


def _is_cut_off(run: Run, folder: Path) -> bool:
    """Whether the folder holds the incomplete recording of this same Run."""
    try:
        there = load_header(folder)
    except BadInputError:
        return False
    return not there.complete and (there.created_ns, there.command) == (run.created_ns, masked(run.command))


def _zipped(files: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return sink.getvalue()
