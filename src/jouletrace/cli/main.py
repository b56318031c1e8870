"""The entry point: puts the commands together and turns failures into exit codes.

0 done, 1 a check failed, 2 wrong use or bad input, 3 not possible here, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import click
import typer

from jouletrace import __version__
from jouletrace.cli import calibrate, demo, doctor, export, monitor, profile, show
from jouletrace.errors import JouletraceError

app = typer.Typer(
    name="jouletrace",
    help="How much time, power and energy a deep-learning workload takes on a GPU, and where it goes.",
    epilog="Figures come with a 95 % interval and the sensor behind them. Start with: jouletrace doctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor")(doctor.doctor)
app.command("profile")(profile.profile)
app.command("monitor", context_settings={"allow_interspersed_args": False})(monitor.monitor)
app.command("calibrate")(calibrate.calibrate)
app.command("show")(show.show)
app.command("export")(export.export)
app.command("demo")(demo.demo)


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


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = app(arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        print(f"jouletrace: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except JouletraceError as error:
        print(f"jouletrace: {error}", file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("jouletrace: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`| head`): nothing more to say, and nothing to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0
