"""What hardware is here and what it can tell. Each vendor is one module behind the ``Device`` protocol."""

from jouletrace.devices.registry import list_devices, open_device, open_devices

__all__ = ["list_devices", "open_device", "open_devices"]
