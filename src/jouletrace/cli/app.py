"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Annotated, Any
from warnings import catch_warnings

import typer

from jouletrace.cli.command import Command
from jouletrace.cli.failures import INTERRUPTED, complain, usage_error
from jouletrace.cli.help import CommandHelp, GroupHelp, RootHelp, helped
from jouletrace.errors import BadInputError
from jouletrace.version import __version__
from jouletrace.wing import modules, registered, wings

_WRONG_USE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Exception of typer for usage errors: click's, or that of the click inside newer typers."""

COMMANDS: dict[str, str] = {
    name: f"jouletrace.cli.{module}"
    for name, module in (
        ("doctor", "doctor"),
        ("calibrate", "calibrate"),
        ("profile", "profile"),
        ("run", "run"),
        ("monitor", "monitor"),
        ("show", "show"),
        ("report", "report"),
        ("demo", "demo"),
        ("compare", "compare"),
        ("ab", "ab"),
        ("sweep", "sweep"),
        ("tune", "tune"),
        ("import", "import_"),
        ("export", "export"),
        ("merge", "merge"),
        ("verify", "verify"),
    )
}
"""Module of each command of the core, in the order of the help; those of wings follow."""


@cache
def commands() -> dict[str, str]:
    """Module of each command, by name. A wing can't replace a command."""
    return registered("commands", COMMANDS)


def invoke(arguments: list[str]) -> int:
    """Run the command line; returns the exit code.

    Raises:
        BaseException: Any exception of the command.
    """
    with catch_warnings(record=True, action="always", category=RuntimeWarning) as left_out:
        wings()
        tree = _tree(*arguments[:1])
    for warning in left_out:
        complain(str(warning.message))
    try:
        code = tree(arguments or ["--help"], prog_name="jouletrace", standalone_mode=False)
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
    """The commands as typer makes them; of ``name`` alone, where it is one: all take ten times as long."""
    app = typer.Typer(
        name="jouletrace",
        cls=type("Root", (RootHelp,), {"order": tuple(commands())}),
        help="How much time, power and energy a deep-learning workload takes on a GPU, and where it goes.",
        epilog="Figures come with a 95 % interval and the sensor behind them. Start with: jouletrace doctor. "
        "Examples: jouletrace COMMAND --help.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # importing rich for its frames takes longer than everything else
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    if name in commands():
        _add(app, name, import_module(commands()[name]).COMMAND)
    else:
        for command_name, module in modules("commands", COMMANDS).items():
            _add(app, command_name, module.COMMAND)
    return typer.main.get_command(app)


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


def _add(to: typer.Typer, name: str, command: Command) -> None:
    """Add a command, or a group with its commands."""
    if command.call is None:
        group = typer.Typer(name=name, help=command.about, rich_markup_mode=None)
        for part, part_command in command.parts.items():
            _add(group, part, part_command)
        to.add_typer(group, cls=helped(GroupHelp, command), short_help=command.summary, no_args_is_help=True)
        return
    settings = {"allow_interspersed_args": False} if command.ends_options else {}
    add = to.command(name, cls=helped(CommandHelp, command), short_help=command.summary, context_settings=settings)
    add(_guarded(command.call))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jouletrace {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How much time, power and energy a deep-learning workload takes on a GPU, and where it goes."""
