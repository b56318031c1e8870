"""``jouletrace compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import say
from jouletrace.errors import BadInputError, CheckFailedError, check_format

if TYPE_CHECKING:
    from jouletrace.report.comparison.data import Comparison

FORMAT_HELP = "table, json, csv or markdown."
CHECK_HELP = (
    "[LEVEL:NAME:]METRIC>CHANGE%, such as 'energy>5%' or 'kernel:gemm*:energy>3%'; repeatable. Exit code 1 if it fails."
)

Format = Annotated[str, typer.Option("--format", "-f", help=FORMAT_HELP)]
FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CHECK", help=CHECK_HELP)]
Strict = Annotated[bool, typer.Option("--strict", help="An inconclusive check fails too.")]
Margin = Annotated[str, typer.Option(help="Relative difference below which two sides count as equal.")]


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B", help="Runs; commas separate repetitions of one side: A1,A2,A3 B1,B2,B3."),
    ] = None,
    a: Annotated[list[str] | None, typer.Option("--a", metavar="RUN", help="A Run of A; repeatable.")] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="RUN", help="A Run of B; repeatable.")] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="An earlier Run of A, to estimate the spread between runs; repeatable."),
    ] = None,
    margin: Margin = "1%",
    between: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Standard deviation between runs, if known.")
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="A name or module of A and its name in B; repeatable."),
    ] = None,
    detail: Annotated[str, typer.Option(help="all, model, phase, layer, op or kernel.")] = "all",
    fail_if: FailIf = None,
    strict: Strict = False,
    top: Annotated[int, typer.Option(min=1, help="Number of rows listed per level.")] = 10,
    form: Format = "table",
    json: options.Json = False,
) -> None:
    """Compare two Runs, or several Runs per side.

    A difference counts only if it exceeds the spread between runs, which a single run per side can't show: profile
    with --repeats 3, or give several Runs.
    """
    from jouletrace.compare import CompareOptions
    from jouletrace.compare import compare as compare_runs
    from jouletrace.compare.sides import open_runs

    form = check_comparison_form(form, json)
    one, other = _sides(runs or [], a or [], b or [])
    how = CompareOptions(
        margin=options.parse_percent(margin, "--margin"),
        between=None if between is None else options.parse_percent(between, "--between"),
        renames=options.parse_pairs(renamed or [], "--map"),
        detail=detail,
    )
    check_expressions(fail_if or [])
    earlier = open_runs(_listed(history or []))
    found = compare_runs(open_runs(one), open_runs(other), how, history=earlier, fail_if=fail_if or [])
    conclude(found, form=form, top=top, strict=strict)


def check_comparison_form(form: str, json: bool) -> str:
    """The requested format; ``--json`` is short for ``--format json``.

    Raises:
        BadInputError: If there is no such format, or two are requested.
    """
    from jouletrace.report.comparison import FORMATS

    if json and form not in ("table", "json"):
        raise BadInputError(f"--format {form} --json: give only one of them")
    check_format(form, FORMATS)
    return "json" if json else form


def check_expressions(texts: list[str]) -> None:
    """Refuse a malformed check before anything is measured or read, with a pointer to the position.

    Raises:
        BadInputError: If one is malformed.
    """
    from jouletrace.compare.checks import ExpressionError, parse

    for text in texts:
        try:
            parse(text)
        except ExpressionError as error:
            say(error.pointed)
            raise


def conclude(found: Comparison, *, form: str, top: int, strict: bool) -> None:
    """Print a comparison and the outcome of its checks.

    Raises:
        CheckFailedError: If one failed, or is inconclusive with ``strict``.
    """
    from jouletrace.report.comparison import render
    from jouletrace.report.comparison.data import FAILED, INCONCLUSIVE

    sys.stdout.write(render(found, form, top=top).rstrip("\n") + "\n")
    sys.stdout.flush()
    failing = (FAILED, INCONCLUSIVE) if strict else (FAILED,)
    failed = [check for check in found.checks if check.outcome in failing]
    for check in found.checks:
        if check not in failed and check.outcome == INCONCLUSIVE:
            say(f"--fail-if '{check.text}' is inconclusive: {check.says}")
    if failed:
        said = "; ".join(f"'{check.text}' {check.outcome}: {check.says}" for check in failed)
        raise CheckFailedError(f"--fail-if {said}")


def _sides(runs: list[str], a: list[str], b: list[str]) -> tuple[list[str], list[str]]:
    if a or b:
        if runs or not (a and b):
            raise BadInputError("compare: give --a and --b, each once or more, or two arguments")
        return _listed(a), _listed(b)
    if len(runs) != 2:
        raise BadInputError(f"compare: give two sides, not {len(runs)}; separate several Runs of one side by commas")
    return _listed(runs[:1]), _listed(runs[1:])


def _listed(texts: list[str]) -> list[str]:
    """Paths; a text with commas is split unless a file of that name exists.

    Raises:
        BadInputError: If a text is empty.
    """
    found = []
    for text in texts:
        parts = [text] if Path(text).exists() else [part for part in text.split(",") if part]
        if not parts:
            raise BadInputError(f"compare: {text!r} names no Run")
        found += parts
    return found
