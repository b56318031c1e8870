"""``jouletrace compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, say
from jouletrace.errors import CheckFailedError, NotPossibleError

if TYPE_CHECKING:
    from jouletrace.comparing.pairs import Comparison

_CHECK_HELP = (
    "[LEVEL:NAME:]METRIC>CHANGE%, such as 'energy>5%' or 'kernel:gemm*:energy>3%'; repeatable. Exit code 1 if it fails."
)

FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CHECK", help=_CHECK_HELP)]
Strict = Annotated[bool, typer.Option("--strict", help="An inconclusive check fails too.")]
Margin = Annotated[str, typer.Option(help="Relative difference below which two sides count as equal.")]


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Runs of one side; commas separate repetitions: A1,A2,A3.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Runs of the other side.")],
    margin: Margin = "1%",
    fail_if: FailIf = None,
    strict: Strict = False,
    top: Annotated[int, typer.Option(min=1, help="Number of rows listed per level.")] = 10,
    verbose: options.Verbose = False,
    advice: options.Advice = "brief",
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML report of both sides; replaces an older one.")
    ] = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Compare two Runs, or several Runs per side.

    A difference counts only if it exceeds the scatter between runs. With one run per side it is judged by a stored
    scatter, or the largest difference on record of two runs of one thing: profile with --repeats 3, or give several
    Runs.
    """
    from jouletrace.comparing.compare import compare as compare_runs
    from jouletrace.comparing.sides import open_runs

    form, advised = check_form(form, json), options.is_advised(advice)
    relative = options.parse_percent(margin, "--margin")
    check_expressions(fail_if or [])
    sides = open_runs(_listed(a)), open_runs(_listed(b))
    comparison = compare_runs(*sides, relative, fail_if=fail_if or [])
    if report is not None:
        from jouletrace.report import html

        say(f"wrote {html.write([run for side in sides for run, _ in side], report, [comparison])}")
    conclude(comparison, form=form, top=top, strict=strict, verbose=verbose, advice=advised)


def check_expressions(texts: list[str]) -> None:
    """Refuse a malformed check before anything is measured.

    Raises:
        BadInputError: If one is malformed.
    """
    from jouletrace.comparing.checks import parse

    for text in texts:
        parse(text)


def conclude(
    comparison: Comparison, *, form: str, top: int, strict: bool, verbose: bool = False, advice: bool = True
) -> None:
    """Print a comparison and the outcome of its checks.

    Raises:
        CheckFailedError: If one failed; with ``strict`` if one is inconclusive, or the sides have data in common.
        NotPossibleError: If none failed, but a side lacks the figure of one, or none could be judged.
    """
    from jouletrace.comparing.checks import limits
    from jouletrace.comparing.pairs import FAILED, INCONCLUSIVE, UNJUDGED, UNMEASURED
    from jouletrace.report.comparison import render
    from jouletrace.report.comparison_words import note, says

    text = render(comparison, form, top=top, verbose=verbose, colour=sys.stdout.isatty(), advice=advice)
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()
    if form == "table" and not comparison.checks and not comparison.shared and (ends := limits(comparison)):
        fails, passes = ends
        shown = "a rise beyond it" if fails is None else f"'energy>{fails}%'"
        say(f"as a gate: --fail-if 'energy>{passes}%' passes with these figures, {shown} fails (exit code 1)")
    failing = (FAILED, INCONCLUSIVE) if strict else (FAILED,)
    for check in comparison.checks:
        if check.outcome == INCONCLUSIVE and not strict:
            why = f"{says(check)}; " if form == "csv" else ""  # all others have it in what is printed
            say(f"jouletrace: --fail-if '{check.text}' is inconclusive: {why}exit code 0, with --strict 1")
    if strict and comparison.shared:
        raise CheckFailedError(f"--strict: {note(comparison.shared)}")
    if comparison.checks and comparison.checks[0].outcome == UNJUDGED:
        raise NotPossibleError(f"--fail-if is not judged: {says(comparison.checks[0])}")
    bad = [judged for judged in comparison.checks if judged.outcome in (*failing, UNMEASURED)]
    if bad:
        error = CheckFailedError if any(judged.outcome in failing for judged in bad) else NotPossibleError
        raise error("--fail-if " + "; ".join(f"'{judged.text}' {judged.outcome}: {says(judged)}" for judged in bad))


def _listed(text: str) -> list[str]:
    """The paths of a side: split at commas unless a file of that name exists."""
    return [text] if Path(text).exists() else [part for part in text.split(",") if part]


COMMAND = Command(
    "Compare",
    "Two sides of one or several Runs, with tested verdicts.",
    (
        "jouletrace compare runs/before runs/after",
        "jouletrace compare runs/before runs/after --fail-if 'energy>3%'",
    ),
    compare,
)
