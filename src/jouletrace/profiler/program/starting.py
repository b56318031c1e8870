"""A line on stderr while a program imports torch, which may take ten seconds in which nothing else is printed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from jouletrace.devices.base import Device
from jouletrace.profiler.progress import AFTER_S, switched_off
from jouletrace.report.document import printable

_SLOW = ("torch", "tensorflow", "jax", "transformers")
"""Modules whose import takes seconds."""


class Starting:
    """Reports once what is recorded, if a slow import still goes on after ``AFTER_S``; ``look`` is called meanwhile.

    The line goes to stderr as a whole. A program that starts fast, or shows by itself that it goes on, gets none.

    Args:
        devices: What is recorded.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._names = ", ".join(dict.fromkeys(device.info.name for device in devices if device.info.kind != "cpu"))
        self._begin = time.monotonic()
        self._done = switched_off()

    def look(self) -> None:
        """Print the line if it is due."""
        if self._done or time.monotonic() - self._begin < AFTER_S:
            return
        slow = next((name for name in _SLOW if _is_imported(name)), "")
        if slow:
            self._done = True
            text = f"jouletrace: recording {self._names or 'the time on the CPU'}; the program imports {slow}"
            with suppress(OSError):  # a closed stderr must not end the program
                os.write(2, printable(text).encode() + b"\n")


def _is_imported(name: str) -> bool:
    """Whether a module's import has begun and not ended."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))
