"""Runs for people and programs: ``render`` in a text format, ``html`` for a page.

A format for people sets a ``document.Document`` (see ``text``); JSON and CSV have all figures and are written from the
Runs themselves. Modules are imported on request, so that listing the formats imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jouletrace.errors import BadInputError, check_format
from jouletrace.levels import SHOW, check
from jouletrace.public import public_names
from jouletrace.report.document import FORMATS as FORMATS

if TYPE_CHECKING:
    from jouletrace.comparing.pairs import Comparison
    from jouletrace.report.tariffs import Tariff
    from jouletrace.run import Estimate, Run

_OF_IMPORTS = ("kernel", "layer")
"""Kinds of units that an import lists if it has them: work on the GPU, not thousands of frames of the program."""


def default_detail(run: Run) -> str:
    """In which detail a Run is shown where none is asked for: that which it was made with."""
    if run.kind != "import":
        return run.settings.get("detail") or "model"
    levels = set(run.units["level"].to_pylist())
    return next((level for level in _OF_IMPORTS if level in levels), "model")


def render(
    runs: Sequence[Run],
    form: str = "table",
    *,
    detail: str = "model",
    top: int | None = None,
    width: int | None = None,
    verbose: bool = False,
    colour: bool = False,
    tariff: Tariff | None = None,
    advice: bool = True,
    files: Sequence[str] = (),
) -> str:
    """One Run, or several side by side, as text; with a finer ``detail`` than "model", each by itself below that.

    The comparison of its two sides precedes a Run of ``ab``, in all formats but CSV, which is one table.

    Args:
        runs: What to show; at least one.
        form: A name in ``FORMATS``.
        detail: A level of ``show --detail`` (see ``levels``): which parts are listed below the model.
        top: List only so many parts, the costliest first.
        width: Columns of the terminal, for "table"; None asks it (80 where there is none).
        verbose: Everything in a "table"; else the verdict and one table. Other formats have everything.
        colour: Colours and bars in a "table".
        tariff: What a kWh costs and emits, which adds a line (in JSON, "cost"), to CSV and of several Runs columns.
        advice: Say what could save energy, in all formats but CSV.
        files: Name of each Run's file, which several have in a column, in JSON as "file".

    Raises:
        BadInputError: If there is no such format or detail, or ``top`` is below 1.
    """
    check(SHOW, detail, f"--detail {detail}")
    if top is not None and top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    if not runs:
        raise BadInputError("no Run to show")
    check_format(form, FORMATS)
    compared: list[Comparison | None] = []
    if form != "csv" and any(run.kind == "ab" for run in runs):
        from jouletrace.comparing.paired import own_sides

        compared = [own_sides(run) for run in runs]
    if form == "json":
        from jouletrace.report.contract import json_text

        return json_text(runs, compared=compared, top=top, tariff=tariff, advice=advice, files=files)
    if form == "csv":
        from jouletrace.report.csv import csv_text

        return csv_text(runs, detail=detail, top=top, files=files, tariff=tariff)
    from jouletrace.report.content import documents
    from jouletrace.report.text import typeset

    of_runs = partial(documents, runs, detail=detail, top=top, compared=compared, verbose=verbose or form != "table")
    shown = of_runs(tariff=tariff, advice=advice, files=files)
    return "\n".join(typeset(document, form, width=width, colour=colour) for document in shown)


def write_report(of: Run | Comparison, path: Path | str, price: str | None, carbon: str | None) -> Path:
    """Write the HTML report of a Run or a comparison, with a price and a mass of CO2 per kWh; returns the path."""
    from jouletrace.comparing.pairs import Comparison
    from jouletrace.report.html import write
    from jouletrace.report.tariffs import tariff
    from jouletrace.run import Run

    runs = [of] if isinstance(of, Run) else [source.run for side in (of.a, of.b) for source in side.sources]
    runs = list({id(run): run for run in runs}.values())  # both sides of ab are one Run, whose page compares them
    return write(runs, path, [of] if isinstance(of, Comparison) and len(runs) > 1 else (), tariff=tariff(price, carbon))


def text_of(value: Run | Comparison | Estimate) -> str:
    """The text that ``print`` shows: the verdict and one table, of a figure "86.10 ± 0.15 J" or "– (reason)"."""
    from jouletrace.comparing.pairs import Comparison
    from jouletrace.report.comparison import render as of_comparison
    from jouletrace.run import Run
    from jouletrace.words.reasons import reason
    from jouletrace.words.scale import NBSP, figure

    if isinstance(value, Run):
        return render([value], detail=default_detail(value)).rstrip("\n")
    if isinstance(value, Comparison):
        return of_comparison(value).rstrip("\n")
    text = figure(value, value.unit or "1").replace(NBSP, " ")
    return text if value.value is not None else f"{text} ({reason(value.reason)})"


__getattr__ = public_names(
    __name__,
    {
        "charts": "difference waterfall",
        "contract": "json_schema to_json_object",
        "tariffs": "tariff",
        "waveform": "picture",
    },
)
