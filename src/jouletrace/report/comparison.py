"""Comparisons: their result as plain data, which ``compare`` creates, and how people and programs read it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jouletrace.analysis.checks import Circumstances, Failure, Outcomes, of
from jouletrace.analysis.rules import CARE, NO, YES, rule
from jouletrace.errors import BadInputError, check_format
from jouletrace.report.document import FORMATS, Footnotes, NoFootnotes
from jouletrace.report.facts import SEPARATOR, SIMULATED
from jouletrace.report.parts import LEVELS
from jouletrace.report.reasons import ACTIONS, flag, reason
from jouletrace.report.results import metric, printed
from jouletrace.report.scale import NBSP, NONE, Unit, cell, fixed, unit_for
from jouletrace.report.table import Cell, Column, Table
from jouletrace.report.text import Document, typeset
from jouletrace.report.trust import lines as trust_lines
from jouletrace.report.trust import to_dict
from jouletrace.run import Estimate
from jouletrace.run.header import jsonable
from jouletrace.run.names import short_names
from jouletrace.run.parts import STORED_SCATTER as SCATTER
from jouletrace.run.shown import Shown

BETTER, WORSE, SAME, INCONCLUSIVE = "better", "worse", "no difference shown", "inconclusive"
"""Verdicts. Less time and energy is better."""

HIGHER, LOWER = "higher", "lower"
"""Verdicts on power, of which more is neither better nor worse: what is done in less time often draws more."""

DIFFERENT = (BETTER, WORSE, HIGHER, LOWER)
"""Verdicts that there is a difference."""

FAILED, PASSED = "failed", "passed"
"""What else a check may be than inconclusive."""

TOP = 10
"""Default number of listed parts per level."""


PER_SAMPLE = "times back to back and energies are compared per sample, latency per iteration"
"""Note of a comparison whose sides have different numbers of samples in an iteration."""


@dataclass(frozen=True)
class Row:
    """One metric of one unit on both sides.

    Attributes:
        level: "model", "load", "phase", "layer", "op", "kernel" or "range".
        name: Of the unit, as it is called in B.
        where: Module it is in; "" if that says nothing.
        shapes: Input shapes of an operator; "" if none.
        metric: Name in ``run.metrics``.
        a, b: Mean of each side's runs, in SI units; ``n`` is the runs.
        difference: B - A, with the same confidence as ``change``.
        change: B / A - 1; null with a reason where A may be nothing.
        confidence: Of both intervals: 95 % over all rows together.
        p: Probability of such a difference by chance, if there is none; None where it can't be determined.
        verdict: One of the verdicts.
        reason: Why it is inconclusive, by code; None otherwise.
        detectable: Smallest relative change that would be detected with probability 0.9; None where unknown.
        flags: Codes of what a reader must know ("shapes_differ", "below_margin", ...).
    """

    level: str
    name: str
    where: str
    shapes: str
    metric: str
    a: Estimate
    b: Estimate
    difference: Estimate
    change: Estimate
    confidence: float
    p: float | None
    verdict: str
    reason: str | None = None
    detectable: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """What was compared.

    Attributes:
        name: "A" or "B".
        title: Workload, batch, dtype and so on.
        runs: Where the runs are from.
        devices: Names and ids of the GPUs.
        count: Independent runs.
    """

    name: str
    title: str
    runs: tuple[str, ...]
    devices: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Check:
    """What became of one ``--fail-if``.

    Attributes:
        text: As written.
        outcome: "failed", "passed" or "inconclusive".
        says: In words: which row decides, by how much, what could have been detected.
    """

    text: str
    outcome: str
    says: str


@dataclass
class Comparison(Shown):
    """The result of a comparison.

    Attributes:
        a, b: The sides.
        rows: The model's figures first, then parts by level, largest difference first.
        unmatched_a, unmatched_b: Units of one side only: level and name.
        notes: What differs in how the sides were run, and how the spread is known.
        warnings: Known failures that touch the figures.
        margin: Relative difference below which sides count as equal.
        alpha: Probability of a false alarm over all rows.
        gain: Relative gain error between different GPUs' sensors; 0 on one GPU.
        simulated: Whether some GPU was simulated.
        method: How the figures came about, in one sentence.
        checks: Outcomes of ``--fail-if``.
        trust: How far the Runs of both sides can be trusted; None where that isn't known.
        same: Whether both sides are the same Runs, of which there is nothing to compare.
        programs: Whether the sides are programs under ``run``, which iterate nothing and have no ``--repeats``.
    """

    a: Side
    b: Side
    rows: list[Row]
    unmatched_a: list[tuple[str, str]] = field(default_factory=list)
    unmatched_b: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    margin: float = 0.01
    alpha: float = 0.05
    gain: float = 0.0
    simulated: bool = False
    method: str = ""
    checks: list[Check] = field(default_factory=list)
    trust: Outcomes | None = None
    same: bool = False
    programs: bool = False

    def row(self, metric: str, name: str | None = None, level: str = "model") -> Row:
        """A row by metric, and by name below the model.

        Raises:
            KeyError: If there is none.
        """
        for row in self.rows:
            if row.level == level and row.metric == metric and name in (None, row.name):
                return row
        raise KeyError(f"{level} {name or ''} {metric}")

    def __str__(self) -> str:
        """The tables of the terminal."""
        return render(self).rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """The object that ``--format json`` prints."""
        own = asdict(self)
        for row, shown in zip(own["rows"], self.rows, strict=True):
            row |= {name: getattr(shown, name).to_dict() for name in row if isinstance(row[name], dict)}
        for side in ("a", "b"):
            own[f"unmatched_{side}"] = [{"level": level, "name": name} for level, name in own[f"unmatched_{side}"]]
        found = {
            "schema": 1,
            **{name: own[name] for name in ("simulated", "a", "b", "margin", "alpha")},
            "sensor_gain": self.gain,
            "rows": own["rows"],
            "unmatched": {side: own[f"unmatched_{side}"] for side in ("a", "b")},
            "checks": [{"check": one.text, "outcome": one.outcome, "says": one.says} for one in self.checks],
            **{name: own[name] for name in ("notes", "warnings", "method")},
            "trust": to_dict(trusted(self)),
        }
        return dict(jsonable(found))


def render(
    found: Comparison, form: str = "table", *, top: int = TOP, verbose: bool = False, colour: bool = False
) -> str:
    """A comparison as text; JSON and CSV have all rows.

    Args:
        found: Result of ``compare`` or ``ab``.
        form: A name in ``FORMATS``.
        top: List so many parts of a level, those that differ first, and then by size.
        verbose: Everything in a "table"; else the verdict and the figures of the whole.
        colour: Colours in a "table".

    Raises:
        BadInputError: If there is no such format, or ``top`` is below 1.
    """
    check_format(form, FORMATS)
    if top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    if form == "json":
        return json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(found)
    shown = document(found, top=top) if verbose or form != "table" else short(found, top=top)
    return typeset(shown, form, colour=colour)


_NAMES = ("simulated", "level", "name", "where", "shapes", "metric")
_FIGURES = ("a", "b", "difference", "change")
_REST = ("confidence", "p", "detectable", "verdict", "reason", "flags")


def _csv(found: Comparison) -> str:
    """A row a unit and metric, then units of one side only with the side as verdict; changes are fractions."""
    rows: list[dict[str, object]] = [{**vars(row), "flags": ",".join(row.flags)} for row in found.rows]
    for verdict, units in (("only in A", found.unmatched_a), ("only in B", found.unmatched_b)):
        rows += [{"level": level, "name": name, "verdict": verdict} for level, name in units]
    names = (*_NAMES, *_FIGURES, *_REST)
    table = Table("", [Column(name, ends=name in _FIGURES) for name in names])
    table.rows = [[({"simulated": str(found.simulated).lower()} | row).get(name) for name in names] for row in rows]
    return table.csv()


def percent(share: float) -> str:
    """A share in percent, to two digits: "0.34 %"."""
    return f"{_number(100 * share)}{NBSP}%"


def signed(change: Estimate) -> str:
    """A relative change with its interval: "+3.1 % (+2.2 to +4.0)"; "–" where there is none."""
    if change.value is None:
        return NONE
    text = f"{_signed(change.value)}{NBSP}%"
    if change.low is None or change.high is None:
        return text
    return f"{text} ({_signed(change.low)}{NBSP}to{NBSP}{_signed(change.high)})"


def _signed(share: float) -> str:
    text = _number(100 * share)
    return text if text.startswith("−") or not text.strip("0.") else f"+{text}"


def _number(value: float) -> str:
    return fixed(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)


_KINDS = {BETTER: "better", WORSE: "worse"}
_MARKS = {BETTER: "✓ ", WORSE: "✗ "}
"""Marks before printed verdicts, which distinguish them without colour."""

_PERCENT = Unit(0.01, "%")

_FOLD = 2.0
"""Change from which on a side takes so many times the other, in words."""

_MORE_RUNS = "give more runs a side: jouletrace compare A1,A2,A3 B1,B2,B3"

_JUDGED = ("energy_total_j", "iteration_time_s")
"""Metrics of the whole by which B is judged, in words too."""

_PER_ITERATION = "per iteration"
_UNMATCHED_SHOWN = 8
_NOTE = "Note"
_PLACE = " in "
"""Stands between a part's name and the module it is in."""

