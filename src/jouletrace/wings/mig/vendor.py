"""Names of slices of simulated GPUs; the simulator is imported when one is opened."""

from __future__ import annotations

import re

from jouletrace.devices.base import Device, Vendor


def _open(spec: str) -> Device:
    from jouletrace.wings.mig.slices import open_slice

    return open_slice(spec)


VENDOR = Vendor("sim:NAME?mig=PROFILE", re.compile(r"sim:[^?]*\?(?s:(.*&)?)mig=(?s:.*)|(?is:MIG-SIM-.*)"), _open)
"""``sim:NAME?mig=PROFILE``, and the UUIDs of slices that ``mig apply`` made."""
