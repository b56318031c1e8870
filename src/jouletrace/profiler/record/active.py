"""The one recording that is on in this process: marks find it here without being handed it."""

from __future__ import annotations

import os
import threading
from typing import Protocol

from jouletrace.profiler.record.ranges import Marks


class Active(Protocol):
    """A recording that is on, as those who find it here see it."""

    label: str

    @property
    def marks(self) -> Marks:
        """Takes its ranges and steps."""

    def step(self, sync: bool = False) -> None:
        """An iteration of this thread's loop has ended."""

    def warn(self, code: str, text: str) -> None:
        """Add a warning, once."""

    def has_warned(self, code: str) -> bool:
        """Whether that warning is there."""

    def leave_to_parent(self) -> None:
        """In a fork: end without a word."""


current: Active | None = None
lock = threading.Lock()


def claim(recording: Active) -> None:
    """Make a recording the one that is on, once it takes marks; call it with ``lock`` held since none was."""
    global current  # noqa: PLW0603  # what this module is for
    current = recording


def release(recording: Active) -> None:
    """That recording is over, or never began."""
    global current  # noqa: PLW0603  # as above
    with lock:
        if current is recording:
            current = None


def _forget_parent() -> None:
    """In a fork: the recording is the parent's."""
    global current, lock  # noqa: PLW0603  # the parent may hold it at the fork
    lock = threading.Lock()
    if current is not None:
        current.leave_to_parent()
    current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
