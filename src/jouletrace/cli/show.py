"""``jouletrace show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import check_form, print_runs

if TYPE_CHECKING:
    from jouletrace.run import Run


def show(
    runs: Annotated[list[str], typer.Argument(help="Runs: folders or .zip files.", metavar="RUN...")],
    detail: options.Detail = "model",
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Print what one or several Runs found, in several formats."""
    form = check_form(form, json)
    print_runs([_opened(path) for path in runs], form=form, detail=detail, top=top)


def _opened(path: str) -> Run:
    """The Run at a path; one that was cut off before its figures were computed gets them now."""
    from jouletrace.analysis import analyse
    from jouletrace.run import load

    run = load(path)
    return analyse(run) if run.kind in ("profile", "monitor") and len(run.results) == 0 else run
