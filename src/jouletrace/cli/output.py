"""Printing of Runs, and the place of a new one."""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

from jouletrace.cli.failures import complain, exit_code
from jouletrace.errors import (
    BadInputError,
    BrokenOffError,
    JouletraceError,
    RecorderDiedError,
    TimedOutError,
    check_format,
)
from jouletrace.report.document import FORMATS
from jouletrace.words.text import printable

if TYPE_CHECKING:  # printing help must not import pyarrow
    from jouletrace.profiler.program.command import ProgramCommand
    from jouletrace.profiler.program.launcher import Launcher
    from jouletrace.report.tariffs import Tariff
    from jouletrace.run import Run
    from jouletrace.run.forms import Settings


_WIDTH = 80
"""Columns of a usual terminal."""

_KEPT = (RecorderDiedError, BrokenOffError, TimedOutError)
"""Failures that occur after something was measured."""


def print_runs(
    runs: list[Run],
    *,
    form: str,
    detail: str | None = None,
    top: int | None = None,
    to: TextIO | None = None,
    verbose: bool = False,
    more: str = "",
    tariff: Tariff | None = None,
    advice: bool = True,
    files: Sequence[str] = (),
    absolute: bool = False,
) -> None:
    """Print one Run, or several side by side, in a format of ``show``; to stdout by default.

    Without a ``detail`` one Run is shown at its own level (``report.default_detail``), several as whole models. The
    comparison of its two sides precedes a Run of ``ab``.

    Args:
        runs: What to print.
        form: A format of ``show``.
        detail: Which parts are listed.
        top: So many of them.
        to: Where; None for stdout.
        verbose: Everything in a table; else the verdict and one table.
        more: The command that shows more, which stands below a verdict.
        tariff: What a kWh costs and emits.
        advice: Say what could save energy.
        files: Name of each Run's file.
        absolute: Intervals have gain and offset of the sensor in them, which no Run keeps.

    Raises:
        BadInputError: If there is no such format.
    """
    from jouletrace import report

    if detail is None:
        detail = report.default_detail(runs[0]) if len(runs) == 1 else "model"
    for run in runs if absolute else ():
        run.settings["absolute"] = True
    sink = to or sys.stdout
    text = report.render(
        runs,
        form,
        detail=detail,
        top=top,
        verbose=verbose,
        colour=sink.isatty(),
        tariff=tariff,
        advice=advice,
        files=files,
    )
    text = text.rstrip("\n") + "\n"
    sink.write(text + (f"more: {plain(more)} -v\n" if more and form == "table" and not verbose else ""))
    sink.flush()


def names_of(paths: Sequence[str]) -> list[str]:
    """Names of the files of Runs, without ".zip"; their paths if two are alike."""
    names = [path.stem if path.suffix == ".zip" else path.name for path in map(Path, paths)]
    return names if len(set(names)) == len(names) else list(paths)


def check_form(form: str, json: bool, formats: Sequence[str] = FORMATS) -> str:
    """The requested format; ``--json`` is short for ``--format json``. Call it before anything is measured.

    Raises:
        BadInputError: If there is no such format, or two are requested.
    """
    if json and form not in ("table", "json"):
        raise BadInputError(f"--format {form} --json: give only one of them")
    check_format(form, formats)
    return "json" if json else form


