"""What a fleet is doing: a bar for all results, and a line for what each GPU is at; nothing where nobody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from jouletrace.cli.output import say
from jouletrace.cli.progress import Drawn

if TYPE_CHECKING:
    from jouletrace.fleet.node import Outcome
    from jouletrace.fleet.plan import FleetGpu

_MOST_LINES = 16


class FleetProgress(Drawn):
    """Draws ``fleet.engine.Watch`` with rich, if stderr is a terminal; failures are said in any case.

    Attributes:
        measured: New results so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.measured = 0
        self._lines: dict[str, Any] = {}
        self._said: set[str] = set()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description:<28}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def begin(self, total: int, done: int) -> None:
        """Show how much there is to do."""
        if self._progress is not None:
            self._all = self._progress.add_task("results", total=total, completed=done)

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Show what a GPU is at."""
        if self._progress is None:
            return
        key = f"{gpu.node} {gpu.id}"
        if key not in self._lines and len(self._lines) < _MOST_LINES:
            self._lines[key] = self._progress.add_task("", total=None)
        if key in self._lines:
            doing = message.get("name") if message.get("is") == "phase" else message.get("is")
            self._progress.update(self._lines[key], description=f"{gpu}: {doing}"[:40])

    def outcome(self, found: Outcome) -> None:
        """Move the bar; say why there is no result, each reason once."""
        self.measured += not found.reason
        if self._progress is not None:
            self._progress.update(self._all, advance=1)
        if found.reason and found.text not in self._said:
            self._said.add(found.text)
            say(f"{found.task.gpu}, repeat {found.task.repeat}: {found.text}")
