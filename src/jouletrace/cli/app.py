"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache, wraps
from typing import Annotated, Any

import typer

from jouletrace.cli import (
    ab,
    bench,
    bill,
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
    monitor,
    profile,
    report,
    run,
    show,
    sweep,
    trace,
    tune,
    verify,
)
from jouletrace.cli.failures import INTERRUPTED, complain, usage_error
from jouletrace.cli.help import SUMMARIES, Command, Commands
from jouletrace.errors import BadInputError
from jouletrace.version import __version__

_WRONG_USE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Exception of typer for usage errors: click's, or that of the click inside newer typers."""

app = typer.Typer(
    name="jouletrace",
    cls=Commands,
    help="How much time, power and energy a deep-learning workload takes on a GPU, and where it goes.",
    epilog="Figures come with a 95 % interval and the sensor behind them. Start with: jouletrace doctor. "
    "Examples: jouletrace COMMAND --help.",
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
        code = _tree(*arguments[:1])(arguments or ["--help"], prog_name="jouletrace", standalone_mode=False)
    except _WRONG_USE as error:
        complain(usage_error(error))
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


@cache
def _tree(name: str = "") -> Any:
    """The commands as typer makes them of ``app``; of ``name`` alone, where it is one: all take ten times as long."""
    own = [one for one in app.registered_commands if one.name == name]
    groups = [one for one in app.registered_groups if one.typer_instance and one.typer_instance.info.name == name]
    if not own and not groups:
        return typer.main.get_command(app)
    part = copy(app)
    part.registered_commands, part.registered_groups = own, groups
    return typer.main.get_command(part)


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


_OPTIONS_FIRST = {"allow_interspersed_args": False}
"""Behind the first argument all words belong to the program that the command runs."""


def _add(to: typer.Typer, name: str, command: Callable[..., None], **settings: bool) -> None:
    """Add a command with its summary and examples."""
    group = f"{to.info.name} " if to is not app else ""
    add = to.command(name, cls=Command, short_help=SUMMARIES[group + name], context_settings=dict(settings))
    add(_guarded(command))


_add(app, "doctor", doctor.doctor)
_add(app, "run", run.run, **_OPTIONS_FIRST)
_add(app, "profile", profile.profile)
_add(app, "bench", bench.bench)
_add(app, "bill", bill.bill)
_add(app, "monitor", monitor.monitor, **_OPTIONS_FIRST)
_add(app, "calibrate", calibrate.calibrate)
_add(app, "show", show.show)
_add(app, "report", report.report)
_add(app, "compare", compare.compare)
_add(app, "ab", ab.ab)
_add(app, "sweep", sweep.sweep)
_add(app, "tune", tune.tune)
_add(app, "import", import_.import_)
_add(app, "verify", verify.verify)
_add(app, "merge", merge.merge)
_add(app, "export", export.export)
_add(app, "convert", convert.convert)
_add(app, "trace", trace.trace)
_add(app, "demo", demo.demo)

mig_app = typer.Typer(
    name="mig", help="Divide a GPU into slices (MIG), and measure workloads on them.", rich_markup_mode=None
)
_add(mig_app, "list", mig.list_profiles)
_add(mig_app, "plan", mig.plan)
_add(mig_app, "apply", mig.apply)
_add(mig_app, "restore", mig.restore)
_add(mig_app, "sweep", mig.sweep)
_add(mig_app, "bench", mig.bench)
app.add_typer(mig_app, short_help=SUMMARIES["mig"], no_args_is_help=True)

fleet_app = typer.Typer(
    name="fleet", help="The same load on many GPUs and hosts, and how much they differ.", rich_markup_mode=None
)
_add(fleet_app, "run", fleet.run)
_add(fleet_app, "report", fleet.report)
app.add_typer(fleet_app, short_help=SUMMARIES["fleet"], no_args_is_help=True)


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
