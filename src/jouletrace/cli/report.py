"""``jouletrace report``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import names_of, say


def report(
    runs: Annotated[list[str], typer.Argument(help="Runs: folders or .zip files.", metavar="RUN...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file; replaces an older report.")] = Path(
        "report.html"
    ),
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    show: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open it in a browser. [default: if there is a display]"),
    ] = None,
) -> None:
    """Write one or several Runs as one HTML file that needs no network: charts, timeline, tables.

    Several Runs are also compared, the first with each other one. Runs of the same workload count as its
    repetitions if another workload is given. A Run of ab shows the comparison of its two sides.
    """
    from jouletrace.comparing.compare import against_first
    from jouletrace.comparing.sides import open_runs
    from jouletrace.profiler.loading import load
    from jouletrace.report import html

    given = options.tariff(price, carbon)
    loaded = [load(path) for path in runs]
    others = [path for run, path in zip(loaded, runs, strict=True) if run.kind != "ab"]
    comparisons, notes = against_first([open_runs(path) for path in others if len(others) > 1])
    page = html.write(loaded, output, comparisons, notes, given, names_of(runs))
    say(f"wrote {page}")
    if _has_display() if show is None else show:
        _open(page)


def _has_display() -> bool:
    """True if the session is interactive: output goes to a terminal, and there is a local display."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        say("no browser could be opened")


COMMAND = Command(
    "Look",
    "Write Runs as one HTML file with charts and a timeline.",
    (
        "jouletrace report runs/mine -o report.html",
        "jouletrace report runs/before runs/after",
    ),
    report,
)
