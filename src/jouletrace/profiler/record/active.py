"""The active recording of this process, where marks look it up."""

from __future__ import annotations

import os
import threading
from typing import Protocol

from jouletrace.profiler.record.ranges import Marks


class Active(Protocol):
    """The interface of an active recording."""

    label: str

    @property
    def marks(self) -> Marks:
        """The marks that collect its ranges and steps."""

    def step(self, sync: bool = False) -> None:
        """An iteration of this thread's loop has ended."""

    def warn(self, code: str, text: str) -> None:
        """Add a warning, once."""

    def has_warned(self, code: str) -> bool:
        """Whether a warning with that code exists."""

    def leave_to_parent(self) -> None:
        """End silently in a fork."""


current: Active | None = None
lock = threading.Lock()


def claim(recording: Active) -> None:
    """Make a recording the active one once it accepts marks; hold ``lock`` since the check that none is active."""
    global current  # noqa: PLW0603  # the purpose of this module
    current = recording


def release(recording: Active) -> None:
    """Deactivate a recording that has ended, or never began."""
    global current  # noqa: PLW0603  # as above
    with lock:
        if current is recording:
            current = None


def _forget_parent() -> None:
    """Deactivate the recording in a fork: it belongs to the parent."""
    global current, lock  # noqa: PLW0603  # the parent may hold it at the fork
    lock = threading.Lock()
    if current is not None:
        current.leave_to_parent()
    current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
