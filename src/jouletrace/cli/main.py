"""The entry point: puts the commands together and turns failures into exit codes.

0 done, 1 a check failed, 2 wrong use or bad input, 3 not possible here, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NoReturn

import typer

from jouletrace import __version__
from jouletrace.cli import calibrate, demo, doctor, export, monitor, profile, show
from jouletrace.errors import BadInputError, JouletraceError

INTERRUPTED = 130

_WRONG_USE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises for wrong options: click's own exception, or that of the click inside newer typers."""

app = typer.Typer(
    name="jouletrace",
    help="How much time, power and energy a deep-learning workload takes on a GPU, and where it goes.",
    epilog="Figures come with a 95 % interval and the sensor behind them. Start with: jouletrace doctor",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, its failures turned into exit codes before typer, version by version, does so otherwise."""

    @wraps(command)
    def run_command(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except JouletraceError as error:
            _complain(str(error))
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            _complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (BrokenPipeError, SystemExit):  # rich makes the second of the first
            # The reader of our output has left (`| head`): nothing more to say, and nothing to flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return run_command


app.command("doctor")(_guarded(doctor.doctor))
app.command("profile")(_guarded(profile.profile))
app.command("monitor", context_settings={"allow_interspersed_args": False})(_guarded(monitor.monitor))
app.command("calibrate")(_guarded(calibrate.calibrate))
app.command("show")(_guarded(show.show))
app.command("export")(_guarded(export.export))
app.command("demo")(_guarded(demo.demo))


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
        code = app(arguments or ["--help"], standalone_mode=False)
    except _WRONG_USE as error:
        _complain(error.format_message())
        return BadInputError.exit_code
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _complain(text: str) -> None:
    """One line on stderr."""
    print(f"jouletrace: {' '.join(text.split())}", file=sys.stderr)
