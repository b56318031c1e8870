"""Runs recorded on real GPUs that ship with the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from jouletrace.errors import NotPossibleError
from jouletrace.run import Run, load


@dataclass(frozen=True)
class BundledRun:
    """A bundled Run and how it was made.

    Attributes:
        name: File name of the Run.
        command: The command that recorded it.
        run: The Run, with the figures that it states, which are those of this version.
    """

    name: str
    command: str
    run: Run


def bundled_runs() -> Iterator[BundledRun]:
    """All bundled Runs, each read when it is asked for.

    Raises:
        NotPossibleError: If there are none.
        BadInputError: If one is damaged.
    """
    folder = resources.files(__package__)
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise NotPossibleError("no recorded Run ships with this installation: manifest.json is missing") from None
    for entry in manifest["runs"]:
        with resources.as_file(folder / entry["file"]) as path:
            yield BundledRun(entry["file"], entry["command"], load(path))
