"""Where things lie in the repository, and beside it."""

import os
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
"""The fakes and makers that tests share."""
TESTS = SUPPORT.parent
REPOSITORY = TESTS.parent
DATA = TESTS / "data"
SAMPLES = Path(os.environ.get("JOULETRACE_SAMPLES") or REPOSITORY.parent / "shared" / "data")
"""Real files of other tools, where there are any."""
