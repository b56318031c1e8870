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

__all__ = ["in_real_time", "is_simulated", "list_devices", "one_or_several", "only_one", "open_device", "open_devices"]
