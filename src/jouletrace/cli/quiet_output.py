"""Redirects the output of a workload while it is built and run."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TextIO


def quiet_output() -> redirect_stdout[TextIO]:
    """A context that redirects prints to stderr: stdout carries only the result, which programs may parse."""
    return redirect_stdout(sys.stderr)
