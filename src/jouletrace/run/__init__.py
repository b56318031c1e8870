"""The Run, its tables and its file format. Plain data: of jouletrace it imports its errors and secrets alone."""

from jouletrace.run.estimate import Estimate
from jouletrace.run.info import ChannelInfo, DeviceInfo, RunWarning, device_labels
from jouletrace.run.loading import load
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.store import save

__all__ = ["MODEL_UNIT", "ChannelInfo", "DeviceInfo", "Estimate", "Run", "RunWarning", "device_labels", "load", "save"]
