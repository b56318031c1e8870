"""What other programs read: one module a format, ``write(run, path) -> Path``.

A format is one module and one line in ``FORMATS``; modules are imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from jouletrace.errors import check_format

if TYPE_CHECKING:
    from jouletrace.run import Run

FORMATS: dict[str, str] = {
    "chrome": "jouletrace.formats.exporters.chrome",
    "csv": "jouletrace.formats.exporters.csv",
    "parquet": "jouletrace.formats.exporters.parquet",
    "perfetto": "jouletrace.formats.exporters.perfetto",
    "svg": "jouletrace.formats.exporters.svg",
    "zip": "jouletrace.formats.exporters.zip",
}
"""Name of each format and the module that writes it."""


class Exporter(Protocol):
    """What a module of ``FORMATS`` offers."""

    def write(self, run: Run, path: Path | str) -> Path:
        """Write a Run to a new place and return it.

        Raises:
            BadInputError: If something is there already, or the place can't be written.
        """


def export(run: Run, form: str, path: Path | str) -> Path:
    """Write a Run in a format and return where it is.

    Raises:
        BadInputError: If there is no such format, something is there already, or the place can't
            be written.
    """
    return exporter(form).write(run, path)


def exporter(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        BadInputError: If there is no such format; the nearest is offered.
    """
    check_format(name, FORMATS)
    return cast(Exporter, import_module(FORMATS[name]))
