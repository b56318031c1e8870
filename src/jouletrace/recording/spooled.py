"""Rows of tables that are written to disk at once and kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from jouletrace.recording.collector import written_to
from jouletrace.run import tables
from jouletrace.run.spool import SpoolWriter
from jouletrace.tracing.trace import KINDS, Trace

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


_SPAN_KIND = {"kernel": "kernel", "memcpy": "memcpy", "memset": "memcpy"}


def span_rows(
    trace: Trace, units: Sequence[int], parents: Sequence[int], first_id: int, device: str
) -> list[dict[str, object]]:
    """One row per entry of a trace; ``units`` and ``parents`` are the ids of each entry's unit and enclosing span."""
    configured = trace.source == "cupti"
    rows: list[dict[str, object]] = []
    for i, (name, kind) in enumerate(zip(trace.name.tolist(), trace.kind.tolist(), strict=True)):
        kernel = configured and KINDS[kind] == "kernel"
        row: dict[str, object] = {
            "id": first_id + i,
            "parent": parents[i],
            "kind": _SPAN_KIND[KINDS[kind]],
            "name": trace.names[name],
            "device": device,
            "lane": f"stream {trace.stream[i]}",
            "start_ns": int(trace.start_ns[i]),
            "end_ns": int(trace.end_ns[i]),
            "unit": units[i],
            "correlation": int(trace.correlation[i]) or None,
            "graph_node": int(trace.graph_node[i]) or None,
            "registers": int(trace.registers[i]) if kernel else None,
            "shared_static_bytes": int(trace.shared_static[i]) if kernel else None,
            "shared_dynamic_bytes": int(trace.shared_dynamic[i]) if kernel else None,
            "bytes": None if kernel or not configured else int(trace.bytes[i]),
        }
        for field, shape in (("grid", trace.grid[i]), ("block", trace.block[i])):
            row |= {f"{field}_{axis}": int(shape[k]) if kernel else None for k, axis in enumerate("xyz")}
        rows.append(row)
    return rows
