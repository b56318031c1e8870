"""Options that are fields of a dataclass, shared by the command line and Python."""

from typing import Annotated

import typer
from typer.testing import CliRunner

from jouletrace.cli import options
from jouletrace.profiler import ProfileSettings


def commanded():
    """A command with two of the fields, and what it was called with."""
    calls = []

    @options.from_settings(ProfileSettings, "batch", "target_ci", "warmup_s", "config", warmup_s=2.0)
    def command(
        settings: ProfileSettings,
        workload: Annotated[str, typer.Argument()],
        repeats: Annotated[int, typer.Option()] = 1,
    ) -> None:
        """Do it."""
        calls.append((workload, settings, repeats))

    return command, calls


def test_fields_are_options_with_their_units_left_out():
    command, calls = commanded()
    app = typer.Typer()
    app.command()(command)
    typed = ["toy", "--batch", "8", "--target-ci", "2%", "--warmup", "1.5", "--config", "a=1", "--config", "b=2"]
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 0, done.output
    assert calls == [("toy", ProfileSettings(batch=8, target_ci=0.02, warmup_s=1.5, config={"a": "1", "b": "2"}), 1)]


def test_the_command_is_called_from_python_with_the_usual_values():
    command, calls = commanded()
    command("toy", repeats=3)
    assert calls == [("toy", ProfileSettings(warmup_s=2.0), 3)]
