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
        typer.Argument(
            metavar="SCRIPT|COMMAND|MODULE [ARGS...]", help="A script, as for python, or any command, with arguments."
        ),
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
    """Run a program unchanged and show where its energy goes: ranges, modules, operators, kernels, idle.

    Processes that it starts are traced where they are Python, too (torchrun, servers with workers). The exit code is
    that of the program. Options of jouletrace come before the script.
    """
    from jouletrace.profiler.program.command import program_of
    from jouletrace.profiler.program.program import Settings, run_program
    from jouletrace.recording.session import command_line

    form = check_form(form, json)
    chosen = program_of(program or [], module)
    chosen.check()
    settings = Settings(device or ["visible"], operators)
    with Place(output, chosen.name.removesuffix(".py")) as place:

        def show(found: Run, code: int) -> None:
            print_any_text()
            place.done(found)
            print_runs([found], form=form, top=top)
            place.close()
            if code:
                say(f"{chosen.name} ended with exit code {code}")

        print_as_python()
        _, code = run_program(chosen, settings, folder=place.folder, command=command_line(), ends=True, then=show)
    if code:
        raise typer.Exit(code)
