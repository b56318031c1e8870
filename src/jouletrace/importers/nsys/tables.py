"""Columns of an nsys SQLite export as NumPy arrays, whatever its version has and lacks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.importers.base import Left

Ints = NDArray[np.int64]

_ROWS = 16384
"""Rows fetched at a time: what they take as Python objects is all that is held of them."""

_PATIENCE_S = 2.0
"""How long to wait for a program that has the file locked."""

_ERRORS = (sqlite3.Error, UnicodeError)
"""What a damaged file leads to; its very names of tables may be no text."""


class Database:
    """An SQLite file, opened for reading; any table and any column may be missing.

    Attributes:
        columns: Names of the columns of each table, as they are spelt there.
    """

    def __init__(self, path: Path, left: Left) -> None:
        self._path = path
        self._left = left
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)
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
        """Whether there is such a table, with all these columns."""
        return set(columns) <= set(self.columns.get(table, ()))

    def count(self, table: str) -> int:
        """How many rows a table has; 0 if it can't be read."""
        try:
            return int(self._connection.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()[0])
        except _ERRORS:
            return 0

    def numbers(self, table: str, columns: Sequence[str], where: str = "") -> dict[str, Ints]:
        """Integer columns, -1 where null or where the table has no such column.

        Of a damaged table, the rows before the damage; the damage is counted.
        """
        there = [column for column in columns if column in self.columns.get(table, ())]
        if not there:
            return {column: np.empty(0, np.int64) for column in columns}
        try:
            found = self._fetch(table, [f"COALESCE({_quoted(column)}, -1)" for column in there], where)
        except (ValueError, TypeError, OverflowError):  # something in it is text, or larger than an integer
            casts = [f"COALESCE(CAST({_quoted(column)} AS INTEGER), -1)" for column in there]
            found = self._fetch(table, casts, where)
        arrays = dict(zip(there, found, strict=True))
        n = len(found[0])
        return {column: arrays[column] if column in arrays else np.full(n, -1, np.int64) for column in columns}

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        """Rows of a small table; None in the place of a column that it doesn't have."""
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
        """The texts of a column that aren't null, with the ``rowid`` of each, in its order."""
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

    def _fetch(self, table: str, terms: list[str], where: str) -> list[Ints]:
        parts: list[list[Ints]] = [[] for _ in terms]
        try:
            cursor = self._connection.execute(f"SELECT {', '.join(terms)} FROM {_quoted(table)} {where}")
            while rows := cursor.fetchmany(_ROWS):
                for part, values in zip(parts, zip(*rows, strict=True), strict=True):
                    part.append(np.array(values, np.int64))
        except _ERRORS as error:
            self._damaged(table, error)
        found: list[Ints] = []
        for part in parts:
            found.append(np.concatenate(part) if part else np.empty(0, np.int64))
            part.clear()  # so that one column at a time is there twice
        return found

    def _damaged(self, table: str, error: Exception) -> None:
        self._left.add("damaged_table", f"tables are damaged, and what follows in them is lost ({error})", 1, table)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