_ORDER = ("load", "phase", "layer", "op", "kernel", "range")
"""Levels of parts as they are listed."""

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
    titles = (found.a.title, found.b.title)
    title = f"A against B: {titles[0]}" if titles[0] == titles[1] else f"A: {titles[0]}  →  B: {titles[1]}"
    shown = Document(title, SIMULATED if found.simulated else "")
    for side in (found.a, found.b):
        runs = f"{side.count} run{'s' if side.count != 1 else ''}"
        shown.subtitle.append(SEPARATOR.join([f"{side.name}: {runs}", *side.devices]))
    sections = [_model_section(found, marks), *(_level_section(found, level, top, marks) for level in _ORDER)]
    shown.sections = [section for section in sections if section.rows]
    empty = sum(row.a.value is None and row.b.value is None for row in found.rows if row.level != "model")
    if empty:
        shown.facts.append(("Not listed", f"{empty} rows without a figure on either side: json and csv hold them"))
    for side, units in ((found.a, found.unmatched_a), (found.b, found.unmatched_b)):
        if units:
            names = _only(units)
            more = f", and {len(names) - _UNMATCHED_SHOWN} more" if len(names) > _UNMATCHED_SHOWN else ""
            shown.facts.append((f"Only in {side.name}", ", ".join(names[:_UNMATCHED_SHOWN]) + more))
    shown.facts += [(f"Check {check.text}", f"{check.outcome.upper()}: {check.says}") for check in found.checks]
    shown.facts += [(_NOTE, note) for note in found.notes]
    if found.gain:
        text = f"the GPUs' sensors may differ by {percent(found.gain)}: that is in the intervals of power and energy"
        shown.facts.append(("Sensor gain", text))
    shown.facts.append(("Margin", f"{percent(found.margin)}: less counts as no difference"))
    shown.facts.append(("Method", found.method))
    shown.warnings = list(found.warnings)
    shown.verdict = [*verdict(found), *trust_lines(trusted(found))]
    return shown.printable()


