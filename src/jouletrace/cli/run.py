"""``jouletrace run``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, launched, print_runs
from jouletrace.option import number

if TYPE_CHECKING:
    from jouletrace.tracer.launching import Duty


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
        bool, typer.Option(help="Mark modules of torch and, for a part of the time, its operators.")
    ] = True,
    duty: Annotated[
        str | None,
        typer.Option(
            metavar="S/PERIOD",
            help="Trace the first 30 s, then S seconds of every PERIOD, as 5/60. [default: all until 1.5 million "
            "kernels, then 5/60]",
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Print power, energy and what runs, every 2 s.")] = False,
    absolute: options.Absolute = False,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    no_context: options.NoContext = False,
    output: options.Output = None,
    top: options.Top = None,
    verbose: options.Verbose = False,
    advice: options.Advice = "brief",
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Run a program unchanged and show where its energy goes: ranges, modules, operators, kernels, idle.

    Processes that it starts are traced, too, in any language (torchrun, servers with workers). The exit code is that of
    the program. Options of jouletrace come before the script.
    """
    from jouletrace.profiler.program.command import program_of

    form, advised = check_form(form, json), options.is_advised(advice)
    given = options.tariff(price, carbon)
    options.check_before_program("run", device, program)
    # Before what is imported next changes the environment.
    chosen = replace(program_of(program or [], module), context=not no_context)
    chosen.check()

    from jouletrace.profiler.program.program import run_program

    traced = _duty(duty)
    with (
        launched(chosen) as launcher,
        Destination(output, chosen.name.removesuffix(".py"), tariff=given) as destination,
    ):
        made = run_program(
            launcher,
            device=device or ["visible"],
            operators=operators,
            duty=traced,
            live=live,
            folder=destination.folder,
        )
        destination.done(made, more=form == "table" and not verbose)
        print_runs([made], form=form, top=top, verbose=verbose, tariff=given, advice=advised, absolute=absolute)


FIRST_S = 30.0
"""Traced at the beginning, from which powers come."""


def _duty(text: str | None) -> Duty | None:
    """The part of the program that is traced; None if none is named.

    Raises:
        BadInputError: If it isn't two numbers, the first of which is smaller.
    """
    from jouletrace.errors import BadInputError
    from jouletrace.tracer.launching import Duty

    if text is None:
        return None
    try:
        traced, every = (number(word) for word in text.split("/"))
    except ValueError:
        traced, every = 0.0, 0.0
    if not 0.5 <= traced < every <= 86400:
        raise BadInputError(f"--duty {text}: write seconds traced and the period, as 5/60; at least 0.5 s are traced")
    return Duty(first_s=FIRST_S, traced_s=traced, every_s=every)


COMMAND = Command(
    "Measure",
    "Where the energy of a program goes; it runs unchanged.",
    (
        "jouletrace run train.py --epochs 1",
        "jouletrace run --live torchrun --nproc-per-node 2 train.py",
    ),
    run,
    ends_options=True,
)
