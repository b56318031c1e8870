"""The cell magic of IPython: ``%load_ext jouletrace``, then ``%%joules`` at the head of a cell."""

from __future__ import annotations

import argparse
import ast
import shlex
import warnings
from typing import Any, NoReturn

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.profiler.record.live import record


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%joules`` with a shell of IPython."""
    shell.register_magic_function(lambda line, cell: joules(shell, line, cell), "cell", "joules")


def joules(shell: Any, line: str, cell: str) -> None:
    """Run a cell within a recording and print what took most of its energy; ``line`` holds options of ``record``.

    Afterwards ``_joules`` is the Run of the recording, and ``_joules_split`` that of its kernels or None.

    A cell that doesn't compile is not recorded, and IPython shows its error. Where nothing is recorded, ``_joules`` is
    still the Run of the cell before.

    Raises:
        UsageError: If the cell can't be recorded; IPython shows its one line without a traceback.
    """
    from IPython.core.error import UsageError

    if not _compiles(shell, cell):
        shell.run_cell(cell)
        return
    try:
        recording = record(**_options(line))
        recording.__enter__()
        for name in ("_joules", "_joules_split"):  # those of the cell before must not be taken for this one's
            shell.user_ns.pop(name, None)
        error: BaseException | None = None
        try:
            outcome = shell.run_cell(cell)  # which shows its errors
            error = outcome.error_before_exec or outcome.error_in_exec
        except BaseException as failure:  # of the shell itself
            error = failure
            raise
        finally:
            recording.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except JouletraceError as refused:
        raise UsageError(f"%%joules: {refused}") from None
    shell.user_ns.update(_joules=recording.run, _joules_split=recording.split)
    print(recording.summary())


def _compiles(shell: Any, cell: str) -> bool:
    """False if IPython would refuse a cell before any of it ran."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # IPython shows them
            compile(shell.transform_cell(cell), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except Exception:  # also one that a transformer of the shell raises
        return False
    return True


def _options(line: str) -> dict[str, Any]:
    """Options of ``record`` from the line behind ``%%joules``.

    Raises:
        BadInputError: If they can't be read.
    """
    parser = _Parser(prog="%%joules", add_help=False, allow_abbrev=False)
    parser.add_argument("label", nargs="?", default="cell")
    parser.add_argument("--device", "-d", nargs="+", default=["visible"])
    parser.add_argument("--save-to")
    for name in ("annotations", "kernels", "operators"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True)
    try:
        return vars(parser.parse_args(shlex.split(line)))
    except ValueError as error:  # a quotation mark that isn't closed
        raise BadInputError(f"{line!r}: {error}") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInputError(f"{message}; {' '.join(self.format_usage().split())}")
