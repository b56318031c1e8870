"""The Run, its tables and its file format. Plain data: of jouletrace it imports its errors and secrets alone.

Names are loaded on first use: who opens devices needs their descriptions, and neither the tables nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jouletrace.public import public_names

if TYPE_CHECKING:
    from jouletrace.run.estimate import Estimate
    from jouletrace.run.info import ChannelInfo, DeviceInfo, RunWarning, device_labels
    from jouletrace.run.loading import load
    from jouletrace.run.model import MODEL_UNIT, Run
    from jouletrace.run.store import save

__all__ = ["MODEL_UNIT", "ChannelInfo", "DeviceInfo", "Estimate", "Run", "RunWarning", "device_labels", "load", "save"]

__getattr__ = public_names(
    __name__,
    {
        "channels": "CHANNEL_UNITS ENERGY_COUNTER POWER",
        "division": "divisions_of",
        "estimate": "Estimate widened",
        "figures": "Units",
        "files": "write_whole",
        "info": "ChannelInfo DeviceInfo RunWarning device_labels",
        "loading": "load verify",
        "masking": "masked",
        "model": "MODEL_UNIT Run",
        "names": "elided short_name short_names",
        "parts": "Parts SHARED_POWER STORED_SCATTER",
        "places": "check_free fresh_folder",
        "reading": "FILES",
        "readings": "ALIASED Readings",
        "recording_names": "RECORDINGS SAMPLE_RATE recording_of",
        "scratch": "PREFIX Scratch remove_left_behind",
        "spool": "SPOOL SpoolWriter read_spool",
        "store": "save save_header",
        "tables": "SAMPLES",
    },
)
