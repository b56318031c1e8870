"""What a traced recording is called in a Run, for who writes one and for who reads it."""

from __future__ import annotations

from typing import Final

from jouletrace.run import Run

PHASE: Final = "recording"
"""Under which ``Run.workload`` says how the recording was made."""

SAMPLE_RATE: Final = "sample_rate_hz"
"""Metric, and key of what is stored of a GPU, of the sensor's samples per second."""

IDLE_NAME = "idle"
"""Name of the unit for the time in which no kernel runs."""

OUTSIDE = "(outside of modules)"
"""Name of the row for operators that no submodule calls."""


def has_recording(run: Run) -> bool:
    """Whether a Run holds a traced recording."""
    return bool(len(run.activity)) and PHASE in run.workload
