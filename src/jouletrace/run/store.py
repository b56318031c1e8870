"""A Run on disk: a folder, or the same zipped, of ``run.json`` and Parquet tables."""

from __future__ import annotations

import io
import os
import shutil
import time
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.run import tables
from jouletrace.run.files import safe_name, shown, write_whole
from jouletrace.run.header import RUN_JSON, decode, encode
from jouletrace.run.limits import check_entry, check_table
from jouletrace.run.model import Run
from jouletrace.run.spool import read_spool

SPOOL = "spool"
_FILES = (*(f"{name}.parquet" for name in tables.TABLES), RUN_JSON)
_SAYS_INCOMPLETE = ("incomplete", "interrupted", "failed")


def fresh_folder(base: Path | str, name: str) -> Path:
    """Make a new folder ``BASE/YYYYmmdd-HHMMSS-NAME``, with a counter if it is taken.

    Raises:
        BadInputError: If the place can't be written.
    """
    stem = Path(base) / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(name) or 'run'}"
    for n in range(1, 10_000):
        folder = stem if n == 1 else stem.with_name(f"{stem.name}-{n}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.exists():  # a file stands where a parent folder should be
                raise BadInputError(f"cannot write {folder}: a parent of it is a file") from None
            continue
        except OSError as error:
            raise BadInputError(f"cannot write {folder}: {error.strerror}") from None
        return folder
    raise BadInputError(f"cannot find a free name beside {stem}")


def check_free(path: Path | str) -> Path:
    """The path of a Run about to be made, refused early if it is taken or can't be written.

    Raises:
        BadInputError: In both cases.
    """
    target = Path(path)
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise BadInputError(f"{shown(target)} exists; results never go over older ones")
        parent = target.absolute().parent
        while not parent.exists():
            parent = parent.parent
    except OSError as error:
        raise BadInputError(f"cannot write {shown(target)}: {error.strerror or error}") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInputError(f"cannot write {shown(target)}: {parent} is not a writable folder")
    return target


def save(run: Run, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a Run to a folder, or to one file if the name ends in ".zip".

    A folder in which this same Run was being recorded (or was cut off) is completed; a spool left
    inside is removed once the tables are safely written.

    Raises:
        BadInputError: If another Run, or this one complete, is there and ``overwrite`` is False.
        BrokenOffError: If writing fails; what is there stays, a spool included.
    """
    target = Path(path)
    files: dict[str, bytes] = {}
    for name in tables.TABLES:
        if name in tables.OPTIONAL and not len(run.table(name)):
            continue
        sink = io.BytesIO()
        tables.write(run.table(name), name, sink, simulated=run.simulated)
        files[f"{name}.parquet"] = sink.getvalue()
    # run.json goes last: while recording it says complete=false, and so it stays if this fails.
    files[RUN_JSON] = encode(run, {name: zlib.crc32(data) for name, data in files.items()})
    try:
        if target.suffix.lower() == ".zip":
            if target.exists() and not overwrite:
                raise BadInputError(f"{target} exists; results never go over older ones")
            _write_zip(target, files)
        else:
            if not overwrite and not _is_place_of(run, target):
                raise BadInputError(f"{target} holds a Run already; results never go over older ones")
            target.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                write_whole(target / name, data)
            for name in set(_FILES) - set(files):
                (target / name).unlink(missing_ok=True)
            shutil.rmtree(target / SPOOL, ignore_errors=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise BrokenOffError(f"cannot write {shown(target)}: {getattr(error, 'strerror', None) or error}") from None
    return target


def save_header(run: Run, folder: Path) -> None:
    """Write only ``run.json``, so that what is spooled beside it can be read after a crash.

    Raises:
        BadInputError: If it can't be written.
    """
    try:
        write_whole(folder / RUN_JSON, encode(run))
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot write {shown(folder)}: {getattr(error, 'strerror', None) or error}") from None


def load(path: Path | str) -> Run:
    """Read a Run from a folder, its ``run.json``, or a zip file.

    What a crash left in the spool is read too, and the Run is then marked incomplete. A table that
    is readable but not what was saved comes with a warning.

    Raises:
        BadInputError: If there is no Run, it is of a newer major version, or a file is damaged.
    """
    try:
        source = Path(path)
    except TypeError:
        raise BadInputError(f"load({path!r}): the path of a Run is needed") from None
    if source.name == RUN_JSON:
        source = source.parent
    try:
        if not source.exists():
            raise BadInputError(f"no Run at {path}: there is no such file or folder")
        files = _read_folder(source) if source.is_dir() else _read_zip(source)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise BadInputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    return _assemble(files, source)


def _read_folder(folder: Path) -> dict[str, bytes]:
    if not (folder / RUN_JSON).is_file():
        parts = any(folder.glob(f"rank-*/{RUN_JSON}"))
        hint = f", but parts of ranks: jouletrace merge {folder}" if parts else ""
        raise BadInputError(f"no Run in {folder}: it holds no {RUN_JSON}{hint}")
    return {name: (folder / name).read_bytes() for name in _FILES if (folder / name).exists()}


def _read_zip(source: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(source) as archive:
            places = [PurePosixPath(name).parent for name in archive.namelist() if PurePosixPath(name).name == RUN_JSON]
            if not places:
                raise BadInputError(f"no Run in {source}: it holds no {RUN_JSON}")
            top = min(places, key=lambda place: len(place.parts))  # a Run may hold those that it was made of
            if not all(place.is_relative_to(top) for place in places):
                raise BadInputError(f"{source} holds {len(places)} Runs; unpack it and name one")
            there = set(archive.namelist())
            inside = {name: str(top / name) for name in _FILES if str(top / name) in there}
            for full in inside.values():
                check_entry(archive.getinfo(full), str(source))
            return {name: archive.read(full) for name, full in inside.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        # RuntimeError: encrypted, or compressed in a way that this Python can't undo.
        raise BadInputError(f"{source} is neither a folder nor a readable zip file: {error}") from None


def _assemble(files: dict[str, bytes], source: Path) -> Run:
    run, checksums = decode(files[RUN_JSON], f"{source}/{RUN_JSON}")
    unchecked: list[str] = []
    for name in tables.TABLES:
        data = files.get(f"{name}.parquet")
        if data is not None:
            try:
                check_table(data)
                setattr(run, name, tables.read(io.BytesIO(data), name))
            except ValueError as error:
                raise BadInputError(f"{source}/{name}.parquet is damaged: {error}") from None
            if f"{name}.parquet" not in checksums:
                unchecked.append(f"{name}.parquet")
            elif checksums[f"{name}.parquet"] != zlib.crc32(data):
                message = f"{name}.parquet is not what was saved: it was damaged or changed since"
                run.warn("changed_since_saved", message, str(source))
        elif run.complete and (name not in tables.OPTIONAL or f"{name}.parquet" in checksums):
            raise BadInputError(f"{source}/{name}.parquet is missing")
        elif source.is_dir():
            setattr(run, name, read_spool(source / SPOOL, name))
    if unchecked and run.complete:
        names = ", ".join(unchecked)
        message = f"{RUN_JSON} holds no checksum of {names}: whether that is what was saved can't be told"
        run.warn("not_checked", message, str(source))
    if not run.complete and not any(warning.code in _SAYS_INCOMPLETE for warning in run.warnings):
        run.warn("incomplete", "the recording was cut off; this is what had reached the disk", str(source))
    return run


def _is_place_of(run: Run, folder: Path) -> bool:
    """Whether the folder holds no Run, or the unfinished beginning of this very one."""
    if not any((folder / name).exists() for name in _FILES):
        return True
    try:
        there, _ = decode((folder / RUN_JSON).read_bytes(), str(folder / RUN_JSON))
    except (OSError, BadInputError):
        return False
    return not there.complete and (there.created_ns, there.command) == (run.created_ns, run.command)


def _write_zip(target: Path, files: dict[str, bytes]) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    write_whole(target, sink.getvalue())
