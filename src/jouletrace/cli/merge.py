"""``jouletrace merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import check_form, print_runs


def merge(
    place: Annotated[
        Path, typer.Argument(help="What save_to was in jt.record: a folder of rank-0, rank-1, ..., or the .zip.")
    ],
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Merge what the ranks of one program recorded into one Run.

    jt.record does it itself when its first rank ends in order; this is for what a launcher killed before.
    Parts stay where they are, and what is missing is named.
    """
    from jouletrace.profiler.record.merge_ranks import merge_ranks

    form = check_form(form, json)
    print_runs([merge_ranks(place)], form=form, detail="model", top=top)
