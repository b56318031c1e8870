"""Names under which a Run states a traced recording."""

from __future__ import annotations

import re
from typing import Final

from jouletrace.run.forms import RecordingFacts
from jouletrace.run.model import Run

RECORDINGS: Final = "recordings"
"""Under which ``Run.workload`` says how the recording of each device was made."""

SAMPLE_RATE: Final = "sample_rate_hz"
"""Metric, and key of what is stored of a GPU, of the sensor's samples per second."""

IDLE_NAME = "idle"
"""Name of the unit for the time in which no kernel runs."""

BEFORE = "before the first kernel"
"""Name of the unit for the time in which a program imports, reads and sets up."""

IN_NO_PART = "in no part"
"""Name of the row for the energy that all parts together leave of the whole, or exceed it by."""

OUTSIDE = "(outside of modules)"
"""Name of the row for operators that no submodule calls."""


_NUMBER = re.compile(r"(?<=\.)\d+(?![^.])|^\d+(?=\.)")
"""The index of one of several equal layers; a module whose whole name is a number keeps it."""


def of_equal_layers(module: str) -> str:
    """The name of a module with * in place of the numbers of equal layers."""
    return _NUMBER.sub("*", module)


WAITING = "waiting for other ranks"
"""Phase of a program of several ranks in which a collective's kernel spins until the last rank has launched its own."""


def waiting_part(kernel: str) -> str:
    """Name of the part of a kernel in which it waits for other ranks; ``is_waiting`` reads it."""
    return f"{kernel} ({WAITING})"


def is_waiting(kernel: str) -> bool:
    """True if a name is one of ``waiting_part``."""
    return kernel.endswith(waiting_part(""))


def has_recording(run: Run) -> bool:
    """True if a Run holds a traced recording."""
    return bool(len(run.activity)) and bool(run.workload.get("recordings"))


def recording_of(run: Run) -> RecordingFacts:
    """Facts of the recording of a Run, of the first of several; empty without one."""
    return next(iter(run.workload.get("recordings", ())), RecordingFacts())
