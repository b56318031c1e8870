"""A Run on disk: a folder, or the same zipped, of ``run.json`` and Parquet tables."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import time
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.info import ChannelInfo, DeviceInfo, RunWarning
from jouletrace.run.model import Run
from jouletrace.run.spool import SUFFIX, read_spool

FORMAT = "jouletrace-run"
SCHEMA_VERSION = (1, 0)
"""Major and minor. A newer minor opens (unknown fields are ignored); a newer major does not."""

RUN_JSON = "run.json"
SPOOL = "spool"


def fresh_folder(base: Path | str, name: str) -> Path:
    """Make a new folder ``BASE/YYYYmmdd-HHMMSS-NAME``, with a counter if it is taken.

    Raises:
        BadInputError: If the place can't be written.
    """
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "run"
    stem = Path(base) / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe[:80]}"
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
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInputError(f"{target} exists; results never go over older ones")
    parent = target.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInputError(f"cannot write {target}: {parent} is not a writable folder")
    return target


def save(run: Run, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a Run to a folder, or to one file if the name ends in ".zip".

    A spool folder left inside is removed once the tables are safely written.

    Raises:
        BadInputError: If there is a Run already and ``overwrite`` is False, or writing fails.
    """
    target = Path(path)
    files = {RUN_JSON: json.dumps(_header(run), indent=1, allow_nan=False).encode()}
    for name in tables.TABLES:
        files[f"{name}.parquet"] = _parquet(run.table(name), name)
    try:
        if target.suffix == ".zip":
            if target.exists() and not overwrite:
                raise BadInputError(f"{target} exists; results never go over older ones")
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_zip(target, files)
        else:
            if (target / "results.parquet").exists() and not overwrite:
                raise BadInputError(f"{target} holds a Run already; results never go over older ones")
            target.mkdir(parents=True, exist_ok=True)
            # run.json goes last: while recording it says complete=false, and so it stays if this fails.
            for name in sorted(files, key=lambda name: name == RUN_JSON):
                partial = target / f".{name}.part"
                partial.write_bytes(files[name])
                partial.replace(target / name)
            shutil.rmtree(target / SPOOL, ignore_errors=True)
    except OSError as error:
        raise BadInputError(f"cannot write {target}: {error.strerror or error}") from None
    return target


def save_header(run: Run, folder: Path) -> None:
    """Write only ``run.json``, so that what is spooled beside it can be read after a crash."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{RUN_JSON}.part"
    partial.write_text(json.dumps(_header(run), indent=1, allow_nan=False))
    partial.replace(folder / RUN_JSON)


def load(path: Path | str) -> Run:
    """Read a Run from a folder, its ``run.json``, or a zip file.

    What a crash left in the spool is read too, and the Run is then marked incomplete.

    Raises:
        BadInputError: If there is no Run, it is of a newer major version, or a file is damaged.
    """
    source = Path(path)
    if source.name == RUN_JSON:
        source = source.parent
    if not source.exists():
        raise BadInputError(f"no Run at {path}: there is no such file or folder")
    if source.is_dir():
        return _load_folder(source)
    try:
        with zipfile.ZipFile(source) as archive:
            names = {Path(name).name: name for name in archive.namelist()}
            if RUN_JSON not in names:
                raise BadInputError(f"no Run in {source}: it holds no {RUN_JSON}")
            return _assemble({short: archive.read(full) for short, full in names.items()}, source)
    except (zipfile.BadZipFile, OSError) as error:
        raise BadInputError(f"{source} is neither a folder nor a readable zip file: {error}") from None


def _load_folder(folder: Path) -> Run:
    if not (folder / RUN_JSON).is_file():
        raise BadInputError(f"no Run in {folder}: it holds no {RUN_JSON}")
    try:
        files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name == RUN_JSON or p.suffix == ".parquet"}
    except OSError as error:
        raise BadInputError(f"cannot read {folder}: {error.strerror}") from None
    run = _assemble(files, folder)
    spool = folder / SPOOL
    if spool.is_dir() and any(spool.glob(f"*{SUFFIX}")) and "results.parquet" not in files:
        for name in tables.TABLES:
            setattr(run, name, read_spool(spool, name))
        run.complete = False
        run.warn("incomplete", "the recording was cut off; this is what had reached the disk", str(folder))
    return run


def _assemble(files: dict[str, bytes], source: Path) -> Run:
    try:
        header = json.loads(files[RUN_JSON])
    except ValueError as error:
        raise BadInputError(f"{source}/{RUN_JSON} is not valid JSON: {error}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadInputError(f"{source}/{RUN_JSON} is not a jouletrace Run (no format {FORMAT!r})")
    version = str(header.get("schema_version", "?"))
    try:
        major = int(version.split(".", maxsplit=1)[0])
    except ValueError:
        raise BadInputError(f"{source}/{RUN_JSON} has an unreadable schema_version {version!r}") from None
    if major > SCHEMA_VERSION[0]:
        raise BadInputError(
            f"{source} was written in format {version}, and this jouletrace reads up to "
            f"{SCHEMA_VERSION[0]}.x: upgrade jouletrace"
        )
    run = _from_header(header, source)
    for name in tables.TABLES:
        data = files.get(f"{name}.parquet")
        if data is None:
            if run.complete:
                raise BadInputError(f"{source}/{name}.parquet is missing")
            continue
        try:
            setattr(run, name, tables.conform(pq.read_table(io.BytesIO(data)), name))
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise BadInputError(f"{source}/{name}.parquet is damaged: {reason}") from None
    return run


def _header(run: Run) -> dict[str, Any]:
    header: dict[str, Any] = {"format": FORMAT, "schema_version": f"{SCHEMA_VERSION[0]}.{SCHEMA_VERSION[1]}"}
    for f in fields(run):
        if f.name in tables.TABLES:
            continue
        value = getattr(run, f.name)
        if f.name in ("devices", "channels", "warnings"):
            value = [item.to_dict() for item in value]
        header[f.name] = value
    return dict(_jsonable(header))


def _from_header(header: dict[str, Any], source: Path) -> Run:
    known = {f.name for f in fields(Run)} - set(tables.TABLES)
    values = {key: value for key, value in header.items() if key in known}
    try:
        values["devices"] = [DeviceInfo.from_dict(d) for d in values.get("devices", [])]
        values["channels"] = [ChannelInfo.from_dict(d) for d in values.get("channels", [])]
        values["warnings"] = [RunWarning.from_dict(d) for d in values.get("warnings", [])]
        return Run(**values)
    except (TypeError, AttributeError) as error:
        raise BadInputError(f"{source}/{RUN_JSON} has a field of the wrong form: {error}") from None


def _jsonable(value: Any) -> Any:
    """Numbers of NumPy and paths as JSON has them; what isn't finite as null."""
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_jsonable(item) for item in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    return str(value)


def _parquet(table: pa.Table, name: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(tables.conform(table, name), sink, compression="zstd")
    return sink.getvalue()


def _write_zip(target: Path, files: dict[str, bytes]) -> None:
    partial = target.with_name(f".{target.name}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    partial.replace(target)
