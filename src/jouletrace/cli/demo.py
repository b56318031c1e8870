"""``jouletrace demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, in_width, print_runs, say
from jouletrace.errors import BadInputError


def demo(
    with_profile: Annotated[
        bool, typer.Option("--with-profile", help="Also profile deit-tiny on the best local device, and show both.")
    ] = False,
    top: options.Top = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Show Runs recorded on an H100 and an H200; needs neither a GPU nor torch."""
    from jouletrace.bundled import bundled_runs

    form = check_form(form, json)
    if with_profile and form == "json":
        raise BadInputError("--with-profile --json: two results are not one JSON object; request them separately")
    recorded = bundled_runs()
    for group in ([entry] for entry in recorded) if form == "table" else [list(recorded)]:
        for entry in group:
            say(in_width([f"Recorded on {entry.run.devices[0].name}:", entry.command], " "))
        print_runs([entry.run for entry in group], form=form, top=top, verbose=verbose)
    if with_profile:
        from jouletrace.cli.profile import profile

        say("On this machine: jouletrace profile deit-tiny")
        profile("deit-tiny", form=form, verbose=verbose)


COMMAND = Command(
    "Look",
    "Show Runs recorded on an H100 and an H200; needs no GPU.",
    (
        "jouletrace demo",
        "jouletrace demo --json",
    ),
    demo,
)
