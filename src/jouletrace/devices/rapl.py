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

ROOT = Path("/sys/class/powercap")
INTERVAL_S = 0.05
"""Long compared with the counter's step (1 ms), which therefore doesn't matter; short compared with a window."""

CHANNEL = ENERGY_COUNTER


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


def find_packages(root: Path = ROOT, part: str = "package") -> list[Package]:
    """The package domains under ``root``, or those of their memory (``part`` "dram"), in order.

    Raises:
        RaplMissingError: If none exists, or reading isn't permitted.
    """
    packages = []
    # "intel-rapl-mmio:N" repeats the same packages, and "intel-rapl:N:M" are parts of them.
    for zone in sorted(root.glob("intel-rapl:*")):
        if zone.name.count(":") != (1 if part == "package" else 2):
            continue
        try:
            name = (zone / "name").read_text().strip()
            if not name.startswith(part):
                continue
            _read_int(zone / "energy_uj")
            packages.append(Package(name, zone / "energy_uj", _read_int(zone / "max_energy_range_uj")))
        except PermissionError:
            raise RaplMissingError(
                "rapl_unreadable",
                "CPU energy can't be read: its counters are for root only; "
                f"run `sudo chmod -R a+r {root}/intel-rapl*/` (until the next boot)",
            ) from None
        except (OSError, ValueError):
            continue
    if not packages:
        raise RaplMissingError(
            "rapl_absent",
            f"CPU energy can't be read: no RAPL package counter under {root} "
            "(virtual machines and containers hide it; on bare metal `sudo modprobe intel_rapl_msr` may bring it)",
        )
    return packages


class RaplSource:
    """Energy of all packages together, and the mean power since the previous reading.

    Power from counter differences is gapless by construction, however late a poll comes.
    """

    interval_s = INTERVAL_S

    def __init__(self, device: str, packages: list[Package], clock: Clock) -> None:
        names = " + ".join(p.name for p in packages)
        self.channels = tuple(
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
        self._last_uj: list[int] = []
        self._total_uj = 0
        self._last_ns = 0

    def poll(self) -> list[Samples]:
        """The counter (zero at the first poll) and, from the second poll on, the power.

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
            return [one_sample(CHANNEL, stamp, 0.0)]
        used_uj = sum(
            now - last if now >= last else now - last + package.range_uj
            for now, last, package in zip(now_uj, self._last_uj, self._packages, strict=True)
        )
        elapsed_ns = stamp - self._last_ns
        self._total_uj += used_uj
        self._last_uj, self._last_ns = now_uj, stamp
        samples = [one_sample(CHANNEL, stamp, self._total_uj / 1e6)]
        if elapsed_ns > 0:  # else the host's clock was set back, and no power can be determined
            samples.append(one_sample(POWER, stamp, used_uj * 1e3 / elapsed_ns))
        return samples


class CpuHost:
    """All CPUs of the host: always available, with energy where RAPL can be read.

    Without RAPL ``info.details`` has "no_power" (a reason code) and "no_power_note" (what RAPL needs).

    Args:
        root: Mount point of powercap.
        clock: Source of time; None is the real clock.
        part: "package", or "dram" for the memory of all packages.
    """

    spec = "cpu"

    def __init__(self, root: Path = ROOT, clock: Clock | None = None, part: str = "package") -> None:
        self.clock: Clock = clock if clock is not None else RealClock()
        self.info = DeviceInfo(
            id="cpu" if part == "package" else part,
            name=_model_name() if part == "package" else part.upper(),
            kind="cpu",
            host=socket.gethostname(),
            memory_bytes=_memory_bytes(),
            details={"logical_cpus": os.cpu_count()},
        )
        self._packages: list[Package] = []
        try:
            self._packages = find_packages(root, part)
            self.info.details["packages"] = [p.name for p in self._packages]
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
        return [Capability(name, True, source, 0.001, cost_s, f"gapless; {len(self._packages)} package(s), summed")]

    def processes(self) -> list[Process]:
        """Empty: all processes use the CPU."""
        return []

    def close(self) -> None:
        """Nothing is held open."""


def beside_gpus(root: Path = ROOT) -> list[CpuHost]:
    """CPU packages and their memory, where their energy can be read."""
    hosts = [CpuHost(root, part=part) for part in ("package", "dram")]
    return [host for host in hosts if "no_power" not in host.info.details]


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
