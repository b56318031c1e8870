"""``jouletrace export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli.command import Command
from jouletrace.cli.output import say


def export(
    run: Annotated[str, typer.Argument(help="A Run: folder or .zip file.", metavar="RUN")],
    form: Annotated[
        str,
        typer.Option("--format", "-f", help="csv, kernels, parquet, zip, chrome, collapsed, speedscope or svg."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output path. [default: next to the Run]")
    ] = None,
) -> None:
    """Convert a Run for other programs: tables, one zip, a trace, or a picture."""
    from jouletrace.formats import exporters
    from jouletrace.profiler.loading import load

    source = load(run)
    made = exporters.export(source, form, output or _beside(Path(run), form))
    say(f"wrote {'the folder ' if made.is_dir() else ''}{made}")


def _beside(run: Path, form: str) -> Path:
    """The default path next to the Run: RUN-csv, RUN-parquet, or RUN with the ending of a file of that format."""
    folder = run.parent if run.name == "run.json" else run
    stem = folder.name.removesuffix(".zip") or folder.resolve().name
    endings = {"zip": "", "chrome": ".json", "kernels": ".kernels.csv", "svg": ".svg"}
    endings |= {"collapsed": ".collapsed.txt", "speedscope": ".speedscope.json"}
    ending = endings.get(form, f"-{form}")
    return folder.resolve().with_name(stem + ending)


COMMAND = Command(
    "Import and export",
    "Write a Run for other programs: tables, traces, pictures.",
    (
        "jouletrace export runs/mine --format csv",
        "jouletrace export runs/mine --format chrome -o run.json.gz",
    ),
    export,
)