def short(found: Comparison, *, top: int) -> Document:
    """The verdict on B against A, and one table."""
    whole = document(found, top=top, marks=NoFootnotes())
    shown = Document(("SIMULATED: " if found.simulated else "") + whole.title)
    devices = list(dict.fromkeys(name for side in (found.a, found.b) for name in side.devices))
    alone = len(devices) == 1 and found.a.count == found.b.count == 1
    shown.subtitle = (
        [name.partition(" (")[0].removeprefix("SIMULATED ") for name in devices] if alone else whole.subtitle
    )
    shown.verdict = whole.verdict
    shown.facts = [fact for fact in whole.facts if fact[0] == _NOTE]
    shown.sections = whole.sections[-1:] if len(whole.sections) == 1 else whole.sections[:2]
    for section in shown.sections:
        section.notes = [note for note in section.notes if not note.startswith("[")]
    return shown.printable()


def verdict(found: Comparison) -> list[str]:
    """How B differs from A in energy, time and power, each with its verdict; and the checks that were asked for."""
    rows = {row.metric: row for row in found.rows if row.level == "model"}
    time = next((name for name in ("iteration_time_s", "latency_s") if name in rows), "time_s")
    if found.same:
        lines = ["A and B are the same Run: nothing differs, whatever it measured; give two Runs"]
        return lines + [f"check {check.text}: {check.outcome.upper()}: {check.says}" for check in found.checks]
    lines = [_said(rows["energy_total_j"], "energy", found)] if "energy_total_j" in rows else []
    if _watched(found) and "power_w" in rows:
        lines.append(_said(rows["power_w"], "power", found, "on average"))
    lines += [_said(rows[time], "time", found)] if time in rows else []
    per_token = [row for row in found.rows if row.level == "load" and row.metric == "energy_per_output_token_j"]
    lines += [f"{row.name}: {_said(row, 'energy', found, 'per output token')}" for row in per_token]
    lines += [f"check {check.text}: {check.outcome.upper()}: {check.says}" for check in found.checks]
    return lines


