"""Files for other programs: ``write(run, path) -> Path`` for each format.

A new format takes one function and one line in ``FORMATS``; modules are imported on request.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from jouletrace.errors import BadInputError, check_format

if TYPE_CHECKING:
    from jouletrace.run import Run

FORMATS: dict[str, str] = {
    "chrome": "chrome:write",
    "collapsed": "pictures:write_collapsed",
    "csv": "folders:write_csv",
    "kernels": "kernels:write_kernels",
    "parquet": "folders:write_parquet",
    "speedscope": "pictures:write_speedscope",
    "svg": "pictures:write_svg",
    "zip": "folders:write_zip",
}
"""Module of this package and function that write each format, by name."""


def export(run: Run, form: str, path: Path | str) -> Path:
    """Write a Run in a format to a new place and return its path.

    Raises:
        BadInputError: If the format is unknown, or the path exists already or can't be written.
    """
    if form == "perfetto":
        raise BadInputError("there is no format perfetto: --format chrome opens at https://ui.perfetto.dev")
    check_format(form, FORMATS)
    module, function = FORMATS[form].split(":")
    write: Callable[[Run, Path | str], Path] = getattr(import_module(f"{__name__}.{module}"), function)
    return write(run, path)
