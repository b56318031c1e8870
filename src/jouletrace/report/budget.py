"""Budgets of uncertainty as text and JSON: ``show --budget``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jouletrace.analysis.budget import Budget
from jouletrace.errors import BadInputError
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document, typeset
from jouletrace.run.metrics import METRICS
from jouletrace.run.names import short_names
from jouletrace.words.scale import figure, number, quantity, unit_for

_LEAST_PCT = 0.1
"""Share of the variance from which on it is stated."""


def render(title: str, budgets: Sequence[Budget], form: str) -> str:
    """Budgets of a Run's figures in a format of ``show``.

    Raises:
        BadInputError: If there are none, or there is no such format of them.
    """
    if not budgets:
        raise BadInputError(f"{title}: no figure here has a budget: jouletrace show says which there are")
    if form == "json":
        return json.dumps([_as_json(budget) for budget in budgets], indent=2)
    if form == "csv":
        raise BadInputError("--budget: print it as table, json, markdown or latex")
    short = short_names((budget.name for budget in budgets), 40)
    sections = [_section(budget, short[budget.name]) for budget in budgets]
    return typeset(Document(f"{title}: budget of uncertainty", sections=sections).printable(), form)


def _section(budget: Budget, name: str) -> Table:
    metric = METRICS[budget.metric]
    variance = budget.combined**2 or 1.0
    unit = unit_for([term.u for term in budget.terms], metric.unit)
    rows = []
    for term in sorted(budget.terms, key=lambda term: -term.u):
        share = 100 * term.u**2 / variance
        shown = number(share, 2) if share >= _LEAST_PCT else f"< {_LEAST_PCT:g}" if share else "0"
        rows.append([term.source, number(term.u / unit.factor, 3), shown, "yes" if term.stated else "no"])
    part = f" ({100 * budget.expanded / abs(budget.figure.value):.2g} %)" if budget.figure.value else ""
    unstated = any(not term.stated for term in budget.terms)
    note = (
        f"combined standard uncertainty {quantity(budget.combined, metric.unit)}; "
        f"{'with' if unstated else 'without the'} gain and offset{'' if unstated else ' of the sensor, not known,'} "
        f"± {quantity(budget.expanded, metric.unit)}{part} at 95 %"
    )
    others = (f"u ({unit.name})", "variance (%)", "in the ±")
    columns = [Column("source"), *(Column(name, numeric=True) for name in others)]
    return Table(f"{name}, {metric.short}: {figure(budget.figure, metric.unit)}", columns, rows, [note])


def _as_json(budget: Budget) -> dict[str, object]:
    terms = [{"source": term.source, "u": term.u, "in_interval": term.stated} for term in budget.terms]
    whole = {"combined": budget.combined, "expanded_95": budget.expanded}
    of = {"unit": budget.unit, "name": budget.name, "metric": budget.metric, "si_unit": METRICS[budget.metric].unit}
    return {**of, "figure": budget.figure.to_dict(), "terms": terms, **whole}
