"""``jouletrace run``."""

from __future__ import annotations

from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import Place, check_form, print_runs, say


def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS...]", help="A Python script with its arguments, as for python."),
    ] = None,
    module: Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does.")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", help="visible, all, or as for profile; repeatable. [default: visible]"),
    ] = None,
    operators: Annotated[
        bool, typer.Option(help="Sample operators and modules of torch, for a few iterations.")
    ] = True,
    output: options.Output = None,
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Run a Python program unchanged and show where its energy goes: ranges, modules, operators, kernels, idle.

    The exit code is that of the program. Options of jouletrace come before the script.
    """
    from jouletrace.profiler.program.program import Settings, run_program
    from jouletrace.profiler.program.script import script_of
    from jouletrace.recording.session import command_line

    form = check_form(form, json)
    script = script_of(program or [], module)
    script.check()
    settings = Settings(device or ["visible"], operators)
    with Place(output, script.name.removesuffix(".py")) as place:
        found, code = run_program(script, settings, folder=place.folder, command=command_line())
        place.done(found)
        print_runs([found], form=form, top=top)
    if code:
        say(f"{script.name} ended with exit code {code}")
        raise typer.Exit(code)
