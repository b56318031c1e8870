"""``jouletrace verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import put, put_json
from jouletrace.errors import CheckFailedError


def verify(
    runs: Annotated[
        list[str], typer.Argument(help="Runs: folders, which may hold several Runs, or .zip files.", metavar="RUN...")
    ],
    json: options.Json = False,
) -> None:
    """Compare the files of Runs with their saved checksums; differences are listed, with exit code 1."""
    from jouletrace.run.loading import verify

    verified = [checked_run for run in runs for checked_run in verify(run)]
    for checked_run in [] if json else verified:
        put(f"{checked_run.place}: " + (f"whole ({checked_run.files} files)" if checked_run.whole else "not whole"))
        for name, problem in checked_run.problems.items():
            put(f"  {name}: {problem}")
    if json:
        rows = [
            {"run": str(checked_run.place), "whole": checked_run.whole, "problems": checked_run.problems}
            for checked_run in verified
        ]
        put_json({"schema": 1, "runs": rows})
    broken = [checked_run for checked_run in verified if not checked_run.whole]
    if broken:
        names = ", ".join(broken[0].problems)
        more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise CheckFailedError(f"{broken[0].place} is not whole: {names}{more}")


COMMAND = Command(
    "Import and export",
    "Compare the files of Runs with their checksums.",
    ("jouletrace verify runs/mine",),
    verify,
)
