"""``jouletrace bill``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs


def bill(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A Run of bench, or of imported requests.")],
    steps: Annotated[
        Path | None,
        typer.Argument(metavar="[STEPS]", help="The log of the server's steps, in JSON lines.", show_default=False),
    ] = None,
    server_run: Annotated[
        Path | None,
        typer.Option("--server-run", metavar="RUN", help="The server's Run, if jouletrace run was around it."),
    ] = None,
    output: options.Output = None,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Bill each request by the steps of the server's scheduler, logged or as the answers show them.

    Energy of prefill, decode and idle, of what a step, a token and a sequence add, and of each request, which add up
    to the GPUs' energy. docs/how-to/serving.md describes the log.
    """
    from jouletrace.analysis import analyse
    from jouletrace.errors import BadInputError, NotPossibleError
    from jouletrace.recording.session import command_line
    from jouletrace.run import load, save
    from jouletrace.run.memory import bounded
    from jouletrace.wings.serving.client.steps import join, read_steps

    form, given = check_form(form, json), options.tariff(price, carbon)
    if steps is None and server_run is None:
        raise BadInputError("give the log of the server's steps, or --server-run")
    log = None
    if steps is not None:
        with bounded([steps]):
            log = read_steps(steps)
    loaded = load(run)
    try:
        joined = join(loaded, log, server_run)
    except BadInputError as error:
        raise BadInputError(f"{run}{'' if steps is None else f' and {steps}'}: {error}") from None
    billed = analyse(joined)
    billed.command = command_line()
    with Destination(output, "bill", tariff=given) as place:
        save(billed, place.folder)
        place.done(billed, more=form == "table" and not verbose)
        print_runs([billed], form=form, verbose=verbose, tariff=given)
    if not any(one is not None for one in billed.requests["energy_j"].to_pylist()):
        raise NotPossibleError("nothing was billed: no load is valid and has an energy in its steady window")


COMMAND = Command(
    "Measure",
    "Energy of each request by the steps of the server's scheduler.",
    (
        "jouletrace bill runs/bench steps.jsonl",
        "jouletrace bill runs/bench steps.jsonl --server-run runs/server",
    ),
    bill,
)