def trusted(found: Comparison) -> Outcomes:
    """Trust in both sides, and in the verdict on the energy."""
    sides = found.trust or of([], [])
    row = next((row for row in found.rows if row.level == "model" and row.metric == "energy_total_j"), None)
    judged = [one.verdict for one in found.rows if one.level == "model" and one.metric in _JUDGED]
    clear = bool(judged) and INCONCLUSIVE not in judged  # a narrower interval would change no verdict
    failed = [one for one in sides.failed if not (clear and one.code == "target_not_met")]
    if row is not None and row.verdict == INCONCLUSIVE and not found.same:
        code = row.reason or "unknown"
        level = NO if rule(code).level == YES else rule(code).level
        action = _MORE_RUNS if found.programs and code in ("one_run", "spread_between_runs") else None
        made = Circumstances(max_time_s=80.0)
        failed.append(Failure("verdict", level, code, message=reason(row.reason), action=action, made=made))
    elif row is not None and SCATTER in row.flags and not found.same:
        failed.append(stored_scatter())
    elif _single_loads(found) and any(one.level == "load" and one.verdict in DIFFERENT for one in found.rows):
        failed.append(Failure("verdict", CARE, "one_run", message=reason("one_run"), action=_MORE_RUNS))
    return of([*sides.asked, "verdict"], failed)


def _single_loads(found: Comparison) -> bool:
    """Whether loads of one run a side are compared, whose spread between runs isn't known."""
    return found.a.count == found.b.count == 1 and any(row.level == "load" for row in found.rows)


def stored_scatter() -> Failure:
    """What qualifies a verdict on single runs: how runs differ is known from another GPU only."""
    message = "one run each: the scatter between runs is a stored one"
    return Failure("verdict", CARE, SCATTER, message=message, action=ACTIONS["one_run"])


def _each(found: Comparison) -> str:
    """What energies and times back to back are of."""
    return (
        "per sample" if PER_SAMPLE in found.notes else "in all" if _watched(found) or found.programs else _PER_ITERATION
    )


def _watched(found: Comparison) -> bool:
    """Whether devices were watched over a time, without iterations."""
    return any(row.level == "model" and row.metric == "time_s" for row in found.rows)


def _said(row: Row, noun: str, found: Comparison, each: str = "") -> str:
    """One figure's line: "B takes 37.3 ± 0.2 % less energy per iteration: better"."""
    change = row.change
    each = each or (_each(found) if row.metric != "latency_s" else _PER_ITERATION)
    if change.value is None:
        return f"{noun} {each}: {reason(row.reason or change.reason)}"
    if row.verdict == SAME:
        return f"B takes as much {noun} {each} as A: equal within {percent(found.margin)}"
    if row.verdict == INCONCLUSIVE:
        here = f"B took {_size(change, noun)} in these runs" if change.value else "equal in these runs"
        least = "" if row.detectable is None else f"; {percent(row.detectable)} could have been detected"
        return f"{noun} {each}: {INCONCLUSIVE}, {here}{least}"
    size = _size(change, f"{noun} {each}")
    return f"B took {size} in these runs: {row.verdict}" if _single_loads(found) else f"B takes {size}: {row.verdict}"


def _size(change: Estimate, noun: str) -> str:
    """A change in words: "37.3 ± 0.2 % less energy", "4.00 ± 0.02 times the energy of A"."""
    value = change.value or 0.0
    if value >= _FOLD:
        return f"{cell(_moved(change, 1.0), Unit(1.0, ''))} times the {noun} of A"
    shown = change.scaled(-1.0) if value < 0 else change
    size = percent(abs(value)) if shown.low is None else f"{cell(shown, _PERCENT)}{NBSP}%"
    return f"{size} {'less' if value < 0 else 'more'} {noun}"


def _moved(estimate: Estimate, by: float) -> Estimate:
    """An estimate plus a number."""
    low, high = (None if end is None else end + by for end in (estimate.low, estimate.high))
    return Estimate((estimate.value or 0.0) + by, low, high, estimate.n, estimate.method)


