"""Rows of ``units`` as a recording of kernels makes them."""

from __future__ import annotations

from typing import Any

from jouletrace.run import MODEL_UNIT
from jouletrace.run.recording_names import IDLE_NAME


class UnitRows:
    """Operators, kernels and sites, each added when it is first asked for.

    Attributes:
        rows: In the order of their ids, which begin with ``first_id``; those without a parent are below ``top``.
    """

    def __init__(self, first_id: int, top: int = MODEL_UNIT) -> None:
        self.rows: list[dict[str, Any]] = []
        self._first, self._top = first_id, top
        self._ids: dict[tuple[Any, ...], int] = {}

    def get(self, level: str, name: str, *key: Any, parent: int | None = None, count: int = 0, **columns: Any) -> int:
        """The id of the unit with this level and key; ``count`` is added to how often it runs, else null."""
        id = self._ids.setdefault((level, *key), self._first + len(self.rows))
        if id == self._first + len(self.rows):
            none = dict.fromkeys(("op", "shapes", "module", "phase", "call"))
            above = self._top if parent is None else parent
            row = {"id": id, "parent": above, "level": level, "name": name, "count": 0}
            self.rows.append({**row, **none, **columns})
        own = self.rows[id - self._first]
        own["count"] = (own["count"] or 0) + count or None
        return id

    def idle(self) -> None:
        """Add the unit for the time in which no kernel runs."""
        self.get("op", IDLE_NAME, count=1)
