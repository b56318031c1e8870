"""``jouletrace calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs

if TYPE_CHECKING:
    from jouletrace.profiler.calibrate import LoggedMeter


def calibrate(
    device: options.Device = "auto",
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Length of the pulse train.")] = 16.0,
    meter: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What a meter of this GPU's supply logs meanwhile.")
    ] = None,
    meter_accuracy: Annotated[
        str | None, typer.Option(metavar="LIMIT", help="Of the meter, by its data sheet: 0.5% or 0.1%+0.2W.")
    ] = None,
    shift: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds to add to the meter's times. [default: determined]")
    ] = None,
    column: options.Map = None,
    recorded: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Of calibrate --meter: use it, and record none.")
    ] = None,
    output: options.Output = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Measure the response of this GPU's power sensors.

    A load is switched on and off; all takes half a minute.

    The result is stored by UUID and driver version, and used by profile and measure. With --meter the load is also held
    at nine levels for 90 s: gain and offset of the sensor against the meter then correct all later figures.
    """
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.errors import BadInputError
    from jouletrace.profiler.calibrate import calibrate as run_calibration
    from jouletrace.profiler.calibrate import calibrate_recorded
    from jouletrace.recording.session import command_line
    from jouletrace.run import Run, load, save

    form = check_form(form, json)
    if not 10 <= seconds <= 600:
        raise BadInputError(f"--seconds {seconds:g}: must be between 10 and 600 s")
    against = _meter(meter, meter_accuracy, shift, options.parse_pairs(column or [], "--map"))
    if recorded is not None and against is None:
        raise BadInputError("--run: needs --meter, whose file it is calibrated against")
    with Destination(output, "calibration") as destination:
        if recorded is not None and against is not None:
            run = calibrate_recorded(load(recorded), against)
            run.id, run.command = Run(run.kind).id, command_line()
            save(run, destination.folder, overwrite=True)
        else:
            with ProgressLine() as progress:
                run = run_calibration(
                    device,
                    seconds=seconds,
                    folder=destination.folder,
                    command=command_line(),
                    progress=progress,
                    meter=against,
                )
        destination.done(run, more=form == "table" and not verbose)
        print_runs([run], form=form, verbose=verbose)


def _meter(
    file: Path | None, accuracy: str | None, shift_s: float | None, columns: dict[str, str]
) -> LoggedMeter | None:
    """The meter that options state; None without one."""
    from jouletrace.analysis.meter import accuracy_of
    from jouletrace.errors import BadInputError
    from jouletrace.formats.importers import import_files
    from jouletrace.profiler.calibrate import LoggedMeter

    if file is None:
        if accuracy is not None or shift_s is not None or columns:
            raise BadInputError("--meter-accuracy, --shift, --map: they are of a --meter, which is missing")
        return None
    if accuracy is None:
        raise BadInputError("--meter: state its accuracy, --meter-accuracy 0.5%: without it a calibration has no ±")
    return LoggedMeter(file.name, lambda: import_files(file, map=columns), accuracy_of(accuracy), shift_s)


COMMAND = Command(
    "Measure",
    "The response of this GPU's power sensors, in a minute.",
    (
        "jouletrace calibrate",
        "jouletrace calibrate --device cuda:1 --seconds 90",
        "jouletrace calibrate --meter spl.txt --meter-accuracy 0.5%",
    ),
    calibrate,
)
