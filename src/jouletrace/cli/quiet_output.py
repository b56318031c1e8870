"""What a workload prints while it is built and run."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TextIO


def aside() -> redirect_stdout[TextIO]:
    """Within it what is printed goes to stderr: stdout is the result's, which others may parse."""
    return redirect_stdout(sys.stderr)
