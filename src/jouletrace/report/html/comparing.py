"""Comparisons in the report: changes with their intervals drawn, verdicts, what is on one side only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jouletrace.report.comparison import content
from jouletrace.report.comparison.data import BETTER, DIFFERENT, INCONCLUSIVE, SAME, WORSE, Comparison, Row
from jouletrace.report.comparison.words import flag, percent, reason, signed
from jouletrace.report.document import Document, Footnotes, printable
from jouletrace.report.html.tables import MOST_ROWS, Cell, Heading, Table, kernels
from jouletrace.report.metrics import metric
from jouletrace.report.parts import LEVELS
from jouletrace.report.scale import NONE, figure
from jouletrace.run import Estimate

_KINDS = {BETTER: "better", WORSE: "worse"}
_LEAST_REACH = 0.01
"""Change to which bars reach at least, so that next to nothing doesn't look like much."""


@dataclass(frozen=True)
class Compared:
    """A comparison as the template takes it.

    Attributes:
        id: Unique in the report.
        document: Title, sides, notes and warnings in words.
        tables: The model's figures, then the parts of each level, those that differ first.
        footnotes: Why verdicts are open and what is to be known of rows, by mark.
    """

    id: str
    document: Document
    tables: list[Table]
    footnotes: list[str]

    @property
    def verdicts(self) -> str:
        """How many of the model's figures got which verdict, for a reader in a hurry."""
        verdicts = [row[-2].full for row in self.tables[0].rows] if self.tables else []
        counts = {verdict: verdicts.count(verdict) for verdict in (*DIFFERENT, SAME, INCONCLUSIVE)}
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def compared(found: Comparison, number: int, marks: Footnotes | None = None) -> Compared:
    """A comparison for the page: every row of the model, the costliest of parts."""
    footnotes = Footnotes(marks)
    model = [row for row in found.rows if row.level == "model"]
    tables = [_table("model", "", model, footnotes)] if model else []
    for level in content.ORDER:
        rows = content.of_level(found, level)
        if rows:
            title = "Kernels" if level == "kernel" else LEVELS.get(level, level)
            tables.append(_table(level, title, content.ranked(rows), footnotes))
    document = content.document(found, top=1)
    return Compared(f"compared{number}", document, tables, [printable(line) for line in footnotes.lines()])


def _table(level: str, title: str, rows: Sequence[Row], footnotes: Footnotes) -> Table:
    shown = rows[:MOST_ROWS]
    first = "per iteration" if level == "model" else content.HEADINGS.get(level, level)
    headings = [Heading(first, "metric" if level == "model" else level)]
    if level == "model":
        columns = [[Cell(metric(row.metric).label.strip(), full=row.metric) for row in shown]]
    else:
        names = kernels([row.name for row in shown]) if level == "kernel" else [_plain(row.name) for row in shown]
        columns = [names]
        if any(row.where and row.where != row.name for row in shown):
            headings.append(Heading("module", "module"))
            columns.append([_plain(row.where) for row in shown])
        headings.append(Heading("metric", "metric"))
        columns.append([Cell(metric(r.metric).short or metric(r.metric).label, full=r.metric) for r in shown])
    reach = _reach(shown)
    headings += [Heading("A", "a", numeric=True), Heading("B", "b", numeric=True)]
    headings += [Heading("change", "change", numeric=True), Heading("verdict", "verdict")]
    headings += [Heading("detectable", "detectable", numeric=True)]
    table = Table(level, title, headings)
    for n, row in enumerate(shown):
        sides = [_figure(one, metric(row.metric).unit) for one in (row.a, row.b)]
        remarks = [*([reason(row.reason)] if row.verdict == INCONCLUSIVE else []), *map(flag, row.flags)]
        marks = " ".join(footnotes.mark(text) for text in remarks)
        said = f"{content.MARKS.get(row.verdict, '')}{row.verdict}{f' {marks}' if marks else ''}"
        verdict = Cell(said, title="; ".join(remarks), full=row.verdict, kind=_KINDS.get(row.verdict, ""))
        least = Cell(NONE) if row.detectable is None else Cell(percent(row.detectable), row.detectable)
        table.rows.append([*(column[n] for column in columns), *sides, _change(row.change, reach), verdict, least])
    if len(rows) > len(shown):
        table.notes.append(
            f"{len(rows) - len(shown)} more rows, those that differ least: jouletrace compare lists them."
        )
    return table


def _plain(text: str) -> Cell:
    shown = printable(text.removeprefix("aten."))
    return Cell(shown, full=printable(text) if shown != text else "")


def _figure(estimate: Estimate, unit: str) -> Cell:
    if estimate.value is None:
        return Cell(NONE)
    return Cell(figure(estimate, unit), estimate.value, estimate.low, estimate.high)


def _change(change: Estimate, reach: float) -> Cell:
    """A change with its interval drawn from zero in the middle; what reaches further is cut off at the edge."""
    if change.value is None:
        return Cell(NONE)
    bar = None
    if change.low is not None and change.high is not None:
        ends = (change.low, change.high, change.value, 0.0)
        bar = tuple(round(50 + 50 * min(max(x / reach, -1.0), 1.0), 2) for x in ends)
    return Cell(signed(change), change.value, change.low, change.high, bar)


def _reach(rows: Sequence[Row]) -> float:
    """To which change bars reach: half as far again as the largest change."""
    return max([_LEAST_REACH, *(1.5 * abs(row.change.value) for row in rows if row.change.value is not None)])
