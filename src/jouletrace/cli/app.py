"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from jouletrace.cli import (
    ab,
    calibrate,
    compare,
    convert,
    demo,
    doctor,
    export,
    fleet,
    import_,
    merge,
    mig,
    mig_sweep,
    monitor,
    profile,
    report,
    run,
    show,
    sweep,
    trace,
    usage_errors,
    verify,
)
from jouletrace.cli.failures import INTERRUPTED, complain
from jouletrace.errors import BadInputError
from jouletrace.version import __version__

_WRONG_USE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Exception of typer for usage errors: click's, or that of the click inside newer typers."""

app = typer.Typer(
    name="jouletrace",
    help="How much time, power and energy a deep-learning workload takes on a GPU, and where it goes.",
    epilog="Figures come with a 95 % interval and the sensor behind them. Start with: jouletrace doctor",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for its frames takes longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)


def invoke(arguments: list[str]) -> int:
    """Run the command line; returns the exit code.

    Raises:
        BaseException: Any exception of the command.
    """
    try:
        code = app(arguments or ["--help"], standalone_mode=False)
    except _WRONG_USE as error:
        complain(usage_errors.said(error))
        return BadInputError.exit_code
    except _Carried as carried:
        if isinstance(carried.error, typer.Exit):
            return carried.error.exit_code
        raise carried.error from carried.error.__cause__
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:  # interrupted before the command began: typer has handled it
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


class _Carried(Exception):
    """Carries an exception of a command past typer, whose versions convert some exceptions differently."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with its exceptions wrapped."""

    @wraps(command)
    def run_command(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except BaseException as error:
            raise _Carried(error) from None

    return run_command


app.command("doctor")(_guarded(doctor.doctor))
app.command("run", context_settings={"allow_interspersed_args": False})(_guarded(run.run))
app.command("profile")(_guarded(profile.profile))
app.command("monitor", context_settings={"allow_interspersed_args": False})(_guarded(monitor.monitor))
app.command("calibrate")(_guarded(calibrate.calibrate))
app.command("show")(_guarded(show.show))
app.command("report")(_guarded(report.report))
app.command("compare")(_guarded(compare.compare))
app.command("ab")(_guarded(ab.ab))
app.command("sweep")(_guarded(sweep.sweep))
app.command("import")(_guarded(import_.import_))
app.command("verify")(_guarded(verify.verify))
app.command("merge")(_guarded(merge.merge))
app.command("export")(_guarded(export.export))
app.command("convert")(_guarded(convert.convert))
app.command("trace")(_guarded(trace.trace))
app.command("demo")(_guarded(demo.demo))

mig_app = typer.Typer(help="Divide a GPU into slices (MIG), and measure workloads on them.", rich_markup_mode=None)
mig_app.command("list")(_guarded(mig.list_profiles))
mig_app.command("plan")(_guarded(mig.plan))
mig_app.command("apply")(_guarded(mig.apply))
mig_app.command("restore")(_guarded(mig.restore))
mig_app.command("sweep")(_guarded(mig_sweep.sweep))
app.add_typer(mig_app, name="mig", no_args_is_help=True)

fleet_app = typer.Typer(help="The same load on many GPUs and hosts, and how much they differ.", rich_markup_mode=None)
fleet_app.command("run")(_guarded(fleet.run))
fleet_app.command("report")(_guarded(fleet.report))
app.add_typer(fleet_app, name="fleet", no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jouletrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How much time, power and energy a deep-learning workload takes on a GPU, and where it goes."""
