"""``jouletrace export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import say


def export(
    run: Annotated[str, typer.Argument(help="A Run: folder or .zip file.", metavar="RUN")],
    form: Annotated[str, typer.Option("--format", "-f", help="csv, parquet or zip.")],
    output: options.Output = None,
) -> None:
    """Write a Run for other programs: CSV files, Parquet files, or one zip file."""
    from jouletrace import exporters
    from jouletrace.run import load

    source = load(run)
    target = exporters.export(source, form, output or Path(run.rstrip("/")).with_suffix(""))
    say(f"wrote {target}")
