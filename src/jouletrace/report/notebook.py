"""A Run shows itself in a notebook: its headline figures, where it was measured, and what is known to be wrong.

``run`` may import nothing of ``report``, so the notebook gets the function for display by the name of the
type: IPython calls nothing until a Run is displayed, and importing this module is fast.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jouletrace.run import Run


def register() -> None:
    """Register the display of a Run with a running IPython, if any."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and shell.display_formatter is not None:
        shell.display_formatter.formatters["text/plain"].for_type_by_name("jouletrace.run.model", "Run", _pretty)


def _pretty(run: Run, printer: object, cycle: bool) -> None:
    from jouletrace.report import render

    printer.text(render([run]))  # type: ignore[attr-defined]  # IPython's, which is not installed everywhere
