"""Energy divided by steps of paths, as text, CSV and JSON: ``show --by``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jouletrace.levels import STEPS
from jouletrace.report.columns import of_best
from jouletrace.report.contract import json_text
from jouletrace.report.document import Footnotes
from jouletrace.report.facts import SIMULATED
from jouletrace.report.table import Cell, Column, Table, shortened
from jouletrace.report.text import Document, typeset
from jouletrace.run import Run
from jouletrace.run.metrics import BEST, WORK, metric, ordered
from jouletrace.run.parts import Row
from jouletrace.run.sums import ENERGY, TIME
from jouletrace.words.reasons import flag, printed, reason
from jouletrace.words.scale import NBSP

_HEADINGS = {"op": "operator"}


def render(
    run: Run,
    listed: Sequence[Row],
    levels: Sequence[str],
    form: str,
    remarks: Sequence[str] = (),
    *,
    absolute: bool = False,
) -> str:
    """A Run's energy by levels in a format of ``show``; ``remarks`` stand above a table; CSV says if ``absolute``."""
    kinds = [STEPS[level] for level in levels]
    if form == "json":
        return json_text([run], divided={",".join(kinds): listed})
    short = shortened(step.name for row in listed for step in row.path if step.kind == "kernel")
    heads = [_HEADINGS.get(level, level) for level in levels]
    named = zip(kinds, heads, strict=True)
    columns = [Column(head, long="start" if kind == "module" else "middle", key=kind) for kind, head in named]
    columns += [
        Column("time", unit="s", key="time_s"),
        Column("energy", unit="J", key="energy_total_j", ends=True),
        Column("share", unit="%", key="share", brief=True, ends=True),
    ]
    counted = ordered({name for row in listed for name in row.figures} - {TIME, ENERGY, "share"})
    shares = () if form == "csv" else tuple(BEST)
    counted = [name for name in counted if form == "csv" or name not in BEST.values()]
    units = {name: "" if name in shares else metric(name).unit for name in counted}
    columns += [
        Column(metric(name).short, unit=units[name], key=name, ends=name in WORK.values(), wide=n)
        for n, name in enumerate(counted, 1)
    ]
    rows = [
        [
            *_named(row, kinds, short if form != "csv" else {}),
            *(row.get(TIME).value or None, row.get(ENERGY), row.get("share")),
            *((of_best(row.figures, name) if name in shares else row.figures.get(name, "")) for name in counted),
        ]
        for row in listed
    ]
    stated = [figure for row in listed for name, figure in row.figures.items() if name != "share"]
    why = dict.fromkeys(figure.reason for figure in stated if figure.reason)
    marks = Footnotes()
    remarked = [NBSP.join(marks.mark(flag(code)) for code in row.get(ENERGY).flags) for row in listed]
    if form == "csv":
        remarked = [",".join(row.get(ENERGY).flags) for row in listed]
    if form == "csv" or any(remarked):
        columns.append(Column("", key="flags"))
        rows = [[*row, text] for row, text in zip(rows, remarked, strict=True)]
    table = Table("", columns, rows, [*marks.lines(), *(f"–: {reason(code)}" for code in why)])
    if form == "csv":
        for name in ["simulated"] * run.simulated + ["absolute"] * absolute:
            table.columns.append(Column(name))
            table.rows = [[*row, "true"] for row in table.rows]
        return table.csv()
    title = f"{run.workload.get('name') or run.kind}: energy by {', '.join(heads)}"
    simulated = SIMULATED if run.simulated else ""
    return typeset(Document(title, simulated, verdict=list(remarks), sections=[table]).printable(), form)


def _named(row: Row, kinds: Sequence[str], short: Mapping[str, Cell]) -> list[str]:
    """A cell for each kind of step: kernels by their short names, if they have one."""
    names = {step.kind: step.name for step in row.path}
    last = names.get("idle") or names.get("rest") or names.get("pool")
    rest = printed(last) if last else ""
    cells: list[str] = []
    for kind in kinds:
        name = names.get(kind) or ""
        missing = kind not in names and rest
        cells.append(rest if missing else short.get(name, name) if kind == "kernel" else name)
        rest = "" if missing else rest
    if rest:  # there are devices alone
        cells[-1] = f"{cells[-1]}, {rest}"
    return cells
