"""``jouletrace show``."""

from __future__ import annotations

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
            "[default: what one Run was made with; kernels of an import; else model]"
        ),
    ] = None,
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Print what one or several Runs found, in several formats; a Run of ab says first how its two sides compare."""
    form = check_form(form, json)
    print_runs([opened(path) for path in runs], form=form, detail=detail, top=top)
