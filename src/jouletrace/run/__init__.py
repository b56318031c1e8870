"""The Run, its tables and its file format. Plain data: of jouletrace it imports its errors and secrets alone.

Names are loaded on first use: who opens devices needs their descriptions, and neither the tables nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jouletrace.run.estimate import Estimate
    from jouletrace.run.info import ChannelInfo, DeviceInfo, RunWarning, device_labels
    from jouletrace.run.loading import load
    from jouletrace.run.model import MODEL_UNIT, Run
    from jouletrace.run.store import save

__all__ = ["MODEL_UNIT", "ChannelInfo", "DeviceInfo", "Estimate", "Run", "RunWarning", "device_labels", "load", "save"]

_HOMES = {"Estimate": "estimate", "MODEL_UNIT": "model", "Run": "model", "load": "loading", "save": "store"}
"""Modules of names that aren't in ``info``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'info')}"), name)
    return value
