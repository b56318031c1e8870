"""Files that hold readings of one device: copies and parts of one log, or logs of two GPUs of one number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import about
from jouletrace.run import ChannelInfo, DeviceInfo, Run
from jouletrace.run.channels import ENERGY_COUNTER, POWER

ANONYMOUS = "imported:"
"""Prefix of the ids of devices whose UUID the file doesn't report; the number follows."""

_IN_COMMON = 0.02
"""Share of a log's rows that may reach into its next part with other stamps, where the cut is within a second."""


@dataclass(frozen=True)
class _Logged:
    """Readings of a channel in one file, oldest first.

    Attributes:
        named: True if a UUID or a serial number identifies the device; GPUs of two hosts may share a bus.
    """

    path: str
    device: DeviceInfo
    named: bool
    time_ns: Ints
    value: Floats

    @property
    def edges(self) -> tuple[int, int]:
        """The first and the last time."""
        return int(self.time_ns[0]), int(self.time_ns[-1])

    def reaches(self, other: _Logged) -> bool:
        """True if both have a time in common."""
        return bool(self.time_ns[0] <= other.time_ns[-1] and other.time_ns[0] <= self.time_ns[-1])


def leave_out_logged_twice(runs: list[Run], paths: list[str]) -> bool:
    """Leave out readings of a channel in the time in which an earlier file has it: together they'd be no record.

    Returns:
        Whether several files hold readings of one channel.

    Raises:
        BadInputError: If files contradict each other and nothing says that they are logs of one GPU.
    """
    known: dict[tuple[str, str], list[_Logged]] = {}
    for run, path in zip(runs, paths, strict=True):
        for channel in run.channels:
            own = _logged(run, path, channel)
            if own is None:
                continue
            earlier = known.setdefault((channel.device, channel.name), [])
            for other in earlier:
                if channel.name in (POWER, ENERGY_COUNTER):
                    _refuse_others(other, own)
                if own.reaches(other) and _leave_out(run, channel, other.edges) and channel.name == POWER:
                    there, name = Path(other.path).name, Path(path).name
                    both = f"{there} and {name} are logs of one GPU: where both reach, the power of {there} counts"
                    run.warn("logged_twice", f"{both}; if they are two GPUs, import each alone", name)
            earlier.append(own)
    return any(len(logs) > 1 for logs in known.values())


def _logged(run: Run, path: str, channel: ChannelInfo) -> _Logged | None:
    """The readings of a channel; None if there are none."""
    time, value = run.series(channel.device, channel.name)
    device = next((one for one in run.devices if one.id == channel.device), None)
    if not len(time) or device is None:
        return None
    renamed = about(run).get("devices", {}).values() if run.kind == "import" else ()
    named = device.serial is not None or not (device.id.startswith(ANONYMOUS) or device.id in renamed)
    order = np.argsort(time, kind="stable")
    return _Logged(path, device, named, time[order], value[order])


def _leave_out(run: Run, channel: ChannelInfo, edges: tuple[int, int]) -> bool:
    """Leave out readings of a channel between two times; False if there are none."""
    table = run.samples
    within = pc.and_(pc.greater_equal(table["time_ns"], edges[0]), pc.less_equal(table["time_ns"], edges[1]))
    own = pc.and_(pc.equal(table["device"], channel.device), pc.equal(table["channel"], channel.name))
    twice = pc.fill_null(pc.and_(own, within), False)
    if not pc.any(twice).as_py():
        return False
    run.samples = table.filter(pc.invert(twice))
    return True


def _refuse_others(one: _Logged, other: _Logged) -> None:
    """Refuse logs of GPUs of one number whose names differ, or that reach the same time with other readings.

    Raises:
        BadInputError: If they are.
    """
    if one.named and other.named:
        return
    label = "one device" if one.device.index is None else f"GPU {one.device.index}"
    if _other_name(one.device, other.device):
        text = f"{one.path} and {other.path} name {label} {one.device.name} and {other.device.name}"
    elif one.reaches(other) and _other_readings(one, other):
        text = f"{one.path} and {other.path} have other readings of {label} at the same time, and no UUID in both"
    else:
        return
    raise BadInputError(f"{text}: are they of two GPUs? Log the column uuid, too, or import each file alone")


def _other_readings(one: _Logged, other: _Logged) -> bool:
    """True if readings of one in the time of the other aren't copies of its own."""
    first, last = one.edges
    within = (other.time_ns >= first) & (other.time_ns <= last)
    at = np.minimum(np.searchsorted(one.time_ns, other.time_ns), len(one.time_ns) - 1)
    copied = (one.time_ns[at] == other.time_ns) & (one.value[at] == other.value)
    return bool(np.sum(within & ~copied) > _IN_COMMON * min(len(one.time_ns), len(other.time_ns)))


def _other_name(one: DeviceInfo, other: DeviceInfo) -> bool:
    """True if both files name the device, and neither name is a shortened form of the other."""
    names = [device.name for device in (one, other) if device.name != f"device {device.index}"]
    return len(names) == 2 and not (names[0].startswith(names[1]) or names[1].startswith(names[0]))
