"""The host's CPUs, with the energy counters that Linux provides under /sys/class/powercap (RAPL).

Intel and AMD packages are both called intel-rapl there.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from jouletrace.devices.base import Capability, Clock, Process, RealClock, Samples, Source, Vendor, one_sample
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo, DeviceInfo
from jouletrace.run.channels import CHANNEL_UNITS, ENERGY_COUNTER, POWER

SYSFS = "JOULETRACE_SYSFS"
"""Environment variable with the mount point of sysfs, where that isn't /sys, as in a container that has the host's."""

INTERVAL_S = 0.05
"""Long compared with the counter's step (1 ms), which therefore doesn't matter; short compared with a window."""

CHANNEL = ENERGY_COUNTER

_MOST_PACKAGE_W = 1000.0
"""No package draws more."""

_PAUSE_S = 10.0
"""A counter that falls within so long may be at the end of its range. In a longer pause the machine may have slept,
after which counters begin at 0."""


class RaplMissingError(NotPossibleError):
    """No package counter can be read.

    Attributes:
        code: "rapl_absent" or "rapl_unreadable", the reason of the resulting null energies.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Package:
    """One CPU socket's counter: the file ``path``, in µJ, restarts from zero after ``range_uj`` µJ."""

    name: str
    path: Path
    range_uj: int

    def used_uj(self, last_uj: int, now_uj: int, elapsed_s: float) -> int | None:
        """Energy between two reads in µJ; None where the counter may have restarted, or come round several times."""
        most_uj = _MOST_PACKAGE_W * elapsed_s * 1e6
        if now_uj >= last_uj:
            return now_uj - last_uj if most_uj < self.range_uj else None
        used = now_uj - last_uj + self.range_uj
        return used if elapsed_s <= _PAUSE_S and used <= most_uj else None


def sysfs() -> Path:
    """The mount point of sysfs."""
    return Path(os.environ.get(SYSFS) or "/sys")


def powercap() -> Path:
    """The folder of the RAPL counters."""
    return sysfs() / "class" / "powercap"


def find_packages(root: Path, part: str = "package") -> tuple[list[Package], list[str]]:
    """The package domains under ``root``, or those of their memory (``part`` "dram"), in order.

    Returns:
        Those that can be used, and the names of those whose range can't be read.

    Raises:
        RaplMissingError: If none can be used, or reading isn't permitted.
    """
    packages, left_out = list[Package](), list[str]()
    # "intel-rapl-mmio:N" repeats the same packages, and "intel-rapl:N:M" are parts of them.
    for zone in sorted(root.glob("intel-rapl:*")):
        if zone.name.count(":") != (1 if part == "package" else 2):
            continue
        try:
            name = (zone / "name").read_text().strip()
            if not name.startswith(part):
                continue
            _read_int(zone / "energy_uj")
            if (range_uj := _range_uj(zone)) > 0:
                packages.append(Package(name, zone / "energy_uj", range_uj))
            else:
                left_out.append(name)
        except PermissionError:
            raise RaplMissingError(
                "rapl_unreadable",
                "CPU energy can't be read: its counters are for root only; "
                f"run `sudo chmod -R a+r {root}/intel-rapl*/` (until the next boot)",
            ) from None
        except (OSError, ValueError):
            continue
    if not packages and left_out:
        raise RaplMissingError(
            "rapl_unreadable", f"CPU energy can't be read: no max_energy_range_uj of {', '.join(left_out)} under {root}"
        )
    if not packages:
        raise RaplMissingError(
            "rapl_absent",
            f"CPU energy can't be read: no RAPL package counter under {root} "
            "(virtual machines and containers hide it; on bare metal `sudo modprobe intel_rapl_msr` may bring it)",
        )
    return packages, left_out