class Destination:
    """The place of a new Run: the requested one, or a fresh folder under ``runs/``.

    A Run is always recorded into a folder, which survives a crash; a ``.zip`` is packed at the end. If nothing was
    measured, the folder is removed, if this process has taken it. A place that ``resumes`` may hold earlier results.

    The Run keeps the ``tariff`` that options state.

    Attributes:
        folder: The folder to record into; absolute, since the workload may change the current folder.

    Raises:
        BadInputError: If the place exists, can't be written, or another process is about to write it; known before
            anything is measured.
    """

    def __init__(self, output: Path | None, name: str, *, resumes: bool = False, tariff: Tariff | None = None) -> None:
        from jouletrace.run.places import check_free, fresh_folder

        self._held = ExitStack()
        self._zip: Path | None = None
        self._saved: Path | None = None
        self._more = False
        self._closed = False
        self._kept: Settings = tariff.settings if tariff is not None else {}
        if output is None:
            folder = fresh_folder("runs", name)
        elif output.suffix.lower() == ".zip":
            self._zip = check_free(output).absolute()
            folder = self._beside(self._zip)
        else:
            folder = output if resumes else check_free(output)
        self.folder = folder.absolute()

    def _beside(self, packed: Path) -> Path:
        """Take the name of a zip; returns the folder to record into."""
        from jouletrace.processes.locks import alone_at
        from jouletrace.run.places import check_free, fresh_folder

        self._held.enter_context(alone_at(packed, "recording into"))
        try:
            check_free(packed)  # another process may have been the first to lock it
            return fresh_folder(packed.parent, f"{packed.stem}-recording")
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        from jouletrace.run.files import shown
        from jouletrace.run.store import owns, remove_own, restate

        self._held.close()
        if self._saved is not None:
            self.close()
            return
        if isinstance(error, JouletraceError) and not isinstance(error, _KEPT):
            # The command was refused, or isn't possible here: a partial record is of no use.
            remove_own(self.folder)
        if owns(self.folder):
            if any(self.folder.iterdir()):
                if self._kept:
                    with suppress(BadInputError, BrokenOffError):  # which the command's own failure precedes
                        restate(self.folder, self._kept)
                say(f"the data recorded so far is in {shown(self.folder)}")
            else:
                remove_own(self.folder)

    def done(self, run: Run, *, more: bool = False) -> None:
        """Finish a complete Run; pack it if a zip was requested. Call it before printing, which can fail.

        Args:
            run: The Run.
            more: Say how to see all of it, since its verdict alone is printed.

        Raises:
            BrokenOffError: If it can't be packed; it is in ``folder`` still.
        """
        from jouletrace.run.store import restate

        self._more = more
        run.settings |= self._kept
        if self._kept:
            restate(self.folder, self._kept)
        if self._zip is None:
            self._saved = self.folder
            return
        from jouletrace.run import save

        try:
            save(run, self._zip)
        except BadInputError as error:
            raise BrokenOffError(error.text) from None
        shutil.rmtree(self.folder)
        self._saved = self._zip

    def close(self) -> None:
        """Say once where the complete Run is; leaving the context does so too."""
        from jouletrace.run.files import quoted, shown

        if self._saved is not None and not self._closed:
            more = [f"more: jouletrace show {quoted(self._saved)} -v"] if self._more else []
            lines = [f"saved {shown(self._saved)}", *more]
            say(in_width(lines))
            self._closed = True


@contextmanager
def launched(program: ProgramCommand) -> Iterator[Launcher]:
    """A launcher for a program, whose exit code is that of the command: what fails of ours is a line on stderr.

    Raises:
        Exit: With that code, unless it is 0.
        Exception: Of the block, if the program wasn't started.
    """
    from jouletrace.profiler.program.launcher import Launcher

    if sys.__stdout__ is None:
        complain("standard output is closed: no figures are printed")
    with Launcher(program) as launcher:
        try:
            yield launcher
            if launcher.failure is not None:
                raise launcher.failure
        except (Exception, SystemExit) as error:
            if launcher.code is None:
                raise
            if exit_code(error) is None:
                with suppress(OSError):  # a full stderr changes no exit code
                    traceback.print_exception(error)
    if launcher.code:
        say(f"{program.name} ended with exit code {launcher.code}")
        raise typer.Exit(launcher.code)


def in_width(parts: list[str], between: str = " · ") -> str:
    """Parts on one line of a usual terminal, or each on its own if that would be too long."""
    line = between.join(parts)
    return line if len(line) <= _WIDTH else "\n".join(parts)


def say(text: str) -> None:
    """Print a line on stderr, so that stdout stays parsable."""
    with suppress(OSError):  # a closed stderr must not end a measurement
        print(plain(text), file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Print text on stdout; control characters in names of devices, files or kernels are escaped, secrets masked."""
    print(plain(text))


def put_json(value: Any) -> None:
    """Print a value as JSON on stdout, without what is secret."""
    from jouletrace.run.masking import masked_all

    print(json.dumps(masked_all(value), indent=1))


def plain(text: str) -> str:
    """The same lines with all other control characters escaped."""
    return "\n".join(map(printable, text.split("\n")))
