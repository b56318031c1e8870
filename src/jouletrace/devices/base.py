"""The interface of every device: identity, a clock, and sources of readings.

A new vendor takes one module with a ``Device`` and a ``Vendor``, and one line in
``devices.registry``. Values are in SI units; only the vendor's module uses the vendor's units.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo, DeviceInfo
from jouletrace.run.steady import host_offset_ns, offset_ns, steady_ns


class Clock(Protocol):
    """A source of time: the real clock, or that of a simulated GPU."""

    virtual: bool
    """True if time passes only during sleep and work on the GPU."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that never steps."""

    def ahead_ns(self) -> int:
        """How far the host's clock is ahead of this one, in nanoseconds, since it was set; about 0 if it wasn't."""

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
    time_ns: Ints
    value: Floats


class Source(Protocol):
    """One vendor call (or a group read together) with its own polling interval."""

    channels: tuple[ChannelInfo, ...]
    """The channels that it yields."""

    interval_s: float
    """Poll at least this often, or readings are lost; more frequent polls yield nothing new."""

    def poll(self) -> list[Samples]:
        """Readings since the last call, perhaps none. Takes as long as the vendor's call."""


@dataclass(frozen=True)
class Capability:
    """An entry of ``doctor``: a quantity that can, or can't, be measured on a device.

    Attributes:
        name: The quantity ("power, gapless 20 ms record").
        available: Whether it works here.
        source: The vendor call behind it.
        period_s: Observed or documented update period in seconds.
        cost_s: Seconds one read takes, measured now.
        note: How well it works, or why it doesn't work and what would change that.
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
        memory_bytes: Device memory in use, if the driver reports it.
    """

    pid: int
    name: str = ""
    memory_bytes: int | None = None


@runtime_checkable
class Device(Protocol):
    """A piece of hardware whose power can be read (or a simulated one); ``spec`` opens it again in another process."""

    info: DeviceInfo
    clock: Clock
    spec: str

    def sources(self) -> list[Source]:
        """All sources to record, the best power source first. Each call returns new objects."""

    def capabilities(self) -> list[Capability]:
        """The quantities that can and can't be measured, for ``doctor``. Reads each sensor once."""

    def processes(self) -> list[Process]:
        """Processes that use the device now; empty where that can't be seen."""

    def close(self) -> None:
        """Release the vendor's library."""


@runtime_checkable
class OfAnotherHost(Protocol):
    """A device whose readings have the stamps of another host's clock, converted to this one's."""

    def clock_moved(self) -> str:
        """A warning if the two clocks moved against each other since it was opened; "" if they didn't."""


@dataclass(frozen=True)
class Vendor:
    """The devices of a vendor by name; ``VENDOR`` of a module of ``registry.VENDORS``.

    Attributes:
        form: How they are named, for messages ("sim:NAME"); "" where no one names them.
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


class RealClock:
    """The host's clock as it was when this was made; it goes on steadily if the host's is set.

    Attributes:
        offset_ns: As in ``run.steady``.
    """

    virtual = False

    def __init__(self) -> None:
        self.offset_ns = offset_ns()

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self.offset_ns + steady_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds since a fixed point; never steps."""
        return steady_ns()

    def ahead_ns(self) -> int:
        """How far the host's clock has been set since, in nanoseconds."""
        return host_offset_ns() - self.offset_ns

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        if seconds > 0:
            time.sleep(seconds)


def one_sample(channel: str, time_ns: int, value: float) -> Samples:
    """A single reading."""
    return Samples(channel, np.array([time_ns], dtype=np.int64), np.array([value], dtype=np.float64))


def others(
    devices: Sequence[Device], ours: Collection[int] = (), *, used_here: bool = False
) -> dict[str, list[Process]]:
    """Processes that use each device now, by its id; without this process, what it started, and the pids ``ours``.

    In a container a driver may list this process by the host's pid: if it uses them (``used_here``) and isn't listed,
    processes whose name can't be read may be itself, and are left out.
    """
    users = {}
    for device in devices:
        with suppress(NotPossibleError):  # a GPU that is gone has no users; its recorder states that
            there = device.processes()
            not_ours = [each for each in there if each.pid not in ours and os.getpid() not in _line(each.pid)]
            unseen = used_here and len(not_ours) == len(there)
            users[device.info.id] = [each for each in not_ours if each.name or not unseen]
    return users


def _line(pid: int) -> Iterator[int]:
    """A process, its parent, and so on, as far as they can be seen."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def used_by(processes: Iterable[Process], who: str = "others use it, too") -> str:
    """A warning of processes whose power is in the figures of a device."""
    return f"{who}: {', '.join(map(described, processes))}; what they draw is in all figures"


def described(process: Process) -> str:
    """A process with its pid and memory; a pid of another namespace, where it has no name, says nothing here."""
    memory = [] if process.memory_bytes is None else [f"{process.memory_bytes / 2**30:.1f} GiB"]
    facts = [f"pid {process.pid}", *memory] if process.name else memory
    name, clients = process.name or "a process whose name can't be read", ""
    if process.name.startswith("nvidia-cuda-mps"):  # the kernel cuts names after 15 characters
        name, clients = "an MPS server", ", which hides its clients"
    return f"{name} ({', '.join(facts)}){clients}" if facts else name
