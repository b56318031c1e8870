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

    found = [one for run in runs for one in verify(run)]
    for one in [] if json else found:
        put(f"{one.place}: " + (f"whole ({one.files} files)" if one.whole else "not whole"))
        for name, problem in one.problems.items():
            put(f"  {name}: {problem}")
    if json:
        rows = [{"run": str(one.place), "whole": one.whole, "problems": one.problems} for one in found]
        put_json({"schema": 1, "runs": rows})
    broken = [one for one in found if not one.whole]
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
