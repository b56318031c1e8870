"""Columns of an nsys SQLite export as NumPy arrays, whatever its version contains, and its GPUs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left
from jouletrace.run import DeviceInfo
from jouletrace.run.files import open_regular

Ints = NDArray[np.signedinteger[Any]]

_ROWS = 1 << 15
"""Rows fetched at a time: more would take memory as Python objects, and smaller arrays would fragment it."""

_WIDE = frozenset({"start", "end", "timestamp", "globalTid", "globalPid", "rowid", "value"})
"""Columns that need 64 bits; others take 32 where they fit."""

_PATIENCE_S = 2.0
"""How long to wait for a program that has locked the file."""

_LONGEST_BYTES = 16 << 20
"""Largest size of a cell or a row in bytes."""

_ERRORS = (sqlite3.Error, UnicodeError)
"""Exceptions of a damaged file, whose very table names may not be text."""

_GPU = ("id", "name", "busLocation", "totalMemory", "uuid", "cuDevice", "chipName", "smCount")


class Database:
    """An SQLite file, opened for reading; any table and any column may be missing.

    Attributes:
        columns: Names of the columns of each table, in the file's spelling.
    """

    def __init__(self, path: Path, left: Left) -> None:
        self._path = path
        self._left = left
        try:
            with open_regular(path):  # SQLite would wait for a pipe
                pass
        except OSError as error:
            raise BadInputError(f"cannot read {path}: {error.strerror or error}") from None
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_BYTES)  # a column may be computed
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            names = [
                name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            self.columns = {
                str(name): [str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(name)})")]
                for name in names
            }
        except _ERRORS as error:
            raise BadInputError(f"cannot read {path}: {error}") from None

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        """True if such a table exists, with all these columns."""
        return set(columns) <= set(self.columns.get(table, ()))

    def count(self, table: str) -> int:
        """Number of rows of a table; 0 if it can't be read."""
        try:
            return int(self._connection.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()[0])
        except _ERRORS:
            return 0

    def numbers(self, table: str, columns: Sequence[str], where: str = "") -> dict[str, Ints]:
        """Integer columns, -1 where null or where the table lacks the column; of 32 bits where they fit.

        Of a damaged table, the rows before the damage are returned; the damage is counted.
        """
        there = [column for column in columns if column in self.columns.get(table, ())]
        if not there:
            return {column: np.empty(0, np.int64) for column in columns}
        try:
            found = self._fetch(table, there, "COALESCE({}, -1)", where)
        except (ValueError, TypeError, OverflowError):  # it contains text, or an integer that is too large
            found = self._fetch(table, there, "COALESCE(CAST({} AS INTEGER), -1)", where)
        arrays = dict(zip(there, found, strict=True))
        n = len(found[0])
        return {column: arrays[column] if column in arrays else _missing(n, column) for column in columns}

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        """Rows of a small table; None in the place of a column that it lacks."""
        there = self.columns.get(table)
        if there is None:
            return []
        terms = ", ".join(_quoted(column) if column in there else "NULL" for column in columns)
        rows: list[tuple[object, ...]] = []
        try:
            rows.extend(self._connection.execute(f"SELECT {terms} FROM {_quoted(table)}"))
        except _ERRORS as error:
            self._damaged(table, error)
        return rows

    def keyed_texts(self, table: str, column: str) -> tuple[Ints, list[str]]:
        """The texts of a column that aren't null, with the ``rowid`` of each, in that order."""
        keys: list[int] = []
        found: list[str] = []
        query = f"SELECT rowid, {_quoted(column)} FROM {_quoted(table)} WHERE {_quoted(column)} NOT NULL ORDER BY rowid"
        try:
            for key, value in self._connection.execute(query):
                keys.append(key)
                found.append(str(value))
        except _ERRORS as error:
            self._damaged(table, error)
        return np.array(keys, np.int64), found

    def strings(self, ids: Ints) -> dict[int, str]:
        """Texts of ``StringIds`` by id."""
        found: dict[int, str] = {}
        if not self.has("StringIds", "id", "value"):
            return found
        try:
            for start in range(0, len(ids), 500):
                some = ids[start : start + 500].tolist()
                marks = ", ".join("?" * len(some))
                query = f"SELECT id, value FROM StringIds WHERE id IN ({marks})"
                found.update((int(i), str(value)) for i, value in self._connection.execute(query, some))
        except (*_ERRORS, ValueError) as error:
            self._damaged("StringIds", error)
        return found

    def _fetch(self, table: str, columns: list[str], term: str, where: str) -> list[Ints]:
        found: list[list[Ints]] = [[_missing(0, column)] for column in columns]
        terms = ", ".join(term.format(_quoted(column)) for column in columns)
        try:
            cursor = self._connection.execute(f"SELECT {terms} FROM {_quoted(table)} {where}")
            while rows := cursor.fetchmany(_ROWS):
                for name, parts, values in zip(columns, found, zip(*rows, strict=True), strict=True):
                    parts.append(_packed(name, values))
        except _ERRORS as error:
            self._damaged(table, error)
        return [np.concatenate(found.pop(0)) for _ in columns]

    def _damaged(self, table: str, error: Exception) -> None:
        self._left.add("damaged_table", f"tables are damaged, and the rest of them is lost ({error})", 1, table)


