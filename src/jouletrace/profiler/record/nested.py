"""A recording started within another: a measurement must not end the program, so it warns and continues."""

from __future__ import annotations

import warnings

from jouletrace.profiler.record import active
from jouletrace.profiler.record.active import Active
from jouletrace.profiler.record.ranges import Marks, Opened

_CODE = "record_within"


class Within:
    """A range of the active recording in place of a recording of its own.

    Create it with ``active.lock`` held since ``outer`` was read: ``outer`` then can't end before it has the range.

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
        if outer is None or not outer.has_warned(_CODE):
            warnings.warn(text, RuntimeWarning, stacklevel=3)  # where the program says `with`
        if outer is not None:
            outer.warn(_CODE, text)
            self._opened = outer.marks, outer.marks.begin(label)

    def end(self) -> None:
        """End the range, unless the outer recording has ended."""
        if self._opened is not None and active.current is self.outer:
            marks, opened = self._opened
            marks.end(opened)
