"""Rows of ``units`` as a Run is recorded or analysed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from jouletrace.run import tables
from jouletrace.run.model import MODEL_UNIT
from jouletrace.run.recording_names import IDLE_NAME


class Units:
    """Rows by id, in the order in which they were added. New ones have the ids after the highest so far.

    Attributes:
        rows: Of the table.
    """

    def __init__(self, before: Units | None = None) -> None:
        """Without rows; numbered on from those ``before``."""
        self.rows: dict[int, Mapping[str, Any]] = {}
        self._last: int = MODEL_UNIT if before is None else before._last
        self._ids: dict[tuple[Any, ...], int] = {}

    def add(
        self, level: str, name: str, parent: int | None = MODEL_UNIT, *, id: int | None = None, **columns: Any
    ) -> int:
        """Add a unit; returns its id."""
        id = self._last + 1 if id is None else id
        self.keep([{"id": id, "parent": parent, "level": level, "name": name, **columns}])
        return id

    def after(self, ids: Iterable[int]) -> None:
        """Leave these ids to rows that are added with theirs."""
        self._last = max([self._last, *ids])

    def keep(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over rows as they are, in place of those with the same ids."""
        for row in rows:
            self.rows[row["id"]] = row
            self._last = max(self._last, row["id"])

    def once(self, key: tuple[Any, ...], level: str, name: str, parent: int, count: int = 0, **columns: Any) -> int:
        """The id of the unit of a key, added when it is first asked for; ``count`` is added to how often it runs."""
        if key not in self._ids:
            self._ids[key] = self.add(level, name, parent, **columns)
        own = self.rows[self._ids[key]]
        self.rows[self._ids[key]] = {**own, "count": (own.get("count") or 0) + count or None}
        return self._ids[key]

    def idle(self, top: int = MODEL_UNIT) -> int:
        """Add the unit for the time in which no kernel runs."""
        return self.add("op", IDLE_NAME, top, count=1)

    def table(self) -> pa.Table:
        """The table ``units``."""
        return tables.from_rows([dict(row) for row in self.rows.values()], "units")
