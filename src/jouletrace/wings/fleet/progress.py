"""Progress of a fleet: a bar for all results and a line per GPU; without a terminal, a line per result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jouletrace.cli.output import say
from jouletrace.cli.progress import Drawn
from jouletrace.wings.fleet.engine import FleetWatch
from jouletrace.wings.fleet.plan import gpu_names
from jouletrace.words.text import printable

if TYPE_CHECKING:
    from jouletrace.campaign.loop import PointOutcome
    from jouletrace.wings.fleet.plan import FleetGpu, Task

_MOST_LINES = 16


class FleetProgress(Drawn, FleetWatch):
    """Draws the progress with rich on a terminal, else prints a line per result; and all failures.

    Args:
        gpus: All GPUs of the fleet.
        quiet: Print only failures without a terminal.
    """

    def __init__(self, gpus: Sequence[FleetGpu], quiet: bool = False) -> None:
        Drawn.__init__(self)
        FleetWatch.__init__(self)
        self._names = gpu_names((gpu.node, gpu.id, gpu.place) for gpu in gpus)
        self._lined = not quiet and not sys.stderr.isatty()
        self._lines: dict[str, Any] = {}
        self._said: set[str] = set()
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            from jouletrace.report.console import open_console

            self._progress = Progress(
                TextColumn("{task.description:<28}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=open_console(stderr=True),
                transient=True,
            )

    def begin(self, total: int, done: int) -> None:
        """Show the number of results."""
        super().begin(total, done)
        if self._progress is not None:
            self._all = self._progress.add_task("results", total=total, completed=done)

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Show the current phase of a GPU."""
        if self._progress is None:
            return
        key = f"{gpu.node} {gpu.id}"
        if key not in self._lines and len(self._lines) < _MOST_LINES:
            self._lines[key] = self._progress.add_task("", total=None)
        if key in self._lines:
            from rich.markup import escape

            doing = message.get("name") if message.get("is") == "phase" else message.get("is")
            self._progress.update(self._lines[key], description=escape(printable(f"{self._name(gpu)}: {doing}"[:40])))

    def outcome(self, found: PointOutcome[Task]) -> None:
        """Move the bar or print a line; print each reason for a missing result once."""
        super().outcome(found)
        if self._progress is not None:
            self._progress.update(self._all, advance=1)
        of = f"{self._name(found.point.gpu)}, repeat {found.point.repeat}"
        if found.reason:
            if found.text not in self._said:
                self._said.add(found.text)
                say(f"{of}: {found.text}")
        elif self._lined:
            say(f"{self._done} of {self._total} done: {of}")

    def _name(self, gpu: FleetGpu) -> str:
        return self._names.get((gpu.node, gpu.id), str(gpu))
