"""One zip file that holds the whole Run."""

from __future__ import annotations

from pathlib import Path

from jouletrace.run import Run
from jouletrace.run.store import check_free, save


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as one file; ".zip" is appended to a name without it.

    Raises:
        BadInputError: If the path exists already, or can't be written.
    """
    target = Path(path)
    if target.suffix.lower() != ".zip":
        target = target.with_name(f"{target.name}.zip")
    return save(run, check_free(target))
