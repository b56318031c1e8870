"""rich's console, as wide as the terminal, which writes to its file alone."""

from __future__ import annotations

import os
import re
from typing import Any, TextIO

from rich.console import Console

_LEAST = 20
"""Columns below which nothing can be read; ``COLUMNS=0`` says that the width isn't known."""


def open_console(**how: Any) -> Console:
    """A console as wide as ``COLUMNS`` or the terminal says, and of 80 columns where neither does.

    rich would display its text in a notebook in place of writing it.

    Args:
        **how: As for rich's.
    """
    given = os.environ.get("COLUMNS", "")
    is_given = re.fullmatch("[0-9]{1,5}", given) is not None and int(given) >= _LEAST
    around = {name: os.environ[name] for name in os.environ if is_given or name != "COLUMNS"}
    return Console(_environ=around, force_jupyter=False, **how)


def writer(sink: TextIO, width: int | None = None, *, colour: bool = False) -> Console:
    """A console that writes text as it is to ``sink``; without ``colour`` it writes plain text.

    rich would colour it where FORCE_COLOR is set, which Jupyter's kernels do.
    """
    return open_console(
        file=sink,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
