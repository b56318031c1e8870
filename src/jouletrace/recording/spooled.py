"""Rows of tables that are written to disk at once and kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from jouletrace.recording.collector import written_to
from jouletrace.run import tables
from jouletrace.run.spool import SpoolWriter
from jouletrace.tracer.process_trace import Launched
from jouletrace.tracer.rows import COPY, KERNEL, MOST_BYTES, SET

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
        self._place = folder / table
        with written_to(self._place):
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
        with written_to(self._place):
            self._spool.append({key: [row[key] for row in rows] for key in rows[0]})
        if len(self._fresh) > _MOST_FRESH:
            self.table()

    def table(self) -> pa.Table:
        """All rows so far; only rows added since the last call are converted."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._whole = tables.concat([self._whole, tables.from_rows(fresh, self._name)], self._name)
        return self._whole

    def close(self) -> None:
        """End the stream on disk; the rows stay in memory."""
        with written_to(self._place):
            self._spool.close()


_SPAN_KINDS = {KERNEL: "kernel", COPY: "memcpy", SET: "memcpy"}

_SHAPE = (
    *(f"grid_{axis}" for axis in "xyz"),
    *(f"block_{axis}" for axis in "xyz"),
    *("registers", "shared_static_bytes", "shared_dynamic_bytes"),
)


def span_rows(
    work: Launched, units: Sequence[int], parents: Sequence[int], first_id: int, device: str
) -> list[dict[str, object]]:
    """One row per launch; ``units`` and ``parents`` are the ids of the unit and the enclosing span of each."""
    rows: list[dict[str, object]] = []
    for i, (kind, extra) in enumerate(zip(work.kind.tolist(), work.extra.tolist(), strict=True)):
        shaped = kind == KERNEL and extra > 0
        row: dict[str, object] = {
            "id": first_id + i,
            "parent": parents[i],
            "kind": _SPAN_KINDS[kind],
            "name": work.names[work.name[i]],
            "device": device,
            "lane": f"stream {work.stream[i]}",
            "start_ns": int(work.start_ns[i]),
            "end_ns": int(work.end_ns[i]),
            "unit": units[i],
            "correlation": int(work.correlation[i]),
            "bytes": None if kind == KERNEL or extra == MOST_BYTES else extra,
        }
        shape: Sequence[int | None] = work.shapes[extra] if shaped else [None] * len(_SHAPE)
        rows.append(row | dict(zip(_SHAPE, shape, strict=True)))
    return rows
