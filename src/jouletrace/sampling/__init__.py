"""Recording what the sensors say: two recorders under one contract."""

from jouletrace.sampling.base import Recorder, RecorderCost
from jouletrace.sampling.recorder import open_recorder

__all__ = ["Recorder", "RecorderCost", "open_recorder"]