def _model_section(found: Comparison, marks: Footnotes) -> Table:
    first = Column(_each(found), key="metric" if _each(found) == _PER_ITERATION else "")
    section, footnotes = Table("", [first, *_COLUMNS], apart=True, id="model"), marks.of_table()
    rows = [row for row in found.rows if row.level == "model"]
    apart = {"latency_s": f"Latency {_PER_ITERATION}"} if _each(found) != _PER_ITERATION else {}
    apart |= {"iteration_time_s": "Time"} if found.programs else {}
    labels = [apart.get(row.metric) or metric(row.metric).label for row in rows]
    section.rows = [
        [Cell(label, full=row.metric), *_figures(row, footnotes)] for label, row in zip(labels, rows, strict=True)
    ]
    section.notes = footnotes.lines()
    return section


def _level_section(found: Comparison, level: str, top: int, marks: Footnotes) -> Table:
    """The rows of a level, without those that have no figure, and operators in the place of unknown kernels."""
    footnotes = marks.of_table()
    ops = {_what(row) for row in found.rows if row.level == "op"} if level == "kernel" else set()
    own = [row for row in found.rows if row.level == level and _what(row) not in ops]
    listed = _ranked([row for row in own if row.a.value is not None or row.b.value is not None])
    shown, rest = listed[:top], listed[top:]
    twice = len({(row.name, row.metric) for row in listed}) < len(listed)
    columns = [Column("operator" if level == "op" else level, long="start" if level == "layer" else "middle")]
    placed = any(row.where and row.where != row.name for row in listed)
    if placed:
        columns.append(Column("module", wide=0 if twice else 1, long="start"))
    title = "Kernels" if level == "kernel" else LEVELS[level]
    section = Table(title, [*columns, Column("metric"), *_COLUMNS], apart=True, id=level)
    for name, row in zip(_named(shown), shown, strict=True):
        words = metric(row.metric).short or metric(row.metric).label
        names = [name, *([row.where] if placed else []), Cell(words, full=row.metric)]
        section.rows.append([*names, *_figures(row, footnotes)])
    section.notes = footnotes.lines()
    if rest:
        counts = Counter(row.verdict for row in rest)
        section.notes.append(f"{len(rest)} more: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    return section


def _what(row: Row) -> tuple[object, ...]:
    return row.name, row.where, row.shapes, row.metric, row.a.value, row.b.value


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows that differ first, each kind by the size of the difference over all units of the metric."""
    largest: dict[str, float] = {}
    for row in rows:
        largest[row.metric] = max(largest.get(row.metric, 0.0), abs(row.difference.value or 0.0))

    def weight(row: Row) -> tuple[bool, float]:
        size = abs(row.difference.value or 0.0) / (largest[row.metric] or 1.0)
        return row.verdict not in DIFFERENT, -size

    return sorted(rows, key=weight)


def _figures(row: Row, footnotes: Footnotes) -> list[str]:
    """The cells of ``_COLUMNS``."""
    unit = unit_for([row.a.value if row.a.value is not None else row.b.value], metric(row.metric).unit)
    remarks = [*([reason(row.reason)] if row.verdict == INCONCLUSIVE else []), *map(flag, row.flags)]
    verdict = " ".join(filter(None, [_MARKS.get(row.verdict, "") + row.verdict, *map(footnotes.mark, remarks)]))
    sides = [
        f"{cell(one, unit)}{NBSP}{unit.name}".strip(NBSP) if one.value is not None else NONE for one in (row.a, row.b)
    ]
    figures = zip([*sides, signed(row.change)], (row.a, row.b, row.change), strict=True)
    return [
        *(Cell(text, one.value, one.low, one.high) for text, one in figures),
        Cell(verdict, hint="; ".join(remarks), full=row.verdict, kind=_KINDS.get(row.verdict, "")),
        Cell(NONE if row.detectable is None else percent(row.detectable), row.detectable),
    ]


def _named(rows: Sequence[Row]) -> list[Cell]:
    """Names of rows: kernels by short names that are unique within a table."""
    short = short_names(row.name for row in rows if row.level == "kernel")
    names = [printed(short[row.name] if row.level == "kernel" else row.name.removeprefix("aten.")) for row in rows]
    return [Cell(name, full=row.name if name != row.name else "") for name, row in zip(names, rows, strict=True)]


def _only(units: Sequence[tuple[str, str]]) -> list[str]:
    """Units of one side, each with its level; kernels by short names, with where they are."""
    kernels = [
        name.rpartition(_PLACE) if _PLACE in name else (name, "", "") for level, name in units if level == "kernel"
    ]
    short = short_names(name for name, *_ in kernels)
    shown = iter(f"kernel {short[name]}{place}{where}" for name, place, where in kernels)
    return [next(shown) if level == "kernel" else f"{level} {name}" for level, name in units]
