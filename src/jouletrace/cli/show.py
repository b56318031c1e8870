"""``jouletrace show``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, names_of, print_runs, put, say
from jouletrace.errors import BadInputError
from jouletrace.levels import BY, RENAMED, SHOW, listed

if TYPE_CHECKING:
    from jouletrace.run import Run


_SOLVED = "its readings are solved again, which may find other figures than those that show states"


def show(
    runs: Annotated[
        list[str], typer.Argument(help="Runs: folders, which may hold several, or .zip files.", metavar="RUN...")
    ],
    detail: Annotated[
        str | None,
        typer.Option(
            help=f"Level that is listed: {listed(SHOW)}. "
            "[default: the level of a single Run; kernel for an import; else model]"
        ),
    ] = None,
    top: options.Top = None,
    verbose: options.Verbose = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="LEVELS",
            help=f"Divide the energy by some of {listed(BY, 'and')}: phase,op.",
        ),
    ] = None,
    budget: Annotated[
        bool,
        typer.Option(
            "--budget", help="What the uncertainty of energy and power consists of, and of the --top largest rows."
        ),
    ] = False,
    absolute: options.Absolute = False,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    advice: options.Advice = "brief",
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Print the figures of a Run, or of several in one table, a row each with the settings that differ.

    A folder of Runs is all of them; that of a sweep or a tune shows its result, and with an option for Runs these. A
    Run of ab starts with the comparison of its two sides.
    """
    from jouletrace.analysis.facts import facts_of
    from jouletrace.campaign.loop import RESULT
    from jouletrace.profiler.loading import load
    from jouletrace.report.cost import cost_line
    from jouletrace.run.files import quoted
    from jouletrace.run.loading import runs_in
    from jouletrace.run.parts import Parts

    form, given, advised = check_form(form, json), options.tariff(price, carbon), options.is_advised(advice)
    of_runs = len(runs) > 1 or detail or top or verbose or by or budget or absolute or price or carbon
    if not of_runs and (Path(runs[0]) / RESULT).is_file():
        from jouletrace.campaign.results import printed as result_in  # for others, the slowest import of this command

        if result := result_in(Path(runs[0]), form, colour=sys.stdout.isatty()):
            put(result[0].rstrip("\n"))
            say(f"its Runs: jouletrace show {quoted(result[1])}")
            return
    more = shlex.join(["jouletrace", "show", *runs])
    places = [run_path for path in runs for run_path in runs_in(path)]
    runs = list(map(str, places))
    if by is not None:
        if budget or detail or verbose or price or carbon or len(runs) > 1:
            raise BadInputError("--by: a view of one Run, without --detail, --budget, --price, --carbon and -v")
        run = load(runs[0])
        run.settings |= {"absolute": absolute}
        if kernels_command := _of_kernels(run, runs[0]):
            raise BadInputError(
                f"--by {by}: the kernels of a recording are a Run of their own: {kernels_command} --by {by}"
            )
        _print_by(run, _levels(by), form, top)
        return
    if budget:
        shown = [load(path) for path in runs]
        with_facts = [(run, parts := Parts(run), facts_of(run, parts)) for run in shown]
        costs = [line for run_facts in with_facts for line in cost_line(*run_facts, given)] if form == "table" else []
        printed: list[str] = []
        try:
            for run in shown:
                printed.append(_budgets(run, form, top))
        finally:  # one without a budget keeps none back
            if printed:
                put(f"[{','.join(printed)}]" if form == "json" and len(runs) > 1 else "\n\n".join([*printed, *costs]))
        return
    shown = [load(path) for path in runs]
    print_runs(
        shown,
        form=form,
        detail=detail,
        top=top,
        verbose=verbose,
        more=more,
        tariff=given,
        advice=advised,
        files=names_of(runs),
        absolute=absolute,
    )
    for run, path in zip(shown, runs, strict=True):
        if kernels_command := _of_kernels(run, path):
            say(f"where its energy went: {kernels_command}")


def _of_kernels(run: Run, path: str) -> str:
    """The command that shows the kernels of a recording, which lie beside its ranges; "" without."""
    from jouletrace.run.files import RUN_JSON
    from jouletrace.run.places import kernels_of

    kernels = kernels_of(Path(path))
    there = run.kind == "record" and (kernels / RUN_JSON).is_file()
    return shlex.join(["jouletrace", "show", str(kernels)]) if there else ""


def _levels(by: str) -> list[str]:
    """The levels that ``--by`` names; one line on stderr names the word that takes the place of an old one."""
    from jouletrace.analysis.divided import check_levels

    words = [word.strip() for word in by.split(",")]
    levels = [RENAMED.get(word, word) for word in words]
    check_levels(levels)
    if levels != words:
        say(f"--by {by}: write --by {','.join(levels)}; the next release doesn't take the old word")
    return levels


def _print_by(run: Run, levels: Sequence[str], form: str, top: int | None) -> None:
    """The energy of a Run by levels."""
    from jouletrace.analysis.budget import with_sensor
    from jouletrace.analysis.divided import divided
    from jouletrace.analysis.facts import facts_of
    from jouletrace.report.by import render
    from jouletrace.report.trust import lines
    from jouletrace.report.verdict import beyond_readings
    from jouletrace.run.parts import Parts

    if len(run.activity) and not len(run.divided):
        say(f"an older version made this Run and stored no division: {_SOLVED}")
    rows = divided(run, levels, 20 if top is None and form == "table" else top)
    run_facts = facts_of(run, Parts(run))
    words = beyond_readings(run_facts)
    rows = [with_sensor(run, row) for row in rows] if words else rows
    remarks = [*([f"± {words}"] if words else []), *lines(run_facts.checks)]
    put(render(run, rows, levels, form, remarks, absolute=bool(words)).rstrip("\n"))


def _budgets(run: Run, form: str, top: int | None) -> str:
    """The budgets of a Run: of the whole, and of its rows with most energy."""
    from jouletrace.analysis.budget import are_stored, budgets
    from jouletrace.report import budget
    from jouletrace.run import MODEL_UNIT
    from jouletrace.run.parts import Parts

    rows = [row for row in run.results.to_pylist() if row["metric"] == "energy_total_j" and row["value"]]
    largest = sorted((row for row in rows if row["unit"] != MODEL_UNIT), key=lambda row: -row["value"])
    parts = [row["unit"] for row in largest[: top or 0]]
    of_parts = budgets(run, parts)
    if of_parts and not are_stored(Parts(run)):
        say(f"an older version made this Run and stored no budgets: {_SOLVED}")
    return budget.render(str(run.workload.get("name", run.kind)), of_parts, form)


COMMAND = Command(
    "Look",
    "Print the figures of Runs: table, JSON, CSV, Markdown.",
    (
        "jouletrace show runs/mine",
        "jouletrace show runs/mine --detail kernel --format csv",
    ),
    show,
)
