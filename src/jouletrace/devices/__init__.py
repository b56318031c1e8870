"""The hardware of this machine and its readings. Each vendor has one module behind the ``Device`` protocol."""

from jouletrace.devices.registry import list_devices, open_device, open_devices

__all__ = ["list_devices", "open_device", "open_devices"]
