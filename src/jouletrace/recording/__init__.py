"""Recording of sensor readings: two recorders with one contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.public import public_names
from jouletrace.recording.base import Recorder, RecorderCost

__all__ = ["Recorder", "RecorderCost", "open_recorder"]


def open_recorder(
    devices: Sequence[Device], spool: Path, power_s: float | None = None, kept_s: float | None = None
) -> Recorder:
    """The recorder that fits the devices' clock and what there is to read; it records once ``start`` is called.

    Args:
        devices: The devices to record.
        spool: Folder of the ``samples`` stream; created if it is missing.
        power_s: As in ``Collector``.
        kept_s: Likewise.

    Raises:
        BadInputError: If simulated GPUs in virtual time are mixed with devices in real time.
    """
    virtual = {device.clock.virtual for device in devices}
    if len(virtual) > 1:
        raise BadInputError("devices in real time and simulated GPUs in virtual time can't be recorded together")
    nothing = all(device.info.kind == "cpu" and not device.sources() for device in devices)
    if nothing or virtual == {True}:
        from jouletrace.recording.in_process import InProcessRecorder

        return InProcessRecorder(devices, spool, power_s, kept_s)
    from jouletrace.recording.process import ProcessRecorder

    offset_ns = getattr(devices[0].clock, "offset_ns", None)
    return ProcessRecorder(
        [device.spec for device in devices], spool, power_s=power_s, offset_ns=offset_ns, kept_s=kept_s
    )


__getattr__ = public_names(
    __name__,
    {
        "calibrations": "SCATTER",
        "in_process": "InProcessRecorder",
        "process": "ProcessRecorder",
        "session": "Session",
    },
)
