"""A recording that is begun where it can't be: what measures a loop must not end it, so it is said, and all goes on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from jouletrace.profiler.programs import current
from jouletrace.profiler.programs.marks import Marks, Opened

if TYPE_CHECKING:
    from jouletrace.profiler.programs.recording import Recording


class Within:
    """From the beginning to the end of a recording that is none: within another it is a range of that one.

    Args:
        label: What it is called.
        outer: The recording that is on; None if the one that was to begin has ended before.
        lost: What else doesn't happen, for the warning; "" for nothing.
    """

    def __init__(self, label: str, outer: Recording | None, lost: str = "") -> None:
        self.outer = outer
        self._opened: tuple[Marks, Opened] | None = None
        if outer is None:
            text = f"record: {label!r} has ended, and records nothing now; ask for another with jt.record()"
            first = True
        else:
            text = f"record: {label!r} is within {outer.label!r}, which is on: it is a range there and no Run by itself"
            text += lost
            first = outer.warn("record_within", text)
            self._opened = outer.marks, outer.marks.begin(label)
        if first:
            warnings.warn(text, RuntimeWarning, stacklevel=3)  # where the program says `with`

    def end(self) -> None:
        """It is over; the recording around it may be so too."""
        if self._opened is not None and current.current is self.outer:
            marks, opened = self._opened
            marks.end(opened)
