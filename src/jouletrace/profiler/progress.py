"""Progress reports: the device, the current phase, and the time that is left."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jouletrace.devices.base import Device
from jouletrace.words.text import printable

SWITCH = "JOULETRACE_PROGRESS"
"""Environment variable: 0 prints no progress, on the command line and in Python."""

AFTER_S = 0.5
"""Seconds after which a phase is reported: a shorter one is of no interest."""


class Progress:
    """Receiver of progress, which ignores it; the command line draws it."""

    def start(self, device: str, *, timed: bool = True) -> None:
        """State the device; where seconds are simulated, which pass faster, ``timed`` is False."""

    def note(self, text: str) -> None:
        """State what the user should know beforehand, in a line."""

    def expect(self, seconds: float) -> None:
        """State how long all phases from here on take together, at most."""

    def begin(self, phase: str, seconds: float, *, at_most: bool = False) -> None:
        """Begin a phase that takes about ``seconds``, or ``at_most`` so many; 0 where that is unknown."""

    def advance(self, seconds: float) -> None:
        """Add elapsed seconds to the phase."""


class Lines(Progress):
    """One line per phase on stderr, for logs, pipes, notebooks and Python; use it in a ``with`` statement.

    A line appears once its phase has taken ``AFTER_S``, from a timer: a phase may report nothing while it runs.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._timed = True
        self._left_s = 0.0

    def start(self, device: str, *, timed: bool = True) -> None:
        """See ``Progress``."""
        self._timed = timed
        self.note(device)

    def note(self, text: str) -> None:
        """See ``Progress``."""
        _print(text)

    def expect(self, seconds: float) -> None:
        """See ``Progress``."""
        self._left_s = seconds

    def begin(self, phase: str, seconds: float, *, at_most: bool = False) -> None:
        """See ``Progress``."""
        self.stop()
        text = phase
        if self._timed and seconds >= 1:
            text += f", {'up to ' if at_most else ''}{seconds:.0f} s"
            if round(self._left_s) > round(seconds):
                text += f", {self._left_s:.0f} s left in all"
        self._timer = threading.Timer(AFTER_S, _print, [text])
        self._timer.daemon = True
        self._timer.start()

    def advance(self, seconds: float) -> None:
        """See ``Progress``."""
        self._left_s = max(0.0, self._left_s - seconds)

    def stop(self) -> None:
        """Report no more of the current phase."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def switched_off() -> bool:
    """True if the environment asks for no progress."""
    return os.environ.get(SWITCH, "") == "0"


@contextmanager
def reported(progress: bool | Progress) -> Iterator[Progress]:
    """The receiver of a call's progress from Python: lines on stderr, nothing for False, or the given receiver."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress or switched_off():
        yield Progress()
    else:
        lines = Lines()
        try:
            yield lines
        finally:
            lines.stop()


def start(progress: Progress, device: Device, asked: str) -> None:
    """Report which device was chosen for the name ``asked``, and why."""
    info = device.info
    if "no_gpu" in info.details:
        power = "time on the CPU only" if "no_power" in info.details else "time and power of the CPU"
        text = f"no GPU here: {power}"
    else:
        text = f"{info.name} ({'cuda:0, the first GPU here' if asked == 'auto' else asked})"
    progress.start(text, timed=not device.clock.virtual)


def _print(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed stderr must not end a measurement
        print(f"jouletrace: {printable(text)}", file=sys.stderr, flush=True)
