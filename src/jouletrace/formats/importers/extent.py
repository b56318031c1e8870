"""The time range of an imported Run."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from jouletrace.analysis.imported_recording import span_text
from jouletrace.run import Run
from jouletrace.wing import kind_of

TIMES = {
    "spans": ("start_ns", "end_ns"),
    "samples": ("time_ns",),
    "windows": ("start_ns", "end_ns"),
    "requests": ("scheduled_ns", "sent_ns", "first_ns", "last_ns"),
    "steps": ("start_ns", "end_ns"),
}
"""Columns of times, by table."""


@dataclass(frozen=True)
class Extent:
    """The time range of a Run in ns; both None for a Run without times."""

    start_ns: int | None
    end_ns: int | None

    def said(self) -> str:
        """As text."""
        return span_text(self.start_ns, self.end_ns) if self.start_ns is not None and self.end_ns is not None else ""

    def after(self, by_ns: int) -> Extent:
        """The same, later."""
        if self.start_ns is None or self.end_ns is None:
            return self
        return Extent(self.start_ns + by_ns, self.end_ns + by_ns)

    def touches(self, other: Extent) -> bool:
        """True if the two overlap."""
        if self.start_ns is None or self.end_ns is None or other.start_ns is None or other.end_ns is None:
            return False
        return self.start_ns <= other.end_ns and other.start_ns <= self.end_ns


def extent(run: Run) -> Extent:
    """The time range of a Run."""
    edges = [pc.min_max(run.table(name)[column]) for name, columns in TIMES.items() for column in columns]
    known = [(edge["min"].as_py(), edge["max"].as_py()) for edge in edges if edge["min"].is_valid]
    if (kind := kind_of(run.workload)) is not None:
        known += kind.edges(run)
    if not known:
        return Extent(None, None)
    return Extent(min(first for first, _ in known), max(last for _, last in known))
