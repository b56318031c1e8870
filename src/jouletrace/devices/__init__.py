"""The hardware of this machine and its readings. Each vendor has one module behind the ``Device`` protocol."""

from jouletrace.devices.registry import (
    in_real_time,
    is_simulated,
    list_devices,
    one_or_several,
    only_one,
    open_device,
    open_devices,
)
from jouletrace.public import public_names

__all__ = ["in_real_time", "is_simulated", "list_devices", "one_or_several", "only_one", "open_device", "open_devices"]

__getattr__ = public_names(
    __name__,
    {
        "base": "Device Process RealClock",
        "rapl": "CpuHost RaplSource find_packages",
    },
)
