"""``jouletrace calibrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs


def calibrate(
    device: options.Device = "auto",
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Length of the pulse train.")] = 16.0,
    output: options.Output = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Measure the response of this GPU's power sensors.

    A load is switched on and off; all takes half a minute.

    The result is stored by UUID and driver version, and used by profile and measure.
    """
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.errors import BadInputError
    from jouletrace.profiler.calibrate import calibrate as run_calibration
    from jouletrace.recording.session import command_line

    form = check_form(form, json)
    if not 10 <= seconds <= 600:
        raise BadInputError(f"--seconds {seconds:g}: must be between 10 and 600 s")
    with Destination(output, "calibration") as destination:
        with ProgressLine() as progress:
            run = run_calibration(
                device, seconds=seconds, folder=destination.folder, command=command_line(), progress=progress
            )
        destination.done(run, more=form == "table" and not verbose)
        print_runs([run], form=form, verbose=verbose)


COMMAND = Command(
    "Measure",
    "The response of this GPU's power sensors, in a minute.",
    (
        "jouletrace calibrate",
        "jouletrace calibrate --device cuda:1 --seconds 90",
    ),
    calibrate,
)
