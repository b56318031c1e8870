"""A folder of Parquet tables, whose schemas carry units and descriptions, beside ``run.json``."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run import Run
from jouletrace.run.store import check_free, save


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as a folder of Parquet tables; it is a Run itself, which ``load`` reads.

    Tables of a simulated Run have a last column SIMULATED.

    Raises:
        BadInputError: If something is there already, the place can't be written, or the name is a
            zip file's.
    """
    if Path(path).suffix.lower() == ".zip":
        raise BadInputError(f"{path}: Parquet tables go to a folder; for one file use the format zip")
    return save(run, check_free(path))
