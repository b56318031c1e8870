"""Where things lie in the repository, and beside it."""

import os
import re
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
"""The fakes and makers that tests share."""
TESTS = SUPPORT.parent
REPOSITORY = TESTS.parent
DATA = TESTS / "data"
SAMPLES = Path(os.environ.get("JOULETRACE_SAMPLES") or REPOSITORY.parent / "shared" / "data")
"""Real files of other tools, where there are any."""


def absent_wings() -> set[str]:
    """Wings in docs/architecture.md whose folders were deleted."""
    (row,) = re.findall(r"^\| `wings` \|.*", (REPOSITORY / "docs" / "architecture.md").read_text(), re.M)
    named = re.findall(r"`(\w+)`", row.partition("formats and backends:")[2].partition(".")[0])
    return {name for name in named if not (REPOSITORY / "src" / "jouletrace" / "wings" / name).is_dir()}


def is_of_absent_wing(path: str) -> bool:
    """True of a file, from the repository or a folder of it, that was deleted with its wing."""
    return any(f"wings/{name}/" in path for name in absent_wings())
