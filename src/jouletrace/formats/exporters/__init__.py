"""Files for other programs: one module per format, ``write(run, path) -> Path``.

A new format takes one module and one line in ``FORMATS``; modules are imported on request.
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
    "collapsed": "jouletrace.formats.exporters.collapsed",
    "csv": "jouletrace.formats.exporters.csv",
    "parquet": "jouletrace.formats.exporters.parquet",
    "perfetto": "jouletrace.formats.exporters.perfetto",
    "speedscope": "jouletrace.formats.exporters.speedscope",
    "svg": "jouletrace.formats.exporters.svg",
    "zip": "jouletrace.formats.exporters.zip",
}
"""Module that writes each format, by name."""


class Exporter(Protocol):
    """The interface of a module of ``FORMATS``."""

    def write(self, run: Run, path: Path | str) -> Path:
        """Write a Run to a new place and return it.

        Raises:
            BadInputError: If the path exists already, or can't be written.
        """


def export(run: Run, form: str, path: Path | str) -> Path:
    """Write a Run in a format and return its path.

    Raises:
        BadInputError: If the format is unknown, or the path exists already or can't
            be written.
    """
    return exporter(form).write(run, path)


def exporter(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        BadInputError: If the format is unknown; the message offers the nearest.
    """
    check_format(name, FORMATS)
    return cast(Exporter, import_module(FORMATS[name]))
