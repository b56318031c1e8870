"""``jouletrace run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.encoding import print_any_text, print_as_python
from jouletrace.cli.output import Place, check_form, print_runs, say

if TYPE_CHECKING:
    from jouletrace.run import Run


def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT|MODULE [ARGS...]", help="What to run, with its arguments, as for python."),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as python -m does.")] = False,
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

        def show(found: Run, code: int) -> None:
            print_any_text()
            place.done(found)
            print_runs([found], form=form, top=top)
            place.close()
            if code:
                say(f"{script.name} ended with exit code {code}")

        print_as_python()
        _, code = run_program(script, settings, folder=place.folder, command=command_line(), ends=True, then=show)
    if code:
        raise typer.Exit(code)
