"""``jouletrace tune``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.campaigns import say_plan
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, say
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.settings import ProfileSettings


@options.from_settings(
    ProfileSettings, *options.all_but(ProfileSettings, "detail", "detail_time_s", "target_ci", "max_time_s")
)
@options.from_targets
def tune(
    settings: ProfileSettings,
    requests: Mapping[str, Any],
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD | -- COMMAND ... | URL [-- SERVER ...]",
            help="A workload, as for profile; a program with its arguments, in which {NAME} is a value of --over; or "
            "the address of a server, with the command that starts it if its flags vary.",
        ),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="What may vary: batch=1..256 (powers of two), mode=eager,graph,compile, dtype=..., attention=..., "
            "or a key of the configuration; of a program, {NAME} in its words or else its environment; of a server "
            "also concurrency=1,4,16 or rate=1,2,4; clock=MHz,... and power_limit=W,... of the GPU (with --yes, as "
            "root); repeatable.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit",
            metavar="LIMIT",
            help="What the choice has to meet: 'p99<20ms', or 'time<+3%' of the reference; of a server "
            "'ttft<200ms,tpot<20ms', for 95 % of the requests.",
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What is to be least: energy per sample or output token, or edp (energy x time).")
    ] = "energy",
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME=VALUE,...", help="The reference. [default: the options given, else the defaults]"),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin no visit after that time: 5min, 300s. [default: none]")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Permit more than 200 settings, and changing the GPU; it is restored.")
    ] = False,
    on: options.On = None,
    point_limit: options.PointLimit = 600.0,
    output: options.Campaign = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Find the setting that takes the least energy per sample or token within a limit, and test what it saves.

    Settings are measured in turns, each round in a new process, for longer where that decides. The choice and the
    reference are then measured again in two further processes before a saving is promised. With --on, all of it is on
    one GPU of the cluster.
    """
    from jouletrace.campaign.cluster import cluster
    from jouletrace.campaign.limits import parse_limits
    from jouletrace.campaign.loop import folder_of, keep
    from jouletrace.campaign.targets import parse_over
    from jouletrace.campaign.tune import CHOSEN, REFERENCE, run_tune, shares_of, target_of
    from jouletrace.cli.progress import ProgressLine, quiet_output
    from jouletrace.report.tune import render, write_page
    from jouletrace.run.files import quoted

    form, dimensions = check_form(form, json), parse_over(over or [])
    limits = parse_limits(limit, shares=shares_of(what, dimensions, settings.device))
    with folder_of(output, "tune") as folder:
        with ProgressLine() as progress, quiet_output():
            there = cluster(on, settings.device)
            target = target_of(what, settings, limits, point_limit, dimensions, requests)
            if there is None:
                say_plan(target.device, dimensions)
            result, ended_by = run_tune(
                target,
                dimensions,
                folder,
                limits=limits,
                objective=objective,
                against=options.parse_pairs((against or "").split(",") if against else [], "--against"),
                budget_s=options.parse_duration(budget, "--budget") if budget else math.inf,
                permitted=yes,
                progress=progress,
                on=there,
            )
        if result is None:
            say(f"nothing is measured yet; the same command with -o {quoted(folder)} goes on")
        else:
            sys.stdout.write(render(result, form, colour=sys.stdout.isatty()))
            sys.stdout.flush()
            keep(folder / "settings.csv", render(result, "csv"))
            try:
                write_page(result, folder / "tune.html")
                pictured = "; tune.html has the front"
            except NotPossibleError:  # plotly is an extra
                pictured = ""
            say(f"saved {folder}{pictured}")
            if form == "table" and (folder / CHOSEN).exists():
                chosen, reference = quoted(folder / CHOSEN), quoted(folder / REFERENCE)
                say(f"why: jouletrace compare {reference} {chosen}")
                say(f"as a gate: jouletrace compare {chosen} NEW --fail-if 'energy>3%'")
    if ended_by is not None:
        raise ended_by


COMMAND = Command(
    "Compare",
    "The setting with the least energy within a limit.",
    (
        "jouletrace tune deit-b --over batch=1..256 --limit 'p99<20ms'",
        "jouletrace tune bert-l --over dtype=fp32,tf32,bf16 --limit 'time<+3%'",
        "jouletrace tune http://127.0.0.1:8000 --over rate=1,2,4 --limit 'ttft<0.2'",
    ),
    tune,
)
