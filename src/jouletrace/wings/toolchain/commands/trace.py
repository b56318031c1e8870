"""``jouletrace trace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs, say
from jouletrace.profiler.settings import ProfileSettings

if TYPE_CHECKING:
    from jouletrace.run import Run

TRACED = "cuda,cudnn,cublas,osrt,nvtx"


@options.from_settings(ProfileSettings, "device", "batch", "seq_len", "dtype", "mode", "seed")
def trace(
    settings: ProfileSettings,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD | -- COMMAND ...", help="A workload, as for profile, or a program with its arguments."
        ),
    ],
    tool: Annotated[str, typer.Option("--with", help="nsys (a timeline) or ncu (counters per kernel).")],
    iterations: Annotated[int, typer.Option(help="Traced iterations of a workload.")] = 1,
    section: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Section of ncu counters, or set:NAME; repeatable. "
            "[default: LaunchStats, Occupancy, SpeedOfLight, ComputeWorkloadAnalysis]",
        ),
    ] = None,
    launch_count: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of launches that ncu profiles.")
    ] = None,
    launch_skip: Annotated[int, typer.Option(metavar="N", help="Launches that ncu skips first.")] = 0,
    traced: Annotated[str, typer.Option("--trace", metavar="WHAT,...", help="APIs that nsys traces.")] = TRACED,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="The tool is ended after this time.")] = 600.0,
    output: options.Output = None,
    top: options.Top = 20,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Run a workload or a program under nsys or ncu, and import its output with the power drawn meanwhile.

    The tool's own files are kept in the Run's folder (not in a .zip). For ncu, which runs every kernel several times,
    a workload is first traced without it, so that the counters are joined to an undisturbed timeline.
    """
    from jouletrace.cli.progress import quiet_output
    from jouletrace.recording.session import command_line
    from jouletrace.wings.toolchain.trace import TraceSettings, what
    from jouletrace.wings.toolchain.trace import trace as run_traced

    form = check_form(form, json)
    chosen = {"sections": tuple(section)} if section else {}
    how = TraceSettings(
        tool, iterations, launches=launch_count, skip=launch_skip, trace=traced, limit_s=time_limit, **chosen
    )
    with quiet_output():
        found = what(target)
    name = found[0].rpartition("/")[2] if isinstance(found, list) else found.name
    with Destination(output, f"{name}-{tool}") as place:
        with quiet_output():
            run = run_traced(found, how, settings, place.folder, typed=command_line(), say=say)
        place.done(run)
        _say_matched(run)
        print_runs([run], form=form, detail="kernel", top=top)


def _say_matched(run: Run) -> None:
    """Report how many launches were matched to kernels of the timeline."""
    for one in run.settings["imported"]:
        match = one.get("match")
        if match:
            say(
                f"{match['matched']} of {match['launches']} launches matched to the timeline's kernels "
                f"({match['rate']:.1%}); {match['ambiguous']} ambiguous, {match['unknown']} not in it"
            )


COMMAND = Command(
    "Other runtimes and profilers",
    "Run a workload or a program under nsys or ncu.",
    (
        "jouletrace trace --with ncu deit-t",
        "jouletrace trace --with nsys -- python train.py",
    ),
    trace,
)
