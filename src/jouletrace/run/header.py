"""The content of ``run.json``: a Run without its tables, to JSON and back, and the checksums of all its files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import msgspec

from jouletrace.errors import BadInputError
from jouletrace.known_secrets import refresh
from jouletrace.run import old, tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.forms import FREE, ClockPair, SensorResponse
from jouletrace.run.info import Integer
from jouletrace.run.limits import DEEPEST_JSON, MOST_JSON_BYTES, MOST_JSON_VALUES
from jouletrace.run.masking import masked_all
from jouletrace.run.model import Run
from jouletrace.run.places import FORMAT, MAJOR, VERSION
from jouletrace.run.sound import check_recordings

Checksums = dict[str, str | int]
"""By file name: SHA-256 in hexadecimal, or CRC-32 as a number in old Runs."""

_BLANK = b"0" * 64
"""Placeholder in ``run.json`` for its own checksum while that is computed."""


def checksum(parts: Iterable[bytes]) -> str:
    """SHA-256 of a file given in pieces."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def matches(parts: Iterable[bytes], stated: str | int) -> bool:
    """True if a file given in pieces matches a checksum."""
    return checksum(parts) == stated if isinstance(stated, str) else old.crc32(parts) == stated


def is_sealed(text: bytes) -> bool | None:
    """True if the text of ``run.json`` matches its own checksum; None if it contains none."""
    around = _around(text)
    if around is None:
        return None
    before, stated, after = around
    return checksum([before, _BLANK, after]) == stated.decode()


