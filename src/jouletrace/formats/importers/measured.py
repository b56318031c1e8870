"""Runs of jouletrace itself, a folder or a zip, which can be joined with other tools' files of the same program."""

from __future__ import annotations

from pathlib import Path

from jouletrace.formats.importers.base import UNIX, ImportOptions
from jouletrace.run import Run, load
from jouletrace.run.forms import Imported

_ZIP = b"PK\x03\x04"


def sniff(head: bytes) -> bool:
    """True if it is a zip: no other format is, and the list of its files is at its end."""
    return head.startswith(_ZIP)


def is_folder(path: Path) -> bool:
    """True if it is the folder of a Run."""
    return (path / "run.json").is_file()


def read(path: Path, options: ImportOptions) -> Run:
    """Load a Run; if it was itself imported, ``of`` in ``settings["imported"]`` keeps its origin.

    Raises:
        BadInputError: If it isn't a Run, or is damaged.
    """
    run = load(path)
    before = run.settings.get("imported", [])
    clocks = [one["clock"] for one in before] or [UNIX]
    clock = UNIX if UNIX in clocks else clocks[0]
    about: Imported = {"path": path.name, "format": "jouletrace", "clock": clock, "aligned": "", "left_out": {}}
    if before:
        about["of"] = before
    run.settings["imported"] = [about]
    return run
