"""``jouletrace sweep``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.campaigns import conclude, say_plan
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, say
from jouletrace.option import number, whole
from jouletrace.profiler.settings import ProfileSettings


@options.from_settings(ProfileSettings, *options.all_but(ProfileSettings, "batch", "seq_len", "dtype", "mode"))
def sweep(
    settings: ProfileSettings,
    workloads: Annotated[list[str] | None, typer.Argument(metavar="WORKLOAD...", help="As for profile.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="N,N,...", help="Samples per iteration: 1,8,64.")] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", "--prompt-len", metavar="N,N,...", help="Tokens per sample.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME,...", help="fp32, tf32, fp16, bf16, fp64, amp.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="NAME,...", help="eager, graph, compile.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each point, in turns; shows their spread.")] = 1,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="What a point must meet to be recommended: p99<20ms, time<+3%, ttft<200ms,tpot<20ms."
        ),
    ] = None,
    power_limit: Annotated[
        str | None, typer.Option(metavar="W,W,...", help="Power limits of the GPU; needs --yes and root.")
    ] = None,
    clock: Annotated[
        str | None, typer.Option(metavar="MHz,MHz,...", help="SM clocks to lock; needs --yes and root.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Permit changing the GPU's power limit and clock; they are restored.")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Only restore what a killed sweep or tune changed.")
    ] = False,
    on: options.On = None,
    part: Annotated[
        str | None, typer.Option(metavar="K/N", help="Measure every N-th point from the K-th only, beside other parts.")
    ] = None,
    point_limit: options.PointLimit = 600.0,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    output: options.Campaign = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Profile a grid of workloads and options, one Run per point.

    A value of --config may be several, each a point: --config size=1024,4096. After a point that runs out of memory,
    fails or hangs, the grid continues; if points have failed or hung, the exit code is 3. Repeat the command with the
    same -o to measure what is missing; without --part after all parts, it prints the whole grid. With --on, each point
    is on any GPU of the cluster, and its row names it.
    """
    from jouletrace.campaign.cluster import cluster
    from jouletrace.campaign.limits import parse_limits
    from jouletrace.campaign.loop import OUT_OF_MEMORY, folder_of
    from jouletrace.campaign.sweep import POINTS, SweepGrid, parse_part, run_sweep, varied
    from jouletrace.cli.progress import ProgressLine, quiet_output
    from jouletrace.profiler.gpu_settings import restore as restored
    from jouletrace.report.sweep import render
    from jouletrace.run.files import quoted
    from jouletrace.run.store import restate

    if restore:
        said = [f"the {restored_value}" for restored_value in restored(settings.device)]
        say(" and ".join(said) or "jouletrace has left no setting changed")
        return
    form, limits, kept = check_form(form, json), parse_limits(limit), options.tariff(price, carbon).settings
    fixed, config = varied(settings.config)
    settings = replace(settings, config=fixed)
    grid = SweepGrid(
        tuple(workloads or []),
        options.parse_values(batch, "--batch", whole),
        options.parse_values(seq_len, "--seq-len", whole),
        options.parse_values(dtype, "--dtype", str),
        options.parse_values(mode, "--mode", str),
        options.parse_values(power_limit, "--power-limit", number),
        options.parse_values(clock, "--clock", number),
        config,
    )
    there = cluster(on, settings.device)
    say_plan(settings.device, grid.of_gpu())
    with folder_of(output, "sweep") as folder:
        with ProgressLine() as progress, quiet_output():
            points, tally = run_sweep(
                grid,
                settings,
                folder,
                limits=limits,
                repeats=repeats,
                limit_s=point_limit,
                permitted=yes,
                progress=progress,
                on=there,
                part=parse_part(part),
            )
        for entry in points if kept else ():
            if entry.run is not None:
                restate(Path(entry.place), kept)
        if any(entry.run is not None for entry in points):
            say(f"saved {folder}; its Runs: jouletrace show {quoted(folder / POINTS)}")
            sys.stdout.write(render(points, form, colour=sys.stdout.isatty()))
            sys.stdout.flush()
        conclude(tally, folder, "points" if repeats == 1 else "runs", answer=OUT_OF_MEMORY)


COMMAND = Command(
    "Compare",
    "A grid of workloads and options, one Run per point.",
    (
        "jouletrace sweep deit-b --batch 1,8,64 --dtype fp16,bf16 -o grid",
        "jouletrace sweep deit-b --power-limit 300,400 --yes",
    ),
    sweep,
)
