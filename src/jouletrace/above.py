"""What packages use of those above them without naming them: ``jouletrace/__init__.py``, above all, sets it."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

text_of: Callable[[Any], str]
"""Returns the text of a Run or an Estimate as ``print`` shows it."""

save: Callable[..., Path]
"""Writes a Run to a path and returns it."""

VENDORS: tuple[str, ...] = ()
"""Modules of devices above ``devices``; see ``devices.registry``."""

RUNTIMES = ""
"""The module of the backend above ``profiler`` that runs models in other runtimes."""
