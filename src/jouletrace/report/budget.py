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


def render(title: str, found: Sequence[Budget], form: str) -> str:
    """Budgets of a Run's figures in a format of ``show``.

    Raises:
        BadInputError: If there are none, or there is no such format of them.
    """
    if not found:
        raise BadInputError(f"{title}: no figure here has a budget: jouletrace show says which there are")
    if form == "json":
        return json.dumps([_as_json(one) for one in found], indent=2)
    if form == "csv":
        raise BadInputError("--budget: print it as table, json, markdown or latex")
    short = short_names((one.name for one in found), 40)
    sections = [_section(one, short[one.name]) for one in found]
    return typeset(Document(f"{title}: budget of uncertainty", sections=sections).printable(), form)


def _section(found: Budget, name: str) -> Table:
    metric = METRICS[found.metric]
    variance = found.combined**2 or 1.0
    unit = unit_for([term.u for term in found.terms], metric.unit)
    rows = []
    for term in sorted(found.terms, key=lambda term: -term.u):
        share = 100 * term.u**2 / variance
        shown = number(share, 2) if share >= _LEAST_PCT else f"< {_LEAST_PCT:g}" if share else "0"
        rows.append([term.source, number(term.u / unit.factor, 3), shown, "yes" if term.stated else "no"])
    part = f" ({100 * found.expanded / abs(found.figure.value):.2g} %)" if found.figure.value else ""
    known = any(not term.stated for term in found.terms)
    note = (
        f"combined standard uncertainty {quantity(found.combined, metric.unit)}; "
        f"{'with' if known else 'without the'} gain and offset{'' if known else ' of the sensor, not known,'} "
        f"± {quantity(found.expanded, metric.unit)}{part} at 95 %"
    )
    others = (f"u ({unit.name})", "variance (%)", "in the ±")
    columns = [Column("source"), *(Column(name, numeric=True) for name in others)]
    return Table(f"{name}, {metric.short}: {figure(found.figure, metric.unit)}", columns, rows, [note])


def _as_json(found: Budget) -> dict[str, object]:
    terms = [{"source": one.source, "u": one.u, "in_interval": one.stated} for one in found.terms]
    whole = {"combined": found.combined, "expanded_95": found.expanded}
    of = {"unit": found.unit, "name": found.name, "metric": found.metric, "si_unit": METRICS[found.metric].unit}
    return {**of, "figure": found.figure.to_dict(), "terms": terms, **whole}
