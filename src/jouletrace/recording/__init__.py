"""Recording of sensor readings: two recorders with one contract."""

from jouletrace.recording.base import Recorder, RecorderCost
from jouletrace.recording.recorder import open_recorder

__all__ = ["Recorder", "RecorderCost", "open_recorder"]