class Devices:
    """The GPUs of an export; ``used`` contains those with work."""

    def __init__(self, database: Database, options: ImportOptions) -> None:
        self._gpus = {row[0]: dict(zip(_GPU, row, strict=True)) for row in database.rows("TARGET_INFO_GPU", _GPU)}
        self._by_process = {
            (pid, cuda): gpu for gpu, cuda, pid in database.rows("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
        }
        self._by_number = {gpu["cuDevice"]: number for number, gpu in self._gpus.items() if gpu["cuDevice"] is not None}
        self._name = options.device
        self._used: dict[str, DeviceInfo] = {}
        self._codes: dict[str, int] = {}

    @property
    def ids(self) -> list[str]:
        """Ids of the devices so far, by their codes."""
        return list(self._codes)

    def codes(self, process: Ints, device: Ints) -> Ints:
        """The code of the device of each row, from its process (``globalPid``) and CUDA device number."""
        key = (process.astype(np.int64) << 8) ^ (device & 0xFF)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        found = np.array([self._code_of_cuda(int(process[i]), int(device[i])) for i in first], np.int64)
        codes: Ints = found[inverse.reshape(-1)]
        return codes

    def gpu(self, number: int) -> str:
        """The id of a GPU by its number in the export."""
        gpu = self._gpus.get(number)
        return self._id(number, None if gpu is None else number)

    def used(self) -> list[DeviceInfo]:
        """The devices with work or measurements."""
        return list(self._used.values())

    def _code_of_cuda(self, process: int, device: int) -> int:
        pid = (process >> 24) & 0xFFFFFF  # packed as in the export
        number = self._by_process.get((pid, device), self._by_number.get(device))
        return self._codes[self._id(device, number)]

    def _id(self, device: int, number: object) -> str:
        gpu = self._gpus.get(number, {})
        uuid = str(gpu.get("uuid") or "").removeprefix("GPU-")
        if set(uuid) <= set("0-"):
            uuid = ""
        name = f"GPU-{uuid}" if uuid else f"imported:{device}"
        if name not in self._used:
            memory = gpu.get("totalMemory")
            self._codes[name] = len(self._codes)
            self._used[name] = DeviceInfo(
                id=name,
                name=self._name or str(gpu.get("name") or f"device {device}"),
                index=device,
                pci_bus=str(gpu["busLocation"]) if gpu.get("busLocation") else None,
                memory_bytes=memory if isinstance(memory, int) else None,
                details={key: gpu[key] for key in ("chipName", "smCount") if gpu.get(key) is not None},
            )
        return name


def _packed(name: str, values: Sequence[int]) -> Ints:
    """Values of a column in 32 bits where they fit.

    Raises:
        TypeError, ValueError, OverflowError: If one isn't an integer of 64 bits.
    """
    packed = np.array(values, np.int64)
    narrow = name not in _WIDE and packed.min() >= -(1 << 31) and packed.max() < 1 << 31
    return packed.astype(np.int32) if narrow else packed


def _missing(n: int, column: str) -> Ints:
    return np.full(n, -1, np.int64 if column in _WIDE else np.int32)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
