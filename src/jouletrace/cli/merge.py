"""``jouletrace merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, print_runs


def merge(
    place: Annotated[
        Path, typer.Argument(help="The save_to of jt.record: a folder with rank-0, rank-1, ..., or the .zip.")
    ],
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Merge the recordings of the ranks of one program into one Run.

    jt.record merges them when its first rank ends normally; this command is for ranks that a launcher killed before.
    The parts are kept, and missing ones are named.
    """
    from jouletrace.profiler.record.ranks import merge_ranks

    form = check_form(form, json)
    print_runs([merge_ranks(place)], form=form, detail="model", top=top)


COMMAND = Command(
    "Import and export",
    "Join the recordings of the ranks of one program.",
    ("jouletrace merge runs/mine",),
    merge,
)
