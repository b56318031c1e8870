"""The power within an iteration above its kernels, as SVG: the picture of the HTML report."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.output import new_file
from jouletrace.report.waveform import picture
from jouletrace.run import Run


def write(run: Run, path: Path | str) -> Path:
    """Draw the power within an iteration.

    Raises:
        BadInputError: If the Run has none, or the path exists already or can't be written.
    """
    with new_file(path) as file:
        drawn = picture(run)
        if drawn is None:
            raise BadInputError("this Run holds no power within an iteration: profile with --detail kernel or layer")
        file.write(drawn[0].encode())
    return Path(path)
