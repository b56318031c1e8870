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


def to_dict(found: Comparison, *, advice: bool = True) -> dict[str, Any]:
    """The object that ``--format json`` prints, with advice on B."""
    rows = [row.to_dict() for row in found.rows]
    for row in rows:
        row |= {name: row[name].to_dict() for name in FIGURES}
    a, b = (
        {"name": one.name, "title": side_title(one), "runs": one.runs, "devices": side_devices(one), "count": one.count}
        for one in (found.a, found.b)
    )
    only_a, only_b = ([{"level": one.level, "name": placed(one)} for one in side.only] for side in (found.a, found.b))
    stated = {
        "schema": 1,
        "simulated": found.simulated,
        "a": a,
        "b": b,
        "margin": found.margin,
        "alpha": found.alpha,
        "sensor_gain": found.gain,
        "rows": rows,
        "unmatched": {"a": only_a, "b": only_b},
        "checks": [_check(one) for one in found.checks],
        "notes": [note(one) for one in found.notes],
        "warnings": [note(one) for one in found.warnings],
        "why": causes.to_dict(found.why),
        "advice": advised.to_list(_advice(found), found.b.run.kind, Estimate.to_dict) if advice else [],
        "method": note(found.method),
        "trust": trust.to_dict(trusted(found)),
    }
    return dict(jsonable(stated))


def _advice(found: Comparison) -> list[Advice]:
    """Advice on the first Run of B."""
    parts = Parts(found.b.run)
    return advice_of(found.b.run, parts, outcomes(found.b.run, parts))


def _check(one: Check) -> dict[str, Any]:
    """The outcome of a check, in words and in numbers: changes are fractions."""
    rows = [
        {
            "name": row.called,
            "change": row.change.value,
            "bound": one.bound(row, level),
            "confidence": 1 - level,
            "fails_from": one.fails_from(row, level),
        }
        for row, level in zip(one.deciding, one.levels, strict=True)
    ]
    return {"check": one.text, "outcome": one.outcome, "says": says(one), "limit": one.change, "rows": rows}


