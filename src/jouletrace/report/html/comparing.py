"""Comparisons in the report: changes with their intervals drawn, verdicts, what is on one side only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jouletrace.report.comparison import content
from jouletrace.report.comparison.data import DIFFERENT, INCONCLUSIVE, SAME, Comparison
from jouletrace.report.document import Cell, Document, Footnotes, Section
from jouletrace.report.html.tables import MOST_ROWS, Table, of_section

_KEYS = {"per iteration": "metric"}
_LEAST_REACH = 0.01
"""Change to which bars reach at least, so that next to nothing doesn't look like much."""


@dataclass(frozen=True)
class Compared:
    """A comparison as the template takes it.

    Attributes:
        id: Unique in the report.
        document: Title, sides, notes and warnings in words.
        tables: The model's figures, then the parts of each level, those that differ first.
    """

    id: str
    document: Document
    tables: list[Table]

    @property
    def verdicts(self) -> str:
        """How many of the model's figures got which verdict, for a reader in a hurry."""
        verdicts = [row[-2].full for row in self.tables[0].rows] if self.tables else []
        counts = {verdict: verdicts.count(verdict) for verdict in (*DIFFERENT, SAME, INCONCLUSIVE)}
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def compared(found: Comparison, number: int, marks: Footnotes | None = None) -> Compared:
    """A comparison for the page: every row of the model, those of parts that differ first."""
    document = content.document(found, top=MOST_ROWS, marks=marks)
    return Compared(f"compared{number}", document, [_table(section) for section in document.sections])


def _table(section: Section) -> Table:
    """A table of the terminal, with changes drawn: as far as half beyond the largest."""
    table = of_section(section, section.id)
    table.headings = [replace(h, key=_KEYS.get(h.name) or h.key.lower()) for h in table.headings]
    place = [heading.key for heading in table.headings].index("change")
    changes = [abs(row[place].value or 0.0) for row in table.rows]
    for row in table.rows:
        row[place].bar = _bar(row[place], max([_LEAST_REACH, *(1.5 * change for change in changes)]))
    return table


def _bar(change: Cell, reach: float) -> tuple[float, ...] | None:
    """A change's interval from zero in the middle; what reaches further is cut off at the edge."""
    if change.value is None or change.low is None or change.high is None:
        return None
    ends = (change.low, change.high, change.value, 0.0)
    return tuple(round(50 + 50 * min(max(x / reach, -1.0), 1.0), 2) for x in ends)