def _around(text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The text before its own checksum, which is the last entry of that name, the checksum, and the text after it."""
    last = None
    # Quotes inside a JSON string are escaped as \\", so only a key matches this pattern.
    for last in re.finditer(rb'"run\.json": "([0-9a-f]{64})"', text):  # noqa: B007
        pass
    return None if last is None else (text[: last.start(1)], last[1], text[last.end(1) :])


_VERSION = re.compile(r"([1-9]\d{0,8})(?:\.\d+)?", re.ASCII)
_DIGEST = re.compile("[0-9a-f]{64}")
_STEP = re.compile(r"\[(?:\d+|\.\.\.)\]|\.\w+")
"""A step of msgspec's path to a value: an index, a key that isn't named, or a field."""

_MOST_SAID = 60
"""Characters of a wrong value in a message."""

_RECORDS = ("devices", "channels", "warnings")
_FIELDS = [f.name for f in fields(Run) if f.init and f.name not in tables.TABLES]
_TYPES = {name: hint for name, hint in get_type_hints(Run, include_extras=True).items() if name in _FIELDS}
_TYPES |= {"created_ns": Integer, "clock_pairs": list[ClockPair], **dict.fromkeys(FREE, dict[str, Any])}


def encode(run: Run, checksums: Checksums | None = None) -> bytes:
    """The text of ``run.json`` with secrets masked; ``checksums`` are those of the other files, by name."""
    refresh()
    header: dict[str, Any] = {"format": FORMAT, "schema_version": VERSION}
    header = masked_all(header | plain_fields(run))
    header["checksums"] = {**(checksums or {}), RUN_JSON: _BLANK.decode()}
    text = json.dumps(header, indent=1, allow_nan=False).encode()
    before, _, after = _around(text) or (text, b"", b"")
    return before + checksum([text]).encode() + after


def plain_fields(run: Run) -> dict[str, Any]:
    """All of a Run but its tables, as values of JSON by name."""
    values = {name: getattr(run, name) for name in _FIELDS}
    return {
        name: jsonable([item.to_dict() for item in value] if name in _RECORDS else value)
        for name, value in values.items()
    }


def decode(data: bytes, where: str) -> tuple[Run, Checksums]:
    """A Run without tables, and the checksums of its files, from the text of ``run.json``.

    Raises:
        BadInputError: If it isn't a Run, has a newer major version, or a field has the wrong form.
            ``where`` names the file.
    """
    header = _parse(data, where)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadInputError(f"{where} is not a jouletrace Run (no format {FORMAT!r})")
    version = str(header.get("schema_version", "?"))
    if not (stated_version := _VERSION.fullmatch(version)):
        raise BadInputError(f"{where} has an unreadable schema_version {version[:40]!r}")
    major = int(stated_version[1])
    if major > MAJOR:
        raise BadInputError(
            f"{where} was written in format {version[:40]}, and this jouletrace reads up to "
            f"{MAJOR}.x: upgrade jouletrace"
        )
    if major < MAJOR:
        header = old.upgraded(header)
    stated = header.get("checksums")
    valid = stated.items() if isinstance(stated, dict) else ()
    checksums = {name: value for name, value in valid if type(value) is int or _DIGEST.fullmatch(str(value))}
    run = _typed(header, where)
    try:
        check_recordings(run)
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from None
    return run, checksums


def _parse(data: bytes, where: str) -> Any:
    """The JSON, after a check of its size: every value but the first follows one of ``,[{``."""
    if len(data) > MOST_JSON_BYTES or sum(map(data.count, (b",", b"[", b"{"))) > MOST_JSON_VALUES:
        raise BadInputError(f"{where} has more than {MOST_JSON_VALUES} values or {MOST_JSON_BYTES >> 20} MiB: refused")
    try:
        try:
            header = msgspec.json.decode(data)
        except msgspec.DecodeError:
            if rb"\ud" not in data:
                raise
            header = jsonable(json.loads(data))  # lone surrogates, which older versions wrote
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInputError(f"{where} is not valid JSON: {error}") from None
    _check_values(header, where)
    return header


def _check_values(header: Any, where: str) -> None:
    """Refuse implausibly deep nesting, and integers that no table can hold."""
    level: list[Any] = [header]
    for _ in range(DEEPEST_JSON):
        for value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise BadInputError(f"{where} holds a number of more than 64 bits: {str(value)[:20]}...")
        inner = [
            value.values() if isinstance(value, dict) else value
            for value in level
            if value and isinstance(value, dict | list)
        ]
        if not inner:
            return
        level = [value for values in inner for value in values]
    raise BadInputError(f"{where} is nested more than {DEEPEST_JSON} deep: refused")


def _typed(header: dict[str, Any], where: str) -> Run:
    """The Run, with each field checked against its type, and each free dictionary against its form."""
    if (wrong := wrong_field(header)) is not None:
        raise BadInputError(f"{where} has a field of the wrong form: {wrong}")
    return Run(**{"id": "", **values_of(header)})


def values_of(header: dict[str, Any]) -> dict[str, Any]:
    """The fields of a Run from the values of their JSON, by name, those alone that are there.

    Raises:
        msgspec.ValidationError: If one is of the wrong form.
    """
    return {name: msgspec.convert(header[name], kind) for name, kind in _TYPES.items() if name in header}


@dataclass(frozen=True)
class WrongField:
    """A field that no reader of a Run accepts.

    Attributes:
        path: Names and numbers that lead to it, from the top of ``run.json``.
        value: What it holds; None if it is missing.
        reason: What is wrong with it.
    """

    path: tuple[str | int, ...]
    value: Any
    reason: str

    @property
    def name(self) -> str:
        """Where it is, as in ``channels[0].period_s``."""
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join(char if char.isprintable() else repr(char)[1:-1] for char in steps.removeprefix("."))

    def __str__(self) -> str:
        said = repr(self.value)
        return f"{self.name} = {said if len(said) <= _MOST_SAID else said[:_MOST_SAID] + '...'}: {self.reason}"


def wrong_field(header: dict[str, Any]) -> WrongField | None:
    """The first field of ``run.json``, given as JSON's values, that no reader accepts; None if all are right."""
    for name, kind in _TYPES.items():
        if name in header and (wrong := _wrong_within(header[name], kind, (name,))):
            return wrong
    for name, form in FREE.items():
        if wrong := _wrong_within(header.get(name, {}), form, (name,)):
            return wrong
    for i, channel in enumerate(header.get("channels", [])):
        response, path = channel.get("response", {}), ("channels", i, "response")
        if wrong := _wrong_within(response, SensorResponse, path):
            return wrong
        if broken := _broken_rule(response):
            return WrongField(path, response, broken)
    return None


def _wrong_within(value: Any, kind: Any, path: tuple[str | int, ...]) -> WrongField | None:
    """The first part of a value that isn't as its type says; ``path`` leads to the value."""
    if not (said := _complaint(value, kind)):
        return None
    inner = value
    for step in _STEP.findall(said.partition(" - at `$")[2]):
        key: str | int
        if step == "[...]":
            key = _wrong_key(inner, lambda: _complaint(value, kind))
        else:
            key = int(step[1:-1]) if step[0] == "[" else step[1:]
        path, inner = (*path, key), inner[key]
    return WrongField(path, inner, said)


def _complaint(value: Any, kind: Any) -> str:
    """The complaint of msgspec about a value of a wrong type; "" if it is right."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _wrong_key(holder: dict[str, Any], complaint: Callable[[], str]) -> str:
    """The first key of a dictionary whose value gives a complaint about what contains it; msgspec doesn't name it."""
    items = dict(holder)
    try:
        for key, item in items.items():
            holder.clear()
            holder[key] = item
            if complaint():
                return key
    finally:
        holder.clear()
        holder.update(items)
    raise KeyError("no value of it is wrong alone")


def _broken_rule(response: dict[str, Any]) -> str:
    """Rules beyond types: a response that isn't empty has a period, and its covariance is square; "" if they hold."""
    if response and "period_s" not in response:
        return "its period_s is missing"
    rows = response.get("covariance")
    if rows and any(len(row) != len(rows) for row in rows):
        return "its covariance is not square"
    return ""


def jsonable(value: Any) -> Any:
    """NumPy values and paths as JSON values; non-finite numbers become null, lone surrogates are escaped."""
    if isinstance(value, dict):
        return {_text(str(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) or value is None else _text(str(value))


def _text(text: str) -> str:
    """The text with code points escaped that UTF-8 can't encode (surrogates of a file name, say)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
