"""A comparison as people and programs read it: text, JSON and CSV of the pairs that ``compare`` gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jouletrace.analysis.advice import Advice, advice_of
from jouletrace.analysis.checks import outcomes
from jouletrace.comparing.pairs import (
    BETTER,
    DIFFERENT,
    FIGURES,
    INCONCLUSIVE,
    LEVELS,
    NAMES,
    ONE_RUN,
    WORSE,
    Check,
    ComparedRow,
    Comparison,
)
from jouletrace.comparing.source import Listed
from jouletrace.errors import BadInputError, check_format
from jouletrace.levels import TITLES
from jouletrace.report import advice as advised
from jouletrace.report import trust
from jouletrace.report import why as causes
from jouletrace.report.comparison_words import (
    PER_ITERATION,
    each,
    joint,
    note,
    percent,
    placed,
    says,
    side_devices,
    side_title,
    signed,
    trusted,
    verdict,
)
from jouletrace.report.document import FORMATS, Footnotes, NoFootnotes
from jouletrace.report.facts import SEPARATOR, SIMULATED
from jouletrace.report.table import Cell, Column, Table
from jouletrace.report.text import Document, typeset
from jouletrace.run import Estimate
from jouletrace.run.header import jsonable
from jouletrace.run.metrics import EACH, PROGRAM_TIME, metric
from jouletrace.run.names import short_names
from jouletrace.run.parts import Parts
from jouletrace.words.reasons import flag, printed, reason
from jouletrace.words.scale import NBSP, NONE, cell, unit_for

TOP = 10
"""Default number of listed parts per level."""


def to_dict(comparison: Comparison, *, advice: bool = True) -> dict[str, Any]:
    """The object that ``--format json`` prints, with advice on B."""
    rows = [row.to_dict() for row in comparison.rows]
    for row in rows:
        row |= {name: row[name].to_dict() for name in FIGURES}
    a, b = (
        {
            "name": side.name,
            "title": side_title(side),
            "runs": side.runs,
            "devices": side_devices(side),
            "count": side.count,
        }
        for side in (comparison.a, comparison.b)
    )
    only_a, only_b = (
        [{"level": part.level, "name": placed(part)} for part in side.only] for side in (comparison.a, comparison.b)
    )
    stated = {
        "schema": 1,
        "simulated": comparison.simulated,
        "a": a,
        "b": b,
        "margin": comparison.margin,
        "alpha": comparison.alpha,
        "sensor_gain": comparison.gain,
        "rows": rows,
        "unmatched": {"a": only_a, "b": only_b},
        "checks": [_check(check) for check in comparison.checks],
        "notes": [note(of_note) for of_note in comparison.notes],
        "warnings": [note(of_note) for of_note in comparison.warnings],
        "why": causes.to_dict(comparison.why),
        "advice": advised.to_list(_advice(comparison), comparison.b.run.kind, Estimate.to_dict) if advice else [],
        "method": note(comparison.method),
        "trust": trust.to_dict(trusted(comparison)),
    }
    return dict(jsonable(stated))


def _advice(comparison: Comparison) -> list[Advice]:
    """Advice on the first Run of B."""
    parts = Parts(comparison.b.run)
    return advice_of(comparison.b.run, parts, outcomes(comparison.b.run, parts))


def _check(check: Check) -> dict[str, Any]:
    """The outcome of a check, in words and in numbers: changes are fractions."""
    rows = [
        {
            "name": row.called,
            "change": row.change.value,
            "bound": check.bound(row, level),
            "confidence": 1 - level,
            "fails_from": check.fails_from(row, level),
        }
        for row, level in zip(check.deciding, check.levels, strict=True)
    ]
    return {"check": check.text, "outcome": check.outcome, "says": says(check), "limit": check.change, "rows": rows}


def render(
    comparison: Comparison,
    form: str = "table",
    *,
    top: int = TOP,
    verbose: bool = False,
    colour: bool = False,
    advice: bool = True,
) -> str:
    """A comparison as text; JSON and CSV have all rows.

    Args:
        comparison: Result of ``compare`` or ``ab``.
        form: A name in ``FORMATS``.
        top: List so many parts of a level, those that differ first, and then by size.
        verbose: Everything in a "table"; else the verdict and the figures of the whole.
        colour: Colours in a "table".
        advice: Say what could save energy on side B, in all formats but CSV.

    Raises:
        BadInputError: If there is no such format, or ``top`` is below 1.
    """
    check_format(form, FORMATS)
    if top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    if form == "json":
        return json.dumps(to_dict(comparison, advice=advice), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(comparison)
    shown = (document if verbose or form != "table" else short)(comparison, top=top)
    if advice:
        unit = (
            f", {'in all' if comparison.programs else PER_ITERATION}"
            if comparison.steps or comparison.per_sample
            else ""
        )
        shown.verdict += advised.lines(_advice(comparison), comparison.b.run.kind, f"B{unit}: ")
    return typeset(shown, form, colour=colour)


_CSV = ("simulated", *NAMES, *FIGURES, "confidence", "p", "detectable", "verdict", "reason", "flags")


def _csv(comparison: Comparison) -> str:
    """A row a unit and metric, then units of one side only with the side as verdict; changes are fractions."""
    rows: list[dict[str, object]] = [{**row.to_dict(), "flags": ",".join(row.flags)} for row in comparison.rows]
    for side in (comparison.a, comparison.b):
        rows += [{"level": part.level, "name": placed(part), "verdict": f"only in {side.name}"} for part in side.only]
    table = Table("", [Column(name, ends=name in FIGURES) for name in _CSV])
    table.rows = [[({"simulated": str(comparison.simulated).lower()} | row).get(name) for name in _CSV] for row in rows]
    return table.csv()


_MARKS = {BETTER: "✓ ", WORSE: "✗ "}
"""Marks before printed verdicts, which distinguish them without colour."""

_BECAUSE = {"one_run": "one run", "spread_between_runs": "scatter", "sensor_gain": "gain", "few_blocks": "few blocks"}
"""The commonest reasons why a row is inconclusive, beside it, by code; footnotes have them in full."""

_UNMATCHED_SHOWN = 8
_NOTE = "Note"
_COLUMNS = (
    Column("A", numeric=True, brief=True, key="a"),
    Column("B", numeric=True, brief=True, key="b"),
    Column("change", numeric=True),
    Column("verdict"),
    Column("detectable", numeric=True, wide=2),
)


def document(comparison: Comparison, *, top: int, marks: Footnotes | None = None) -> Document:
    """Everything that is shown of a comparison; ``marks`` are the footnotes of what is shown with it."""
    marks = marks or Footnotes()
    titles = (side_title(comparison.a), side_title(comparison.b))
    title = f"A against B: {titles[0]}" if titles[0] == titles[1] else f"A: {titles[0]}  →  B: {titles[1]}"
    shown = Document(title, SIMULATED if comparison.simulated else "")
    for side in (comparison.a, comparison.b):
        runs = f"{side.count} run{'s' if side.count != 1 else ''}"
        shown.subtitle.append(SEPARATOR.join([f"{side.name}: {runs}", *side_devices(side)]))
    divided = [causes.table(comparison.why, top)] if comparison.why and comparison.why.stated else []
    sections = [
        _model_section(comparison, marks),
        *divided,
        *(_level_section(comparison, level, top, marks) for level in LEVELS),
    ]
    shown.sections = [section for section in sections if section.rows]
    empty = sum(row.a.value is None and row.b.value is None for row in comparison.rows if row.level != "model")
    if empty:
        shown.facts.append(("Not listed", f"{empty} rows without a figure on either side: json and csv hold them"))
    for side in (comparison.a, comparison.b):
        if side.only:
            names = _only(side.only)
            more = f", and {len(names) - _UNMATCHED_SHOWN} more" if len(names) > _UNMATCHED_SHOWN else ""
            shown.facts.append((f"Only in {side.name}", ", ".join(names[:_UNMATCHED_SHOWN]) + more))
    shown.facts += [(f"Check {check.text}", f"{check.outcome.upper()}: {says(check)}") for check in comparison.checks]
    shown.facts += [(_NOTE, note(of_note)) for of_note in comparison.notes]
    if comparison.gain:
        text = (
            f"the GPUs' sensors may differ by {percent(comparison.gain)}: that is in the intervals of power and energy"
        )
        shown.facts.append(("Sensor gain", text))
    shown.facts.append(("Margin", f"{percent(comparison.margin)}: less counts as no difference"))
    shown.facts.append(("Method", note(comparison.method)))
    shown.warnings = [note(of_note) for of_note in comparison.warnings]
    first, *others = verdict(comparison) or [""]
    because = causes.lines(comparison.why) if comparison.why else []
    shown.verdict = [*filter(None, [first]), *because, *others, *joint(comparison), *trust.lines(trusted(comparison))]
    return shown.printable()


def short(comparison: Comparison, *, top: int) -> Document:
    """The verdict on B against A, and one table."""
    whole = document(comparison, top=top, marks=NoFootnotes())
    shown = Document(whole.title, whole.simulated).marked()
    devices = list(dict.fromkeys(name for side in (comparison.a, comparison.b) for name in side_devices(side)))
    alone = len(devices) == 1 and comparison.a.count == comparison.b.count == 1
    shown.subtitle = (
        [name.partition(" (")[0].removeprefix("SIMULATED ") for name in devices] if alone else whole.subtitle
    )
    shown.verdict = whole.verdict
    shown.warnings = (
        [note(comparison.shared)] if comparison.shared and not comparison.same else []
    )  # the verdict says that they are
    shown.facts = [fact for fact in whole.facts if fact[0] == _NOTE]
    silent = comparison.why is not None and not comparison.why.stated
    shown.sections = whole.sections[-1:] if len(whole.sections) == 1 else whole.sections[: 1 if silent else 2]
    for section in shown.sections:
        section.notes = [line for line in section.notes if not line.startswith("[")]
    return shown.printable()


def _model_section(comparison: Comparison, marks: Footnotes) -> Table:
    first = Column(each(comparison), key="metric" if each(comparison) == PER_ITERATION else "")
    section, footnotes = Table("", [first, *_COLUMNS], apart=True, id="model"), marks.of_table()
    apart = {"latency_s": f"Latency {PER_ITERATION}"} if each(comparison) != PER_ITERATION else {}
    if "latency_s" not in apart and comparison.method.code in (
        "runs",
        "blocks",
    ):  # the Run as a whole states one median
        apart["latency_s"] = "Latency, medians"
    apart |= {PROGRAM_TIME: "Time"} if comparison.programs else {}
    for row in comparison.whole.values():
        label = apart.get(row.metric) or metric(row.metric).label
        section.rows.append([Cell(label, full=row.metric), *_figures(row, footnotes)])
    section.notes = footnotes.lines()
    return section


def _level_section(comparison: Comparison, level: str, top: int, marks: Footnotes) -> Table:
    """The rows of a level, without those that have no figure, and operators in the place of unknown kernels."""
    footnotes = marks.of_table()
    level_rows = [row for row in comparison.rows if row.level == level == row.part.level]
    listed = _ranked([row for row in level_rows if row.a.value is not None or row.b.value is not None])
    shown, rest = listed[:top], listed[top:]
    twice = len({(row.name, row.metric) for row in listed}) < len(listed)
    columns = [Column("operator" if level == "op" else level, long="start" if level == "layer" else "middle")]
    in_places = any(row.where and row.where != row.name for row in listed)
    if in_places:
        several = any(row.where for row in comparison.rows if row.level == "phase")  # phases are in no module
        heading = "device" if level == "phase" else "device, module" if several else "module"
        columns.append(Column(heading, wide=0 if twice else 1, long="start"))
    title = "Kernels" if level == "kernel" else TITLES[level]
    section = Table(title, [*columns, Column("metric"), *_COLUMNS], apart=True, id=level)
    for name, row in zip(_named(shown), shown, strict=True):
        of_all = next((name for name, each in EACH.items() if each == row.metric), row.metric)
        words = metric(of_all).short or metric(of_all).label
        words = words if of_all == row.metric else f"{words}, each"
        names = [name, *([row.where] if in_places else []), Cell(words, full=row.metric)]
        section.rows.append([*names, *_figures(row, footnotes)])
    section.notes = footnotes.lines()
    if rest:
        counts = Counter(row.verdict for row in rest)
        section.notes.append(f"{len(rest)} more: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    return section


def _ranked(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """Rows that differ first, each kind by the size of the difference over all units of the metric."""
    size = {id(row): abs(row.difference.value or 0.0) for row in rows}
    largest: dict[str, float] = {}
    for row in rows:
        largest[row.metric] = max(largest.get(row.metric, 0.0), size[id(row)])
    return sorted(rows, key=lambda row: (row.verdict not in DIFFERENT, -size[id(row)] / (largest[row.metric] or 1.0)))


def _figures(row: ComparedRow, footnotes: Footnotes) -> list[str]:
    """The cells of ``_COLUMNS``."""
    unit = unit_for([row.a.value if row.a.value is not None else row.b.value], metric(row.metric).unit)
    of_row = (code for code in row.flags if code != ONE_RUN or row.verdict != INCONCLUSIVE)
    remarks = [*([reason(row.reason)] if row.verdict == INCONCLUSIVE else []), *map(flag, of_row)]
    because = f": {_BECAUSE[row.reason]}" if row.verdict == INCONCLUSIVE and row.reason in _BECAUSE else ""
    because = because or (f": {_BECAUSE[ONE_RUN]}" if ONE_RUN in row.flags else "")
    said = f"{_MARKS.get(row.verdict, '')}{row.verdict}{because}"
    verdict = " ".join(filter(None, [said, *map(footnotes.mark, remarks)]))
    sides = [
        f"{cell(figure, unit)}{NBSP}{unit.name}".strip(NBSP) if figure.value is not None else NONE
        for figure in (row.a, row.b)
    ]
    figures = zip([*sides, signed(row.change)], (row.a, row.b, row.change), strict=True)
    return [
        *(Cell(text, estimate.value, estimate.low, estimate.high) for text, estimate in figures),
        Cell(verdict, hint="; ".join(remarks), full=row.verdict, kind=row.verdict if row.verdict in _MARKS else ""),
        Cell(NONE if row.detectable is None else percent(row.detectable), row.detectable),
    ]


def _named(rows: Sequence[ComparedRow]) -> list[Cell]:
    """Names of rows: kernels by short names that are unique within a table."""
    short = short_names(row.name for row in rows if row.level == "kernel")
    names = [printed(short[row.name] if row.level == "kernel" else row.name.removeprefix("aten.")) for row in rows]
    return [Cell(name, full=row.name if name != row.name else "") for name, row in zip(names, rows, strict=True)]


def _only(parts: Sequence[Listed]) -> list[str]:
    """Parts of one side, each with its level; kernels by short names, with where they are."""
    short = short_names(part.name for part in parts if part.level == "kernel")
    return [f"{part.level} {placed(part, short.get(part.name) if part.level == 'kernel' else None)}" for part in parts]
