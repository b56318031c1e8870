"""Readings of a GPU by NVML, recorded by a process of its own while a program runs in another.

    with Sensors(UUID, FILE.npz): ...

``FILE.npz`` then has ``power``, all readings of the driver's record (stamp in us, mW), ``steps``, each step of the
energy counter (ns of the last read of the old value, ns of the first of the new one, mJ), and ``conditions``, twice a
second (ns, SM MHz, degrees C, reasons of the clocks). Times in ns are the host's ``time.time_ns``; a read of the
counter takes about 3 ms, and its time is the middle of the call. Nothing is set.
"""

from __future__ import annotations

import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

POLL_S, RECORD_S, CONDITIONS_S = 0.002, 0.25, 0.5
"""Between reads of the counter, of the record, which holds about two seconds, and of the conditions."""


def poll(uuid: str, target: str) -> None:
    """Record until stdin closes."""
    import pynvml as nvml

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    steps, power, conditions, ended = [], [], [], threading.Event()

    def count() -> None:
        last_ns, last_mj = 0, None
        while not ended.is_set():
            before = time.time_ns()
            millijoules = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            now = (before + time.time_ns()) // 2
            if millijoules != last_mj and last_mj is not None:
                steps.append((last_ns, now, millijoules))
            last_ns, last_mj = now, millijoules
            time.sleep(POLL_S)

    def more_power(since_us: int) -> int:
        try:
            _, found = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_TOTAL_POWER_SAMPLES, since_us)
        except nvml.NVMLError:  # there is nothing new
            return since_us
        power.extend((one.timeStamp, one.sampleValue.uiVal) for one in found)
        return max([since_us, *(one.timeStamp for one in found)])

    counting = threading.Thread(target=count)
    counting.start()
    newest_us = more_power(0)
    print("recording", flush=True)
    next_s = 0.0
    while not select.select([sys.stdin], [], [], RECORD_S)[0]:
        newest_us = more_power(newest_us)
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + CONDITIONS_S
            clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
            degrees = nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
            conditions.append((time.time_ns(), clock, degrees, reasons))
    ended.set()
    counting.join()
    more_power(newest_us)
    columns = {"power": power, "steps": steps, "conditions": conditions}
    np.savez(target, **{name: np.array(rows, np.int64) for name, rows in columns.items()})


class Sensors:
    """Records from ``with`` to half a second after its end, so that the last power is in the record."""

    def __init__(self, uuid: str, target: Path) -> None:
        self._command = [sys.executable, __file__, uuid, str(target)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        time.sleep(0.5)
        self._process.communicate(b"", timeout=30)


if __name__ == "__main__":
    poll(sys.argv[1], sys.argv[2])
