"""Runs recorded on real boards that ship with the package, analysed afresh each time they are opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from jouletrace import analysis
from jouletrace.run import Run, load, tables


@dataclass(frozen=True)
class Recorded:
    """A recorded Run and how it was made.

    Attributes:
        name: File name of the Run.
        command: The command that recorded it.
        run: The Run, its figures computed just now from its raw tables.
    """

    name: str
    command: str
    run: Run


def recorded_runs() -> list[Recorded]:
    """All recorded Runs, with fresh figures."""
    folder = resources.files(__package__)
    manifest = json.loads((folder / "manifest.json").read_text())
    found = []
    for entry in manifest["runs"]:
        with resources.as_file(folder / entry["file"]) as path:
            run = load(path)
        # What was computed when it was recorded is thrown away: the demo shows the analysis at work.
        run.results, run.units = tables.empty("results"), tables.empty("units")
        found.append(Recorded(entry["file"], entry["command"], analysis.analyse(run)))
    return found
