"""A recording that is begun where it can't be: what measures a loop must not end it, so it is said, and all goes on."""

from __future__ import annotations

import warnings

from jouletrace.profiler.record import active
from jouletrace.profiler.record.active import Active
from jouletrace.profiler.record.ranges import Marks, Opened

_CODE = "record_within"


class Within:
    """From the beginning to the end of a recording that is none: within another it is a range of that one.

    Make it with ``active.lock`` held since ``outer`` was on: so long it can't end, and has what is put into it.

    Args:
        label: What it is called.
        outer: The recording that is on; None if the one that was to begin has ended before.
        lost: What else doesn't happen, for the warning; "" for nothing.

    Raises:
        RuntimeWarning: If warnings are errors here; then nothing has been put into ``outer``.
    """

    def __init__(self, label: str, outer: Active | None, lost: str = "") -> None:
        self.outer = outer
        self._opened: tuple[Marks, Opened] | None = None
        if outer is None:
            text = f"record: {label!r} has ended, and records nothing now; ask for another with jt.record()"
        else:
            text = f"record: {label!r} is within {outer.label!r}, which is on: it is a range there and no Run by itself"
            text += lost
        if outer is None or not outer.has_warned(_CODE):
            warnings.warn(text, RuntimeWarning, stacklevel=3)  # where the program says `with`
        if outer is not None:
            outer.warn(_CODE, text)
            self._opened = outer.marks, outer.marks.begin(label)

    def end(self) -> None:
        """It is over; the recording around it may be so too."""
        if self._opened is not None and active.current is self.outer:
            marks, opened = self._opened
            marks.end(opened)
