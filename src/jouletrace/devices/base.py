"""What every device offers, whoever made it: identity, a clock, and sources of readings.

A new vendor is one module with a ``Device`` and a ``Vendor``, and one line in
``devices.registry``. Values are in SI units from here on; vendor units end in the vendor's module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from jouletrace.run import ChannelInfo, DeviceInfo


class Clock(Protocol):
    """Where time comes from: the real one, or that of a simulated GPU."""

    virtual: bool
    """True if time passes only when somebody sleeps or works on the GPU."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that never steps."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Readings of one channel, oldest first.

    Attributes:
        channel: Name of the channel.
        time_ns: Stamps, int64, shape (n,), nanoseconds since the Unix epoch.
        value: Readings, float64, shape (n,), in the channel's unit.
    """

    channel: str
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]


class Source(Protocol):
    """One vendor call (or a group read together) that has to be asked at its own pace."""

    channels: tuple[ChannelInfo, ...]
    """What it yields."""

    interval_s: float
    """Ask at least this often, or readings are lost; more often brings nothing new."""

    def poll(self) -> list[Samples]:
        """What is new since the last call; empty if nothing is. Costs what the call costs."""


@dataclass(frozen=True)
class Capability:
    """A line of ``doctor``: something that can, or can't, be measured on a device.

    Attributes:
        name: What it is ("power, gapless 20 ms record").
        available: Whether it works here.
        source: The vendor call behind it.
        period_s: Observed or documented update period in seconds.
        cost_s: Seconds one read takes, measured now.
        note: How well it works, or why it doesn't and what would change that.
    """

    name: str
    available: bool
    source: str = ""
    period_s: float | None = None
    cost_s: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Process:
    """A process that uses a device.

    Attributes:
        pid: Process id in this namespace.
        name: Command name, or "" if it can't be seen.
        memory_bytes: Device memory in use, if the driver reports.
    """

    pid: int
    name: str = ""
    memory_bytes: int | None = None


@runtime_checkable
class Device(Protocol):
    """A piece of hardware whose power can be read (or a simulated one).

    ``Gpu``, ``MigInstance`` and ``CpuPackage`` below are what a device is; the module of a vendor
    implements them. ``spec`` opens the same device again in another process.
    """

    info: DeviceInfo
    clock: Clock
    spec: str

    def sources(self) -> list[Source]:
        """Everything worth recording, the best power source first. New objects at each call."""

    def capabilities(self) -> list[Capability]:
        """What can be measured here and what can't, for ``doctor``. Reads each sensor once."""

    def processes(self) -> list[Process]:
        """Processes that use the device now; empty where that can't be seen."""

    def close(self) -> None:
        """Release the vendor's library."""


@dataclass(frozen=True)
class Vendor:
    """The devices of a vendor by name; ``VENDOR`` of a module of ``registry.VENDORS``.

    Attributes:
        form: How they are named, for messages ("sim:NAME").
        names: The names that are this vendor's, ids of ``listed`` among them.
        open: Opens the device of such a name; raises ``BadInputError`` or ``NotPossibleError``.
        listed: The devices that are here.
        visible: Names of the GPUs that this process may use, the one for "auto" first; raises ``NotPossibleError``.
    """

    form: str
    names: re.Pattern[str]
    open: Callable[[str], Device]
    listed: Callable[[], Sequence[DeviceInfo]] = tuple
    visible: Callable[[], Sequence[str]] = tuple


def named(infos: Sequence[DeviceInfo]) -> str:
    """Devices, for a message."""
    return ", ".join(f"{info.id} ({info.name})" for info in infos) or "none"


class Gpu(Device, Protocol):
    """A whole board: the only thing with a power sensor of its own."""


class MigInstance(Device, Protocol):
    """A slice of a GPU: has activity and memory of its own but only its parent's power."""

    parent: str
    """UUID of the GPU that it is a slice of."""


class CpuPackage(Device, Protocol):
    """A CPU socket, with an energy counter where the kernel lets it be read."""
