"""Does a recorder of eight busy GPUs hold out for a week: memory, nothing lost, size, time to open, right energies?

    python benchmarks/endurance.py -o /tmp/week --gpus 1 --days 7
    python benchmarks/endurance.py -o /tmp/day --gpus 8 --days 1

Records with ``monitor`` in virtual time and prints its memory at the end of each day, the size of the Run, the seconds
to open and to print it in processes of their own, and energies beside the truth.

A millisecond's physics of a week takes an hour a GPU, so these GPUs have none: 25 channels at the rates of an H100, 240
readings per second. Power is a load of three levels, each for seconds, plus a swing of 5 h: its integral is the truth;
a reading is its mean over 20 ms with noise of 0.4 W.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import jouletrace as jt
from jouletrace.analysis.power import energies
from jouletrace.devices.base import Samples
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.run import ChannelInfo, DeviceInfo
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.simulator.boards.clock import VirtualClock

NS, START_NS, DAY_S = 10**9, 1_793_491_200 * 10**9, 86_400
ENDS_S, LEVELS_W = np.array([0.0, 12.7, 20.8, 37.3]), np.array([640.0, 410.0, 180.0])
SWING_W, SWING_S = 30.0, 5 * 3600.0
POWERS = ("power_average_w", "power_instant_w", "power_memory_w")
STILL = ("clock_sm_mhz", "clock_memory_mhz", "temperature_c", "temperature_memory_c", "throttle_bits", "pstate")
SHARES = ("memory_used_bytes", "utilization_gpu_pct", "utilization_memory_pct")
COUNTED = tuple(name for name in CHANNEL_UNITS if name.endswith(("_active", "_occupancy", "_bytes_per_s")))[:11]


def joules(at_s):
    """The true energy from the start until some times in s."""
    knots_j = np.append(0.0, np.cumsum(LEVELS_W * np.diff(ENDS_S)))
    rounds, rest_s = np.divmod(at_s, ENDS_S[-1])
    swings_j = SWING_W * SWING_S / (2 * np.pi) * (1 - np.cos(2 * np.pi * at_s / SWING_S))
    return rounds * knots_j[-1] + np.interp(rest_s, ENDS_S, knots_j) + swings_j


class Everything:
    """All readings of one GPU in one call a second."""

    interval_s = 1.0

    def __init__(self, device, clock, seed):
        self._clock, self._random, self._until_s, self.given = clock, np.random.default_rng(seed), 0, 0
        power = ChannelInfo(
            device, "power_w", "W", "SIMULATED", period_s=0.02, window_s=0.02, gapless=True, delay_s=0.01
        )
        names = (*POWERS, *STILL, *SHARES, "energy_counter_j", *COUNTED)
        self.channels = (
            power,
            *(ChannelInfo(device, name, CHANNEL_UNITS[name][0], "SIMULATED", 0.1) for name in names),
        )

    def poll(self):
        """Readings since the last call."""
        until_s = (self._clock.time_ns() - START_NS) // NS
        since_s, self._until_s = self._until_s, until_s
        if until_s == since_s:
            return []
        edges_s = since_s + np.arange(50 * (until_s - since_s) + 1) / 50
        energy_j, random = joules(edges_s), self._random
        watts = np.round(np.diff(energy_j) * 50 + random.normal(0, 0.4, len(edges_s) - 1), 3)
        stamps = START_NS + np.round(edges_s[1:] * 1e9).astype(np.int64)
        read, fifth = slice(4, None, 5), slice(9, None, 10)  # ten a second, and five
        values = {"power_w": (stamps, watts)}
        values |= dict.fromkeys(POWERS, (stamps[read], watts[read]))
        values |= {name: (stamps[read], np.full(len(watts[read]), 60.0)) for name in STILL}
        values |= {name: (stamps[read], np.round(random.uniform(90, 99, len(watts[read])))) for name in SHARES}
        values["energy_counter_j"] = stamps[read], np.round(energy_j[1:][read], 3)
        values |= {name: (stamps[fifth], np.round(watts[fifth] / 700 + random.normal(0, 0.01), 4)) for name in COUNTED}
        samples = [Samples(name, *columns) for name, columns in values.items()]
        self.given += sum(len(some.time_ns) for some in samples)
        return samples


class Gpu:
    """A simulated GPU without physics."""

    def __init__(self, number, clock):
        name = f"SIM-endurance-{number:04d}-0000-0000-000000000000"
        self.info = DeviceInfo(name, "H100 80GB", simulated=True)
        self.clock, self.spec = clock, "sim:endurance"
        self._source = Everything(name, clock, number)

    def sources(self):
        """As a ``Device``."""
        return [self._source]

    def capabilities(self):
        """As a ``Device``."""
        return []

    def processes(self):
        """As a ``Device``."""
        return []

    def close(self):
        """As a ``Device``."""


def resident_mib():
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def record(folder, gpus, days):
    """Record, and print memory at the end of each day."""
    clock = VirtualClock(lambda until_ns: until_ns, START_NS)
    devices, begun, day = [Gpu(number, clock) for number in range(gpus)], time.process_time(), 0.0

    def show(readings, work):
        nonlocal day
        if clock.time_ns() - START_NS >= (day + 0.25) * DAY_S * NS:
            day += 0.25
            cpu_s = time.process_time() - begun
            disk = sum(path.stat().st_size for path in (folder / "spool").iterdir()) / 2**20
            print(
                f"day {day:g}: {resident_mib():.0f} MiB resident, spool {disk:.0f} MiB, {cpu_s:.0f} s CPU", flush=True
            )

    run = monitor(devices, interval_s=60.0, duration_s=days * DAY_S, folder=folder, displays=[show])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    given = sum(device.sources()[0].given for device in devices)
    print(f"end: peak {peak:.0f} MiB, {time.process_time() - begun:.0f} s CPU")
    print(f"readings: {given} given, {given - run.recorder['samples']:.0f} lost")


def judge(folder, gpus, days):
    """Print sizes, seconds to open and to print, and energies beside the truth."""
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"Run: {megabytes:.1f} MB, {megabytes / gpus / days * 7:.1f} MB per GPU and week")
    opened = (
        "import time, sys, jouletrace as jt; a = time.monotonic(); jt.load(sys.argv[1]); print(time.monotonic() - a)"
    )
    done = subprocess.run([sys.executable, "-c", opened, folder], check=True, capture_output=True, text=True)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "jouletrace", "show", folder], check=True, capture_output=True)
    print(f"opened in {float(done.stdout):.1f} s, `jouletrace show` in {time.monotonic() - begun:.1f} s")
    run = jt.load(str(folder))
    device, random = run.devices[0].id, np.random.default_rng(1)
    end_s = days * DAY_S - 1.0  # the last reading is of the last whole second
    stamps, _ = run.series(device, "power_w")
    print(f"means of {len(stamps)} seconds of {end_s:.0f}, longest step {np.diff(stamps).max() / 1e9:.3f} s")
    hour = max(end_s - 3500, 0)
    groups = {
        "whole": [(0.0, end_s)],
        "first day": [(0.0, min(DAY_S, end_s))],
        "last day": [(max(end_s - DAY_S, 0), end_s)],
        "10 s, early": [(a, a + 10) for a in random.uniform(60, end_s / 8, 100)],
        "5 min, early": [(a, a + 300) for a in random.uniform(60, end_s / 8, 100)],
        "1 h, early": [(a, a + 3600) for a in random.uniform(60, end_s / 8, 100)],
        "10 s, last hour": [(a, a + 10) for a in random.uniform(hour, end_s - 20, 100)],
        "5 min, last hour": [(a, a + 300) for a in random.uniform(hour, end_s - 310, 100)],
        "over the border": [(a, end_s - 1800) for a in random.uniform(end_s - 7200, end_s - 5000, 100)],
    }
    print("spans,count,without,worst error %,mean error %,mean half-width %,within")
    for name, spans in groups.items():
        rows = []
        for start_s, stop_s in spans:
            edges = [[START_NS + round(edge * NS)] for edge in (start_s, stop_s)]
            energy = energies(run, device, *edges, bursts_ns=[]).estimate()
            truth = float(joules(stop_s) - joules(start_s))
            if energy.value is not None:
                inside = energy.low <= truth <= energy.high
                rows.append((energy.value / truth - 1, energy.half_width / truth, inside))
        error, half, within = np.array(rows).T
        figures = [100 * np.abs(error).max(), 100 * error.mean(), 100 * half.mean()]
        print(
            ",".join(
                [
                    name,
                    str(len(spans)),
                    str(len(spans) - len(rows)),
                    *(f"{x:.4f}" for x in figures),
                    f"{within.sum():.0f}",
                ]
            )
        )


def main():
    """Record, in a process of its own, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--days", type=float, default=7.0)
    asked = parser.parse_args()
    if not asked.output.exists():
        record(asked.output, asked.gpus, asked.days)
    judge(asked.output, asked.gpus, asked.days)


if __name__ == "__main__":
    main()