def render(
    found: Comparison,
    form: str = "table",
    *,
    top: int = TOP,
    verbose: bool = False,
    colour: bool = False,
    advice: bool = True,
) -> str:
    """A comparison as text; JSON and CSV have all rows.

    Args:
        found: Result of ``compare`` or ``ab``.
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
        return json.dumps(to_dict(found, advice=advice), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(found)
    shown = (document if verbose or form != "table" else short)(found, top=top)
    if advice:
        unit = f", {'in all' if found.programs else PER_ITERATION}" if found.steps or found.per_sample else ""
        shown.verdict += advised.lines(_advice(found), found.b.run.kind, f"B{unit}: ")
    return typeset(shown, form, colour=colour)


_CSV = ("simulated", *NAMES, *FIGURES, "confidence", "p", "detectable", "verdict", "reason", "flags")


def _csv(found: Comparison) -> str:
    """A row a unit and metric, then units of one side only with the side as verdict; changes are fractions."""
    rows: list[dict[str, object]] = [{**row.to_dict(), "flags": ",".join(row.flags)} for row in found.rows]
    for side in (found.a, found.b):
        rows += [{"level": one.level, "name": placed(one), "verdict": f"only in {side.name}"} for one in side.only]
    table = Table("", [Column(name, ends=name in FIGURES) for name in _CSV])
    table.rows = [[({"simulated": str(found.simulated).lower()} | row).get(name) for name in _CSV] for row in rows]
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


def document(found: Comparison, *, top: int, marks: Footnotes | None = None) -> Document:
    """Everything that is shown of a comparison; ``marks`` are the footnotes of what is shown with it."""
    marks = marks or Footnotes()
    titles = (side_title(found.a), side_title(found.b))
    title = f"A against B: {titles[0]}" if titles[0] == titles[1] else f"A: {titles[0]}  →  B: {titles[1]}"
    shown = Document(title, SIMULATED if found.simulated else "")
    for side in (found.a, found.b):
        runs = f"{side.count} run{'s' if side.count != 1 else ''}"
        shown.subtitle.append(SEPARATOR.join([f"{side.name}: {runs}", *side_devices(side)]))
    divided = [causes.table(found.why, top)] if found.why and found.why.stated else []
    sections = [_model_section(found, marks), *divided, *(_level_section(found, level, top, marks) for level in LEVELS)]
    shown.sections = [section for section in sections if section.rows]
    empty = sum(row.a.value is None and row.b.value is None for row in found.rows if row.level != "model")
    if empty:
        shown.facts.append(("Not listed", f"{empty} rows without a figure on either side: json and csv hold them"))
    for side in (found.a, found.b):
        if side.only:
            names = _only(side.only)
            more = f", and {len(names) - _UNMATCHED_SHOWN} more" if len(names) > _UNMATCHED_SHOWN else ""
            shown.facts.append((f"Only in {side.name}", ", ".join(names[:_UNMATCHED_SHOWN]) + more))
    shown.facts += [(f"Check {check.text}", f"{check.outcome.upper()}: {says(check)}") for check in found.checks]
    shown.facts += [(_NOTE, note(one)) for one in found.notes]
    if found.gain:
        text = f"the GPUs' sensors may differ by {percent(found.gain)}: that is in the intervals of power and energy"
        shown.facts.append(("Sensor gain", text))
    shown.facts.append(("Margin", f"{percent(found.margin)}: less counts as no difference"))
    shown.facts.append(("Method", note(found.method)))
    shown.warnings = [note(one) for one in found.warnings]
    first, *others = verdict(found) or [""]
    because = causes.lines(found.why) if found.why else []
    shown.verdict = [*filter(None, [first]), *because, *others, *joint(found), *trust.lines(trusted(found))]
    return shown.printable()


def short(found: Comparison, *, top: int) -> Document:
    """The verdict on B against A, and one table."""
    whole = document(found, top=top, marks=NoFootnotes())
    shown = Document(whole.title, whole.simulated).marked()
    devices = list(dict.fromkeys(name for side in (found.a, found.b) for name in side_devices(side)))
    alone = len(devices) == 1 and found.a.count == found.b.count == 1
    shown.subtitle = (
        [name.partition(" (")[0].removeprefix("SIMULATED ") for name in devices] if alone else whole.subtitle
    )
    shown.verdict = whole.verdict
    shown.warnings = [note(found.shared)] if found.shared and not found.same else []  # the verdict says that they are
    shown.facts = [fact for fact in whole.facts if fact[0] == _NOTE]
    silent = found.why is not None and not found.why.stated
    shown.sections = whole.sections[-1:] if len(whole.sections) == 1 else whole.sections[: 1 if silent else 2]
    for section in shown.sections:
        section.notes = [line for line in section.notes if not line.startswith("[")]
    return shown.printable()


def _model_section(found: Comparison, marks: Footnotes) -> Table:
    first = Column(each(found), key="metric" if each(found) == PER_ITERATION else "")
    section, footnotes = Table("", [first, *_COLUMNS], apart=True, id="model"), marks.of_table()
    apart = {"latency_s": f"Latency {PER_ITERATION}"} if each(found) != PER_ITERATION else {}
    if "latency_s" not in apart and found.method.code in ("runs", "blocks"):  # the Run as a whole states one median
        apart["latency_s"] = "Latency, medians"
    apart |= {PROGRAM_TIME: "Time"} if found.programs else {}
    for row in found.whole.values():
        label = apart.get(row.metric) or metric(row.metric).label
        section.rows.append([Cell(label, full=row.metric), *_figures(row, footnotes)])
    section.notes = footnotes.lines()
    return section


def _level_section(found: Comparison, level: str, top: int, marks: Footnotes) -> Table:
    """The rows of a level, without those that have no figure, and operators in the place of unknown kernels."""
    footnotes = marks.of_table()
    own = [row for row in found.rows if row.level == level == row.part.level]
    listed = _ranked([row for row in own if row.a.value is not None or row.b.value is not None])
    shown, rest = listed[:top], listed[top:]
    twice = len({(row.name, row.metric) for row in listed}) < len(listed)
    columns = [Column("operator" if level == "op" else level, long="start" if level == "layer" else "middle")]
    in_places = any(row.where and row.where != row.name for row in listed)
    if in_places:
        several = any(row.where for row in found.rows if row.level == "phase")  # phases are in no module
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
        f"{cell(one, unit)}{NBSP}{unit.name}".strip(NBSP) if one.value is not None else NONE for one in (row.a, row.b)
    ]
    figures = zip([*sides, signed(row.change)], (row.a, row.b, row.change), strict=True)
    return [
        *(Cell(text, one.value, one.low, one.high) for text, one in figures),
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
    short = short_names(one.name for one in parts if one.level == "kernel")
    return [f"{one.level} {placed(one, short.get(one.name) if one.level == 'kernel' else None)}" for one in parts]
