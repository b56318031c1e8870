"""What ``run.json`` holds: everything of a Run but its tables, as JSON and back."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.info import ChannelInfo, DeviceInfo, Record, RunWarning, check_types
from jouletrace.run.model import Run

FORMAT = "jouletrace-run"
SCHEMA_VERSION = (1, 1)
"""Major and minor. A newer minor opens (unknown fields are ignored); a newer major does not."""

RUN_JSON = "run.json"

_RECORDS: dict[str, type[Record]] = {"devices": DeviceInfo, "channels": ChannelInfo, "warnings": RunWarning}


def encode(run: Run, checksums: dict[str, int] | None = None) -> bytes:
    """The text of ``run.json``; ``checksums`` are the CRC-32 of the files beside it, by name."""
    header: dict[str, Any] = {"format": FORMAT, "schema_version": f"{SCHEMA_VERSION[0]}.{SCHEMA_VERSION[1]}"}
    for f in fields(run):
        if f.name in tables.TABLES:
            continue
        value = getattr(run, f.name)
        header[f.name] = [item.to_dict() for item in value] if f.name in _RECORDS else value
    header["checksums"] = checksums or {}
    return json.dumps(jsonable(header), indent=1, allow_nan=False).encode()


def decode(data: bytes, where: str) -> tuple[Run, dict[str, int]]:
    """A Run without tables, and those checksums of its files that are numbers, from the text of ``run.json``.

    Raises:
        BadInputError: If it isn't one, is of a newer major version, or a field has the wrong form.
            ``where`` names the file.
    """
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadInputError(f"{where} is not a jouletrace Run (no format {FORMAT!r})")
    version = str(header.get("schema_version", "?"))
    try:
        major = int(version.split(".", maxsplit=1)[0])
    except ValueError:
        raise BadInputError(f"{where} has an unreadable schema_version {version[:40]!r}") from None
    if major > SCHEMA_VERSION[0]:
        raise BadInputError(
            f"{where} was written in format {version[:40]}, and this jouletrace reads up to "
            f"{SCHEMA_VERSION[0]}.x: upgrade jouletrace"
        )
    known = {f.name for f in fields(Run)} - set(tables.TABLES)
    values = {"id": "", **{key: value for key, value in header.items() if key in known}}
    try:
        for name, record in _RECORDS.items():
            values[name] = [record.from_dict(item) for item in values.get(name, [])]
        run = Run(**values)
        check_types(run)
    except (TypeError, AttributeError) as error:
        raise BadInputError(f"{where} has a field of the wrong form: {error}") from None
    checksums = header.get("checksums")
    found = checksums.items() if isinstance(checksums, dict) else ()
    return run, {name: crc for name, crc in found if isinstance(crc, int) and not isinstance(crc, bool)}


def jsonable(value: Any) -> Any:
    """Arrays and numbers of NumPy and paths as JSON has them; what isn't finite as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int) or value is None:
        return value
    return str(value)
