"""From a comparison to the document that is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jouletrace.report.comparison.data import BETTER, DIFFERENT, INCONCLUSIVE, WORSE, Comparison, Row, Side
from jouletrace.report.comparison.words import flag, percent, reason, signed
from jouletrace.report.document import Cell, Column, Document, Footnotes, Section
from jouletrace.report.facts import SEPARATOR, SIMULATED
from jouletrace.report.parts import LEVELS
from jouletrace.report.results import metric
from jouletrace.report.scale import NBSP, NONE, cell, unit_for
from jouletrace.run.names import short_names

_KINDS = {BETTER: "better", WORSE: "worse"}
_MARKS = {BETTER: "✓ ", WORSE: "✗ "}
"""Marks before printed verdicts, which distinguish them without colour."""

_UNMATCHED_SHOWN = 8
_PLACE = " in "
"""Stands between a part's name and the module it is in."""

_ORDER = ("phase", "layer", "op", "kernel", "range")
"""Levels of parts as they are listed."""

_COLUMNS = (
    Column("A", numeric=True, brief=True),
    Column("B", numeric=True, brief=True),
    Column("change", numeric=True),
    Column("verdict"),
    Column("detectable", numeric=True, wide=2),
)


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
    for level in _ORDER:
        rows = _of_level(found, level)
        if rows:
            shown.sections.append(_level_section(level, rows, top, marks))
    empty = sum(row.a.value is None and row.b.value is None for row in found.rows if row.level != "model")
    if empty:
        shown.facts.append(("Not listed", f"{empty} rows without a figure on either side: json and csv hold them"))
    for side, units in ((found.a, found.unmatched_a), (found.b, found.unmatched_b)):
        if units:
            shown.facts.append((f"Only in {side.name}", _listed(_only(units))))
    for check in found.checks:
        shown.facts.append((f"Check {check.text}", f"{check.outcome.upper()}: {check.says}"))
    shown.facts += [("Note", note) for note in found.notes]
    if found.gain:
        text = f"the GPUs' sensors may differ by {percent(found.gain)}: that is in the intervals of power and energy"
        shown.facts.append(("Sensor gain", text))
    shown.facts.append(("Margin", f"{percent(found.margin)}: less counts as no difference"))
    shown.facts.append(("Method", found.method))
    shown.warnings = list(found.warnings)
    return shown.printable()


def _of_level(found: Comparison, level: str) -> list[Row]:
    """Rows of a level; not those without any figure, nor operators in the place of kernels that aren't known."""
    ops = {_what(row) for row in found.rows if row.level == "op"} if level == "kernel" else set()
    rows = [row for row in found.rows if row.level == level and _what(row) not in ops]
    return [row for row in rows if row.a.value is not None or row.b.value is not None]


def _what(row: Row) -> tuple[object, ...]:
    return row.name, row.where, row.shapes, row.metric, row.a.value, row.b.value


def _named(rows: Sequence[Row]) -> list[Cell]:
    """Names of rows: kernels by short names that are unique within a table."""
    short = short_names(row.name for row in rows if row.level == "kernel")
    names = [short[row.name] if row.level == "kernel" else row.name.removeprefix("aten.") for row in rows]
    return [Cell(name, full=row.name if name != row.name else "") for name, row in zip(names, rows, strict=True)]


def _only(units: Sequence[tuple[str, str]]) -> list[str]:
    """Units of one side, each with its level; kernels by short names, with where they are."""
    kernels = [
        name.rpartition(_PLACE) if _PLACE in name else (name, "", "") for level, name in units if level == "kernel"
    ]
    short = short_names(name for name, *_ in kernels)
    shown = iter(f"kernel {short[name]}{place}{where}" for name, place, where in kernels)
    return [next(shown) if level == "kernel" else f"{level} {name}" for level, name in units]


def _ranked(rows: Sequence[Row]) -> list[Row]:
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


def _figures(row: Row, footnotes: Footnotes) -> list[str]:
    unit = unit_for([row.a.value if row.a.value is not None else row.b.value], metric(row.metric).unit)
    remarks = [*([reason(row.reason)] if row.verdict == INCONCLUSIVE else []), *map(flag, row.flags)]
    verdict = " ".join([_MARKS.get(row.verdict, "") + row.verdict, *map(footnotes.mark, remarks)])
    sides = [
        f"{cell(one, unit)}{NBSP}{unit.name}".strip(NBSP) if one.value is not None else NONE for one in (row.a, row.b)
    ]
    figures = zip([*sides, signed(row.change)], (row.a, row.b, row.change), strict=True)
    return [
        *(Cell(text, one.value, one.low, one.high) for text, one in figures),
        Cell(verdict, hint="; ".join(remarks), full=row.verdict, kind=_KINDS.get(row.verdict, "")),
        Cell(NONE if row.detectable is None else percent(row.detectable), row.detectable),
    ]


def _model_section(rows: Sequence[Row], marks: Footnotes) -> Section:
    section, footnotes = Section("", [Column("per iteration"), *_COLUMNS], apart=True, id="model"), Footnotes(marks)
    section.rows = [[Cell(metric(r.metric).label, full=r.metric), *_figures(r, footnotes)] for r in rows]
    section.notes = footnotes.lines()
    return section


def _level_section(level: str, rows: Sequence[Row], top: int, marks: Footnotes) -> Section:
    footnotes = Footnotes(marks)
    listed = _ranked(rows)
    shown, rest = listed[:top], listed[top:]
    twice = len({(row.name, row.metric) for row in listed}) < len(listed)
    columns = [Column("operator" if level == "op" else level, long="start" if level == "layer" else "middle")]
    placed = any(row.where and row.where != row.name for row in listed)
    if placed:
        columns.append(Column("module", wide=0 if twice else 1, long="start"))
    title = "Kernels" if level == "kernel" else LEVELS[level]
    section = Section(title, [*columns, Column("metric"), *_COLUMNS], apart=True, id=level)
    for name, row in zip(_named(shown), shown, strict=True):
        words = metric(row.metric).short or metric(row.metric).label
        names = [name, *([row.where] if placed else []), Cell(words, full=row.metric)]
        section.rows.append([*names, *_figures(row, footnotes)])
    section.notes = footnotes.lines()
    if rest:
        counts = Counter(row.verdict for row in rest)
        section.notes.append(f"{len(rest)} more: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    return section


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _UNMATCHED_SHOWN} more" if len(names) > _UNMATCHED_SHOWN else ""
    return ", ".join(names[:_UNMATCHED_SHOWN]) + more