class RaplSource:
    """Energy of all packages together, and the mean power since the previous reading.

    Power from counter differences is gapless by construction, however late a poll comes. Where a counter restarted, the
    energy is unknown: there is no power, and the sum begins at 0 again. It begins at 0, too, unless it is to begin with
    what the counters show, so that two sources of the same packages agree.
    """

    interval_s = INTERVAL_S

    def __init__(self, device: str, packages: list[Package], clock: Clock, *, as_shown: bool = False) -> None:
        names = " + ".join(p.name for p in packages)
        self.channels: tuple[ChannelInfo, ...] = tuple(
            ChannelInfo(
                device=device,
                name=channel,
                unit=CHANNEL_UNITS[channel][0],
                source=source,
                period_s=period_s,
                window_s=window_s,
                delay_s=window_s / 2,
                gapless=True,
            )
            for channel, source, period_s, window_s in (
                (POWER, f"RAPL energy_uj of {names}, differences", INTERVAL_S, INTERVAL_S),
                (CHANNEL, f"RAPL energy_uj of {names}", 0.001, 0.0),
            )
        )
        self._packages = packages
        self._clock = clock
        self._as_shown = as_shown
        self._last_uj: list[int] = []
        self._total_uj = 0
        self._last_ns = 0

    def poll(self) -> list[Samples]:
        """The counter and, from the second poll on, the power.

        Raises:
            NotPossibleError: If a counter is no longer readable.
        """
        before = self._clock.time_ns()
        try:
            now_uj = [_read_int(p.path) for p in self._packages]
        except (OSError, ValueError) as error:
            raise NotPossibleError(f"the RAPL counter can't be read any more: {error}") from None
        stamp = (before + self._clock.time_ns()) // 2
        if not self._last_uj:
            self._last_uj, self._last_ns = now_uj, stamp
            self._total_uj = sum(now_uj) if self._as_shown else 0
            return [one_sample(CHANNEL, stamp, self._total_uj / 1e6)]
        elapsed_ns = stamp - self._last_ns
        used_uj = [
            package.used_uj(last, now, elapsed_ns / 1e9)
            for now, last, package in zip(now_uj, self._last_uj, self._packages, strict=True)
        ]
        known_uj = [used for used in used_uj if used is not None]
        whole = len(known_uj) == len(used_uj)
        self._total_uj = self._total_uj + sum(known_uj) if whole else 0
        self._last_uj, self._last_ns = now_uj, stamp
        samples = [one_sample(CHANNEL, stamp, self._total_uj / 1e6)]
        if whole and elapsed_ns > 0:  # else the host's clock was set back, and no power can be determined
            samples.append(one_sample(POWER, stamp, sum(known_uj) * 1e3 / elapsed_ns))
        return samples


class CpuHost:
    """All CPUs of the host: always available, with energy where RAPL can be read.

    Without RAPL ``info.details`` has "no_power" (a reason code) and "no_power_note" (what RAPL needs).

    Args:
        root: Folder of the RAPL counters; None for that of this machine.
        clock: Source of time; None is the real clock.
    """

    spec = "cpu"

    def __init__(self, root: Path | None = None, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else RealClock()
        self.info = DeviceInfo(
            id="cpu",
            name=_model_name(),
            kind="cpu",
            host=socket.gethostname(),
            memory_bytes=_memory_bytes(),
            details={"logical_cpus": os.cpu_count()},
        )
        self._packages: list[Package] = []
        try:
            self._packages, left_out = find_packages(root or powercap())
            self.info.details["packages"] = [p.name for p in self._packages]
            if left_out:
                self.info.details["packages_left_out"] = left_out
                number = len(self._packages)
                self.info.name += f" ({number} of {number + len(left_out)} packages)"
        except RaplMissingError as error:
            self.info.details["no_power"] = error.code
            self.info.details["no_power_note"] = str(error)

    def sources(self) -> list[Source]:
        """RAPL if it can be read, else no source."""
        return [RaplSource(self.info.id, self._packages, self.clock)] if self._packages else []

    def capabilities(self) -> list[Capability]:
        """One entry: CPU energy, or why it is missing."""
        name, source = "CPU package energy", "RAPL energy_uj"
        if not self._packages:
            return [Capability(name, False, source, note=str(self.info.details["no_power_note"]))]
        start = time.perf_counter()
        for package in self._packages:
            _read_int(package.path)
        cost_s = time.perf_counter() - start
        note = f"gapless; {len(self._packages)} package(s), summed"
        if left_out := self.info.details.get("packages_left_out"):
            note += f"; without {', '.join(left_out)}, whose max_energy_range_uj can't be read"
        return [Capability(name, True, source, 0.001, cost_s, note)]

    def processes(self) -> list[Process]:
        """Empty: all processes use the CPU."""
        return []

    def close(self) -> None:
        """Nothing is held open."""


def _range_uj(zone: Path) -> int:
    """The range of a zone's counter, 0 if it can't be read."""
    try:
        return _read_int(zone / "max_energy_range_uj")
    except PermissionError:
        raise
    except (OSError, ValueError):
        return 0


def _read_int(path: Path) -> int:
    return int(path.read_text())


def _model_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


VENDOR = Vendor("cpu", re.compile("cpu"), lambda name: CpuHost(), lambda: [CpuHost().info])
