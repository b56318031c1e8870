"""Progress of a command: a bar on stderr, or lines where it is no terminal; no prints of workloads."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from types import TracebackType
from typing import Any, Self, TextIO

from jouletrace.profiler.progress import Lines, Progress, switched_off
from jouletrace.words.text import printable


def quiet_output() -> redirect_stdout[TextIO]:
    """A context that redirects prints to stderr: stdout carries only the result, which programs may parse."""
    return redirect_stdout(sys.stderr)


class Drawn:
    """A display that rich draws on stderr between enter and exit; ``_progress`` is None without a terminal."""

    def __init__(self) -> None:
        self._progress: Any = None

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()


class ProgressLine(Drawn, Progress):
    """Draws ``profiler.progress.Progress`` with rich if stderr is a terminal, else as lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: Lines | None = None
        if switched_off():
            return
        if not sys.stderr.isatty():
            self._lines = Lines()
            return
        from rich import progress as rich

        from jouletrace.report.console import open_console

        self._progress = rich.Progress(
            rich.SpinnerColumn(),
            rich.TextColumn("{task.description:<22}"),
            rich.BarColumn(bar_width=30),
            rich.TimeRemainingColumn(),
            console=open_console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._lines is not None:
            self._lines.stop()
        super().__exit__(kind, error, tb)

    def start(self, device: str, *, timed: bool = True) -> None:
        """Print the device."""
        if self._lines is not None:
            self._lines.start(device, timed=timed)
        else:
            self.note(device)

    def note(self, text: str) -> None:
        """Print a line."""
        if self._lines is not None:
            self._lines.note(text)
        elif self._progress is not None:
            self._progress.console.print(f"jouletrace: {printable(text)}", markup=False, highlight=False)

    def expect(self, seconds: float) -> None:
        """Show the time left in lines; a bar shows that of its phase."""
        if self._lines is not None:
            self._lines.expect(seconds)

    def begin(self, phase: str, seconds: float, *, at_most: bool = False) -> None:
        """Show a new phase; 0 seconds means that its duration is unknown."""
        if self._lines is not None:
            self._lines.begin(phase, seconds, at_most=at_most)
        elif self._progress is not None:
            from rich.markup import escape

            self._progress.reset(self._task, description=escape(printable(phase)), total=seconds or None)

    def advance(self, seconds: float) -> None:
        """Move the bar."""
        if self._lines is not None:
            self._lines.advance(seconds)
        elif self._progress is not None:
            self._progress.update(self._task, advance=seconds)
