"""Rows of a table that are written to disk at once and kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.run import tables
from jouletrace.run.spool import SpoolWriter

_MOST_FRESH = 10_000
"""Largest number of rows kept as dictionaries; a table takes a tenth of their memory."""


class SpooledRows:
    """One table of a recording in progress.

    Args:
        folder: The spool.
        table: Name of the table.
        part: Part of a table that has several writers.

    Raises:
        RecorderDiedError: Here and in ``append``, if the rows can't be written.
    """

    def __init__(self, folder: Path, table: str, part: str = "") -> None:
        self._name = table
        self._folder = folder
        with self._written():
            self._spool = SpoolWriter(folder, table, part)
        self._whole = tables.empty(table)
        self._fresh: list[dict[str, object]] = []

    def __len__(self) -> int:
        return len(self._whole) + len(self._fresh)

    def append(self, rows: list[dict[str, object]]) -> None:
        """Add and write rows; all must have the same keys."""
        if not rows:
            return
        self._fresh += rows
        with self._written():
            self._spool.append({key: [row[key] for row in rows] for key in rows[0]})
        if len(self._fresh) > _MOST_FRESH:
            self.table()

    def table(self) -> pa.Table:
        """All rows so far; only rows added since the last call are converted."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._whole = tables.conform(
                pa.concat_tables([self._whole, tables.from_rows(fresh, self._name)]), self._name
            )
        return self._whole

    def close(self) -> None:
        """End the stream on disk; the rows stay in memory."""
        with self._written():
            self._spool.close()

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = self._folder / self._name
            raise RecorderDiedError(f"the recording can't be written to {place}: {error.strerror or error}") from None
