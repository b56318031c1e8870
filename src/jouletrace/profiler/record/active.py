"""The active recording of this process, where marks look it up, and a recording started within it."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Protocol

from jouletrace.profiler.record.ranges import Marks, Opened


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


class Within:
    """A range of the active recording in place of a recording of its own, which must not end the program.

    Create it with ``lock`` held since ``outer`` was read: ``outer`` then can't end before it has the range.

    Args:
        label: Name of the range.
        outer: The active recording; None if the recording to be started has already ended.
        lost: Further consequences, for the warning; "" for none.

    Raises:
        RuntimeWarning: If warnings are configured as errors; then ``outer`` is unchanged.
    """

    def __init__(self, label: str, outer: Active | None, lost: str = "") -> None:
        self.outer = outer
        self._opened: tuple[Marks, Opened] | None = None
        if outer is None:
            text = f"record: {label!r} has ended and records nothing now; start another with jt.record()"
        else:
            text = f"record: {label!r} is within the active {outer.label!r}: it becomes a range there, not a Run"
            text += lost
        if outer is None or not outer.has_warned("record_within"):
            warnings.warn(text, RuntimeWarning, stacklevel=3)  # where the program says `with`
        if outer is not None:
            outer.warn("record_within", text)
            self._opened = outer.marks, outer.marks.begin(label)

    def end(self) -> None:
        """End the range, unless the outer recording has ended."""
        if self._opened is not None and current is self.outer:
            marks, opened = self._opened
            marks.end(opened)
