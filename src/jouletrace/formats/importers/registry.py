"""All formats that are read: the core's in ``FORMATS``, and those of wings."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from jouletrace.errors import check_format
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.wing import registered

if TYPE_CHECKING:
    from jouletrace.run import Run

FORMATS: dict[str, str] = {
    name: f"jouletrace.formats.importers.{module}"
    for name, module in (
        ("jouletrace", "measured"),
        ("table", "table"),
    )
}
"""Module that reads each format of the core, by name."""

LAST = "table"
"""The format that is tried last: nearly anything is a table."""


def formats() -> dict[str, str]:
    """Module that reads each format, by name, in the order in which they are tried; the core's come first."""
    found = registered("formats", FORMATS)
    return {name: found[name] for name in sorted(found, key=LAST.__eq__)}


class Importer(Protocol):
    """The interface of a module that reads a format.

    It may also have ``is_folder(path)``, true of a folder that it reads; ``read_together(paths, options)``, which
    returns a Run for each of several files that depend on one another; and ``match_launches(launches, timeline)``, if
    its launches have counters but no times: for two tables of spans it returns the row in the timeline of each launch,
    -1 for none, and the counts of ``run.forms.Match``.
    """

    def sniff(self, head: bytes) -> bool:
        """True if ``head``, the beginning of a file (up to 64 KiB, decompressed), has this format. Never raises."""

    def read(self, path: Path, options: ImportOptions) -> Run:
        """Read one file into a Run of ``base.new_run``.

        Unusable content is counted in the Run's warnings (``base.Left``), never dropped silently.

        Raises:
            BadInputError: If nothing in it is usable: one line with file and place.
        """


def importer(name: str) -> Importer:
    """The importer of a format.

    Raises:
        BadInputError: If the format is unknown; the message offers the nearest.
    """
    known = formats()
    check_format(name, known)
    return cast(Importer, import_module(known[name]))
