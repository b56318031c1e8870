"""CSV for spreadsheets: a row a unit, three columns (figure, low, high) a metric, in SI units.

Every row says what was run on what, so that rows of several Runs can be put below one another. Of what a Run of
``ab`` says of its two sides it has the figures of each: verdicts are no columns of a table of Runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jouletrace.analysis.facts import facts_of
from jouletrace.report.content import PROFILE, identity, levels_shown, of_sample, varied
from jouletrace.report.cost import priced, tariff_of
from jouletrace.report.facts import printed
from jouletrace.report.table import Column, Table
from jouletrace.report.tariffs import Tariff
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.metrics import ordered
from jouletrace.run.parts import ABSENT, Parts

_Row = tuple[dict[str, object], dict[str, Estimate]]
_COST = ("per", "price_per_kwh", "currency", "carbon_g_per_kwh")
_UNIT = ("level", "name", "op", "shapes", "module", "count")


def csv_text(
    runs: Sequence[Run], *, detail: str, top: int | None, files: Sequence[str] = (), tariff: Tariff | None = None
) -> str:
    """Runs (at least one) below one another: a row for the model and one for each part that ``detail`` lists.

    The row of the model has what ``content.of_sample`` says. Several have their ``files``, and settings besides their
    identity, in the last columns; those with a cost say of what it is and at which tariff.
    """
    rows = list[_Row]()
    for number, run in enumerate(runs):
        last = {"file": files[number], **varied(run)} if len(files) > 1 else {}
        rows += [({**label, **last}, figures) for label, figures in _rows(run, detail, top, tariff)]
    metrics = ordered({name for _, figures in rows for name in figures})
    names = [*identity(runs[0]), "simulated", *_UNIT]
    about_cost = dict.fromkeys(name for label, _ in rows for name in label if name in _COST)
    columns = [*map(Column, names), *(Column(name, ends=True) for name in metrics), Column("notes")]
    after = [*(["file", *varied(runs[0])] if len(files) > 1 else []), *about_cost]
    after += ["absolute"] if any("absolute" in label for label, _ in rows) else []
    columns += map(Column, after)
    cells = [
        [
            *map(label.get, names),
            *(figures.get(name, ABSENT) for name in metrics),
            _notes(figures),
            *map(label.get, after),
        ]
        for label, figures in rows
    ]
    return Table("", columns, cells).csv()


def _rows(run: Run, detail: str, top: int | None, tariff: Tariff | None) -> Iterator[_Row]:
    """The columns that name a row's part, and its figures."""
    results = Parts(run)
    identified: dict[str, object] = {**identity(run), "simulated": str(run.simulated).lower()}
    if results.gpus:  # where the kernels of several were recorded
        identified["device"] = ", ".join(results.gpus)
    ranks = {device.id: name for name, device in results.gpus.items()}
    stated = dict.fromkeys(PROFILE, ABSENT) if run.kind == "profile" else {}
    run_facts = facts_of(run, results)
    shown, shown_facts = printed(results, run_facts)
    whole = shown_facts.of_whole(shown) if results.units("device") else shown.whole.figures
    about_cost: dict[str, object] = {}
    if (used := tariff_of(run, tariff)) is not None:
        values = (priced(run, results, run_facts)[1] or "Run", used.price, used.currency, used.carbon_g)
        about_cost = dict(zip(_COST, values, strict=True))
    identified |= {} if run_facts.sensor is None else {"absolute": "true"}
    figures = {**stated, **whole, **of_sample(run, results, run_facts, tariff)}
    yield {**identified, "level": "model", **about_cost}, figures
    levels = levels_shown(results, detail)
    for level in levels:
        units = (shown.units(level) if top is None else shown.ranked(level))[:top]
        if level in ("phase", "layer") and not results.units("length") and not {"op", "kernel"} & set(levels):
            units = [*units, *shown.outside()]  # as its table has them
        for unit in units:
            if unit.id != MODEL_UNIT:
                gpu = {"device": name} if (name := unit.gpu or ranks.get(unit.id)) else {}
                yield {**identified, **gpu, **{key: getattr(unit, key) for key in _UNIT}}, unit.figures


def _notes(figures: dict[str, Estimate]) -> str:
    """Codes of why a figure is missing and of what it is flagged with, by metric."""
    codes = {name: [*filter(None, [figure.reason]), *figure.flags] for name, figure in figures.items()}
    return "; ".join(f"{name}: {', '.join(names)}" for name, names in codes.items() if names)
