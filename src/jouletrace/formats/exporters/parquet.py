"""A folder of Parquet tables, whose schemas contain units and descriptions, and ``run.json``."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run import Run
from jouletrace.run.store import check_free, save


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as a folder of Parquet tables; the folder is a Run that ``load`` reads.

    Tables of a simulated Run have a last column SIMULATED.

    Raises:
        BadInputError: If the path exists already, can't be written, or is the name of a zip
            file.
    """
    if Path(path).suffix.lower() == ".zip":
        raise BadInputError(f"{path}: Parquet tables go to a folder; for one file use the format zip")
    return save(run, check_free(path))
