"""A Run on disk: a folder or a zip file with ``run.json`` and Parquet tables; saving it."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa

from jouletrace.errors import BadInputError, BrokenOffError, TakenError
from jouletrace.known_secrets import refresh
from jouletrace.run import tables
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.division import divisions_of
from jouletrace.run.files import RUN_JSON, Content, shown, write_content, write_whole
from jouletrace.run.forms import Settings
from jouletrace.run.header import Checksums, checksum, decode, encode
from jouletrace.run.limits import Allowance
from jouletrace.run.loading import checked_table, load_header, read_header
from jouletrace.run.masking import masked, masked_held
from jouletrace.run.model import Run, derived, held
from jouletrace.run.places import EXISTS, OVERWRITE, TAKEN, file_mode, first_folder, take, write_first, written
from jouletrace.run.reading import FILES, run_files
from jouletrace.run.spool import SPOOL


def owns(folder: Path) -> bool:
    """True if this process has taken a folder for a Run, and no other Run has come there since."""
    taken = TAKEN.get(folder.absolute())
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
    if TAKEN.pop(folder.absolute()).is_new:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
    with written(target, BrokenOffError):
        if target.suffix.lower() == ".zip":
            if overwrite:
                write_whole(target, partial(_zip, files), mode=file_mode())
            else:
                write_first(target, partial(_zip, files), OVERWRITE)
        elif not target.exists():
            with first_folder(target, OVERWRITE) as folder:
                for name, data in files.items():
                    write_whole(folder / name, data, mode=file_mode())
        elif not any((target / name).exists() for name in FILES):
            _fill(target, run, files)
        elif overwrite or _is_cut_off(run, target):
            _replace(target, files)
        else:
            raise TakenError(f"{shown(target)} {EXISTS}", OVERWRITE)
    return target


def _files(run: Run, target: Path) -> dict[str, Content]:
    """The files of a Run by name, ``run.json`` last; each has been read as ``load`` will read it.

    Of a table that is in a file of its own that is copied.

    Raises:
        BadInputError: If that refuses one; the message names the field, or the row of the table.
    """
    where = f"cannot write {shown(target)}: the Run"
    files: dict[str, Content] = {}
    in_memory: dict[str, bytes] = {}
    checksums: Checksums = {}
    packed = 0
    refresh()
    for name in tables.TABLES:
        table, file_name = held(run, name), f"{name}.parquet"
        if name in tables.OPTIONAL and not len(table):
            continue
        sink = io.BytesIO()
        try:
            table = masked_held(table)
            if isinstance(table, ChannelFile):
                files[file_name], checksums[file_name] = table.write_to, checksum(table.chunks())
                packed += table.size
                continue
            tables.write(table, name, sink, simulated=run.simulated)
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise BadInputError(f"{where}'s {file_name} can't be made: {_one_line(error)}") from None
        files[file_name] = in_memory[name] = data = sink.getvalue()
        checksums[file_name], packed = checksum([data]), packed + len(data)
    try:
        # run.json goes last: during a recording it states complete=false, which stays true if this fails.
        files[RUN_JSON] = header = encode(run, checksums)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{where} can't be stated as JSON: {_one_line(error)}") from None
    decode(header, where)
    allowance = Allowance(packed + len(header))
    for name, data in in_memory.items():
        try:
            checked_table(io.BytesIO(data), name, allowance)
        except ValueError as error:
            raise BadInputError(f"{where}'s {name}.parquet is damaged: {error}") from None
    try:
        divisions_of(run)
    except ValueError as error:
        raise BadInputError(f"{where} can't be read: {error}") from None
    return files


def _one_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _fill(folder: Path, run: Run, files: Mapping[str, Content]) -> None:
    """Write the files of a Run beside what else a folder holds: all or, if that fails, none."""
    is_taken = False
    try:
        take(folder, run.id, encode(derived(run, complete=False)))
        is_taken = True
        _replace(folder, files)
    except BaseException:
        for name in files if is_taken else ():
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        raise


def _replace(folder: Path, files: Mapping[str, Content]) -> None:
    """Write the files of a Run over what the folder holds of it."""
    mode = file_mode()
    for name, data in files.items():
        write_whole(folder / name, data, mode=mode)
    for name in set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPOOL, ignore_errors=True)


def save_header(run: Run, folder: Path, *, first: bool = False) -> None:
    """Write only ``run.json``, so that the spooled tables can be read after a crash.

    Raises:
        BadInputError: If it can't be written, or is that of another Run, or is there though this is the ``first``.
    """
    with written(folder, BadInputError):
        if first:
            take(folder, run.id, encode(run))
            return
        path = folder / RUN_JSON
        before = path.stat() if path.exists() else None
        try:
            if before is not None and load_header(folder).id != run.id:
                raise FileExistsError(path)
            write_whole(path, encode(run), mode=file_mode(), first=before is None, over=before)
        except FileExistsError:
            raise BadInputError(f"another Run has been put into {shown(folder)} meanwhile") from None


def restate(folder: Path, settings: Settings) -> None:
    """Add settings to the Run in a folder; its tables stay as they are.

    Raises:
        BadInputError: If it holds no Run.
        BrokenOffError: If it can't be written; the Run stays as it is.
    """
    with run_files(folder) as files:
        run, checksums, _ = read_header(files, str(folder))
    run.settings |= settings
    with written(folder, BrokenOffError):
        write_whole(folder / RUN_JSON, encode(run, checksums), mode=file_mode())


def _is_cut_off(run: Run, folder: Path) -> bool:
    """True if the folder holds the incomplete recording of this same Run."""
    try:
        there = load_header(folder)
    except BadInputError:
        return False
    return not there.complete and (there.created_ns, there.command) == (run.created_ns, masked(run.command))


def _zip(files: Mapping[str, Content], sink: IO[bytes]) -> None:
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=not isinstance(data, bytes)) as file:
                write_content(data, file)
