"""``jouletrace show``."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import check_form, opened, print_runs


def show(
    runs: Annotated[list[str], typer.Argument(help="Runs: folders or .zip files.", metavar="RUN...")],
    detail: Annotated[
        str | None,
        typer.Option(
            help="model, phase, layer, op, kernel or range. "
            "[default: the level of a single Run; kernel for an import; else model]"
        ),
    ] = None,
    top: options.Top = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Print the figures of one or several Runs; a Run of ab starts with the comparison of its two sides."""
    form = check_form(form, json)
    more = shlex.join(["jouletrace", "show", *runs])
    print_runs([opened(path) for path in runs], form=form, detail=detail, top=top, verbose=verbose, more=more)
