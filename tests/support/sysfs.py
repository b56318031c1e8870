"""A simulated sysfs of a host: RAPL counters and a power meter that a thread advances at stated powers, the truth."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import contextmanager

RANGE_UJ = 262_143_328_850


def put(path, text):
    """Write a file that readers see whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.new").write_text(f"{text}\n")
    os.replace(path.with_name(f"{path.name}.new"), path)


class Sysfs:
    """The tree, and what was drawn.

    Attributes:
        zones: Watts of each RAPL zone, by its folder; change them while it runs.
        pause_s: The longest time between two steps of the counters: they are up to so much old.
    """

    def __init__(self, root, zones, meter=None, average_s=1.0):
        self.root, self.zones, self.meter, self.average_s = root, {}, meter, average_s
        self._uj, self.pause_s, self._lock = {}, 0.0, threading.Lock()
        for (folder, name), (watts, start_uj) in zones.items():
            self.add(folder, name, watts, start_uj)
        if meter is not None:
            put(self.hwmon / "name", "power_meter")
            put(self.hwmon / "power1_average_interval", round(1e3 * average_s))
            put(self.hwmon / "power1_accuracy", "95.0%")
            put(self.hwmon / "power1_average", round(meter * 1e6))

    @property
    def hwmon(self):
        return self.root / "class" / "hwmon" / "hwmon3"

    @property
    def powercap(self):
        return self.root / "class" / "powercap"

    def add(self, folder, name, watts, start_uj=0):
        put(self.powercap / folder / "max_energy_range_uj", RANGE_UJ)
        put(self.powercap / folder / "energy_uj", start_uj)
        put(self.powercap / folder / "name", name)
        self._uj[folder] = float(start_uj)
        self.zones[folder] = watts

    def advance(self, seconds):
        with self._lock:
            for folder, watts in self.zones.items():
                self._uj[folder] = (self._uj[folder] + 1e6 * watts * seconds) % RANGE_UJ
                put(self.powercap / folder / "energy_uj", int(self._uj[folder]))

    def remove(self, folder):
        """Take a zone away, as when a module of the kernel is unloaded."""
        with self._lock:
            del self.zones[folder]
            shutil.rmtree(self.powercap / folder)

    def spoil(self, folder):
        """Let a zone's counter show nothing from now on."""
        with self._lock:
            del self.zones[folder]
            put(self.powercap / folder / "energy_uj", "")

    @contextmanager
    def running(self, step_s=0.002):
        """Counters count on, and the meter states its mean of the last ``average_s`` every ``average_s``."""
        ending, begun = threading.Event(), time.monotonic()

        def run():
            last, due, sums, mean_since = begun, begun + self.average_s, 0.0, begun
            while not ending.wait(step_s):
                now = time.monotonic()
                self.pause_s = max(self.pause_s, now - last)
                self.advance(now - last)
                sums += (self.meter or 0.0) * (now - last)
                last = now
                if self.meter is not None and now >= due:
                    put(self.hwmon / "power1_average", round(1e6 * sums / (now - mean_since)))
                    sums, mean_since, due = 0.0, now, due + self.average_s

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield self
        finally:
            ending.set()
            thread.join()


TWO_SOCKETS = {
    ("intel-rapl:0", "package-0"): (60.0, 5_000_000),
    ("intel-rapl:0:0", "core"): (40.0, 0),
    ("intel-rapl:0:1", "dram"): (12.0, 0),
    ("intel-rapl:1", "package-1"): (40.0, 9_000_000),
    ("intel-rapl:1:0", "dram"): (8.0, 0),
    ("intel-rapl:2", "psys"): (150.0, 0),
    ("intel-rapl-mmio:0", "package-0"): (60.0, 0),
}
"""Packages of 100 W together, and memory of 20 W."""
