"""CSV for spreadsheets: a row a unit, three columns (figure, low, high) a metric, in SI units.

Every row says what was run on what, so that rows of several Runs can be put below one another. Of what a Run of
``ab`` says of its two sides it has the figures of each: verdicts are no columns of a table of Runs.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from jouletrace.report.comparison.data import Comparison
from jouletrace.report.content import identity, levels_shown
from jouletrace.report.document import printable
from jouletrace.report.metrics import PROFILE, ordered
from jouletrace.report.results import Figure, Results
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.spreadsheets import csv_cells

_UNIT = ("level", "name", "op", "shapes", "module", "count")


def render(run: Run, *, detail: str = "model", top: int | None = None, compared: Comparison | None = None) -> str:
    """One Run: a row for the model and one for each part that ``detail`` lists."""
    return render_many([run], detail=detail, top=top)


def render_many(
    runs: Sequence[Run],
    *,
    detail: str = "model",
    top: int | None = None,
    compared: Sequence[Comparison | None] = (),
) -> str:
    """Several Runs below one another."""
    labels: list[dict[str, object]] = []
    figures: list[dict[str, Figure]] = []
    for run in runs:
        results = Results(run)
        own: dict[str, object] = {**identity(run), "simulated": str(run.simulated).lower()}
        labels.append({**own, "level": "model"})
        figures.append({**(dict.fromkeys(PROFILE, Figure()) if run.kind == "profile" else {}), **results.metrics()})
        for level in levels_shown(results, detail):
            units = results.units(level) if top is None else results.ranked(level)[:top]
            for unit in units:
                if unit["id"] != MODEL_UNIT:
                    labels.append({**own, **{key: unit[key] for key in _UNIT}})
                    figures.append(dict(results.metrics(unit["id"])))
    metrics = ordered({name for row in figures for name in row})
    heading = [*identity(runs[0]), "simulated", *_UNIT] if runs else []
    sink = StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(
        csv_cells([*heading, *(f"{printable(m)}{end}" for m in metrics for end in ("", "_low", "_high")), "notes"])
    )
    for label, row in zip(labels, figures, strict=True):
        cells = [printable(str(label[key])) if label.get(key) is not None else "" for key in heading]
        numbers = [cell for name in metrics for cell in _cells(row.get(name))]
        writer.writerow([*csv_cells(cells), *numbers, *csv_cells([printable(_notes(row))])])
    return sink.getvalue()


def _cells(figure: Figure | None) -> tuple[float | None, float | None, float | None]:
    if figure is None:
        return (None, None, None)
    return (figure.estimate.value, figure.estimate.low, figure.estimate.high)


def _notes(figures: dict[str, Figure]) -> str:
    """Codes of why a figure is missing and of what it is flagged with, by metric."""
    codes = {name: [*filter(None, [figure.estimate.reason]), *figure.flags] for name, figure in figures.items()}
    return "; ".join(f"{name}: {', '.join(found)}" for name, found in codes.items() if found)
