"""``jouletrace tune``."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import check_form, say
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.settings import ProfileSettings


@options.from_settings(
    ProfileSettings, *options.all_but(ProfileSettings, "detail", "detail_time_s", "target_ci", "max_time_s")
)
def tune(
    settings: ProfileSettings,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD | -- COMMAND ...",
            help="A workload, as for profile; or a program with its arguments, in which {NAME} is a value of --over.",
        ),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="What may vary: batch=1..256 (powers of two), mode=eager,graph,compile, dtype=..., attention=..., "
            "or a key of the configuration; of a program, {NAME} in its words or else its environment; repeatable.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit", metavar="LIMIT", help="What the choice has to meet: 'p99<20ms', or 'time<+3%' of the reference."
        ),
    ] = None,
    objective: Annotated[str, typer.Option(help="What is to be least: energy per sample, or edp (energy x time).")] = (
        "energy"
    ),
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME=VALUE,...", help="The reference. [default: the options given, else the defaults]"),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin no process after that time: 5min, 300s. [default: none]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Permit more than 200 settings.")] = False,
    point_limit: options.PointLimit = 600.0,
    output: options.Campaign = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Find the setting that takes the least energy per sample within a limit, and test what it saves.

    Settings are measured in turns, each round in a new process, for longer where that decides. The choice and the
    reference are then measured again in two further processes before a saving is promised.
    """
    from jouletrace.campaign.limits import parse_limits
    from jouletrace.campaign.loop import folder_of
    from jouletrace.campaign.targets import parse_over
    from jouletrace.campaign.tune import CHOSEN, REFERENCE, run_tune, target_of
    from jouletrace.cli.progress import ProgressLine, quiet_output
    from jouletrace.report.tune import render, write_page
    from jouletrace.run.files import quoted, write_whole
    from jouletrace.run.places import file_mode

    form, limits = check_form(form, json), parse_limits(limit)
    with folder_of(output, "tune") as folder:
        with ProgressLine() as progress, quiet_output():
            found, ended_by = run_tune(
                target_of(what, settings, limits, point_limit),
                parse_over(over or []),
                folder,
                limits=limits,
                objective=objective,
                against=options.parse_pairs((against or "").split(",") if against else [], "--against"),
                budget_s=options.parse_duration(budget, "--budget") if budget else math.inf,
                permitted=yes,
                progress=progress,
            )
        if found is None:
            say(f"nothing is measured yet; the same command with -o {quoted(folder)} goes on")
        else:
            write_whole(folder / "settings.csv", render(found, "csv").encode(), mode=file_mode())
            try:
                write_page(found, folder / "tune.html")
                pictured = "; tune.html has the front"
            except NotPossibleError:  # plotly is an extra
                pictured = ""
            sys.stdout.write(render(found, form, colour=sys.stdout.isatty()))
            sys.stdout.flush()
            say(f"saved {folder}{pictured}")
            if form == "table" and (folder / CHOSEN).exists():
                chosen, reference = quoted(folder / CHOSEN), quoted(folder / REFERENCE)
                say(f"why: jouletrace compare {reference} {chosen}")
                say(f"as a gate: jouletrace compare {chosen} NEW --fail-if 'energy>3%'")
    if ended_by is not None:
        raise ended_by
