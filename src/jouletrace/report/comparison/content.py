"""From a comparison to the document that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.report.comparison.data import BETTER, DIFFERENT, INCONCLUSIVE, WORSE, Comparison, Row, Side
from jouletrace.report.comparison.words import flag, percent, reason, signed
from jouletrace.report.document import Column, Document, Footnotes, Section
from jouletrace.report.facts import SEPARATOR, SIMULATED
from jouletrace.report.metrics import metric
from jouletrace.report.parts import LEVELS
from jouletrace.report.scale import NBSP, NONE, cell, unit_for
from jouletrace.run.names import short_names

MARKS = {BETTER: "✓ ", WORSE: "✗ "}
"""In front of verdicts that are shown, so that colour isn't all that tells them."""

_UNMATCHED_SHOWN = 8
_PLACE = " in "
"""Stands between a part's name and the module it is in."""

ORDER = ("phase", "layer", "op", "kernel", "range")
"""Levels of parts as they are listed."""

HEADINGS = {"op": "operator"}
"""What a column of units is called where that isn't the name of their level."""


def document(found: Comparison, *, top: int, marks: Footnotes | None = None) -> Document:
    """Everything that is shown of a comparison; ``marks`` are the footnotes of what is shown with it."""
    marks = Footnotes(marks)
    titles = (found.a.title, found.b.title)
    title = f"A against B: {titles[0]}" if titles[0] == titles[1] else f"A: {titles[0]}  →  B: {titles[1]}"
    shown = Document(title, SIMULATED if found.simulated else "")
    shown.subtitle = [_side_line(found.a), _side_line(found.b)]
    model = [row for row in found.rows if row.level == "model"]
    if model:
        shown.sections.append(_model_section(model, marks))
    for level in ORDER:
        rows = of_level(found, level)
        if rows:
            shown.sections.append(_level_section(level, rows, top, marks))
    empty = sum(row.a.value is None and row.b.value is None for row in found.rows if row.level != "model")
    if empty:
        shown.facts.append(("Not listed", f"{empty} rows without a figure on either side: json and csv hold them"))
    for side, units in ((found.a, found.unmatched_a), (found.b, found.unmatched_b)):
        if units:
            shown.facts.append((f"Only in {side.name}", _listed(only(units))))
    for check in found.checks:
        shown.facts.append((f"Check {check.text}", f"{check.outcome.upper()}: {check.says}"))
    shown.facts += [("Note", note) for note in found.notes]
    if found.gain:
        text = f"the boards' sensors may differ by {percent(found.gain)}: that is in the intervals of power and energy"
        shown.facts.append(("Sensor gain", text))
    shown.facts.append(("Margin", f"{percent(found.margin)}: less counts as no difference"))
    shown.facts.append(("Method", found.method))
    shown.warnings = list(found.warnings)
    return shown.printable()


def of_level(found: Comparison, level: str) -> list[Row]:
    """Rows of a level; not those without any figure, nor operators in the place of kernels that aren't known."""
    ops = {_what(row) for row in found.rows if row.level == "op"} if level == "kernel" else set()
    rows = [row for row in found.rows if row.level == level and _what(row) not in ops]
    return [row for row in rows if row.a.value is not None or row.b.value is not None]


def _what(row: Row) -> tuple[object, ...]:
    return row.name, row.where, row.shapes, row.metric, row.a.value, row.b.value


def named(rows: Sequence[Row]) -> list[str]:
    """What rows are called: kernels by short names that tell those of one table apart."""
    short = short_names(row.name for row in rows if row.level == "kernel")
    return [short[row.name] if row.level == "kernel" else row.name.removeprefix("aten.") for row in rows]


def only(units: Sequence[tuple[str, str]]) -> list[str]:
    """Units of one side, each with its level; kernels by short names, with where they are."""
    kernels = [
        name.rpartition(_PLACE) if _PLACE in name else (name, "", "") for level, name in units if level == "kernel"
    ]
    short = short_names(name for name, *_ in kernels)
    shown = iter(f"kernel {short[name]}{place}{where}" for name, place, where in kernels)
    return [next(shown) if level == "kernel" else f"{level} {name}" for level, name in units]


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows that differ first, each kind by the size of the difference over all units of the metric."""
    largest: dict[str, float] = {}
    for row in rows:
        largest[row.metric] = max(largest.get(row.metric, 0.0), abs(row.difference.value or 0.0))

    def weight(row: Row) -> tuple[bool, float]:
        size = abs(row.difference.value or 0.0) / (largest[row.metric] or 1.0)
        return row.verdict not in DIFFERENT, -size

    return sorted(rows, key=weight)


def _side_line(side: Side) -> str:
    runs = f"{side.count} run{'s' if side.count != 1 else ''}"
    return SEPARATOR.join([f"{side.name}: {runs}", *side.devices])


def _columns() -> list[Column]:
    return [
        Column("A", numeric=True, brief=True),
        Column("B", numeric=True, brief=True),
        Column("change", numeric=True),
        Column("verdict"),
        Column("detectable", numeric=True, wide=2),
    ]


def _figures(row: Row, footnotes: Footnotes) -> list[str]:
    unit = unit_for([row.a.value if row.a.value is not None else row.b.value], metric(row.metric).unit)
    marks = [flag(code) for code in row.flags]
    if row.verdict == INCONCLUSIVE:
        marks.insert(0, reason(row.reason))
    verdict = " ".join([MARKS.get(row.verdict, "") + row.verdict, *(footnotes.mark(text) for text in marks)])
    sides = [
        f"{cell(one, unit)}{NBSP}{unit.name}".strip(NBSP) if one.value is not None else NONE for one in (row.a, row.b)
    ]
    least = NONE if row.detectable is None else percent(row.detectable)
    return [*sides, signed(row.change), verdict, least]


def _model_section(rows: Sequence[Row], marks: Footnotes) -> Section:
    section, footnotes = Section("", [Column("per iteration"), *_columns()], apart=True), Footnotes(marks)
    section.rows = [[metric(row.metric).label, *_figures(row, footnotes)] for row in rows]
    section.notes = footnotes.lines()
    return section


def _level_section(level: str, rows: Sequence[Row], top: int, marks: Footnotes) -> Section:
    footnotes = Footnotes(marks)
    listed = ranked(rows)
    twice = len({(row.name, row.metric) for row in listed}) < len(listed)
    columns = [Column(HEADINGS.get(level, level), long="start" if level == "layer" else "middle")]
    placed = any(row.where and row.where != row.name for row in listed)
    if placed:
        columns.append(Column("module", wide=0 if twice else 1, long="start"))
    columns += [Column("metric"), *_columns()]
    section = Section("Kernels" if level == "kernel" else LEVELS.get(level, level), columns, apart=True)
    section.rows = [
        [
            name,
            *([row.where] if placed else []),
            metric(row.metric).short or metric(row.metric).label,
            *_figures(row, footnotes),
        ]
        for name, row in zip(named(listed[:top]), listed[:top], strict=True)
    ]
    section.notes = footnotes.lines()
    if len(listed) > top:
        rest = listed[top:]
        counts = {
            verdict: sum(row.verdict == verdict for row in rest) for verdict in dict.fromkeys(r.verdict for r in rest)
        }
        section.notes.append(f"{len(rest)} more: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    return section


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _UNMATCHED_SHOWN} more" if len(names) > _UNMATCHED_SHOWN else ""
    return ", ".join(names[:_UNMATCHED_SHOWN]) + more
