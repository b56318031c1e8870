"""The loop of the programs: turns that ``slowdown.py`` gives, or one between two steps of the energy counter.

    jouletrace run benchmarks/programs/NAME.py SECONDS OUT.json [idle]

The loop is the range ``loop``. OUT.json gets its steps, and seconds, joules and edges by the counter; with a third
argument idle power beside it, by the counter, too. Without a GPU programs are small, to be tried.
"""

import json
import os
import socket
import sys
import time

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WARM_S, IDLE_S = 1.5, 1.0


def batch(size):
    """The batch of a program: ``size``, or one without a GPU."""
    return size if DEVICE == "cuda" else 1


def wait():
    """End with all work of torch."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Counter:
    """The energy counter of a GPU that this process sees, by its number."""

    def __init__(self, number=0):
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1"
        self._gpu = pynvml.nvmlDeviceGetHandleByIndex(int(visible.split(",")[number]))
        self._read = pynvml.nvmlDeviceGetTotalEnergyConsumption

    def stepped(self):
        """Nanoseconds since the Unix epoch and joules of the next step of the counter."""
        before = now = self._read(self._gpu)
        while now == before:
            now = self._read(self._gpu)
        return time.time_ns(), now / 1e3

    def idle_w(self):
        """Mean power of a rest, which follows half a second without work."""
        time.sleep(0.5)
        since, before = self.stepped()
        time.sleep(IDLE_S)
        until, after = self.stepped()
        return (after - before) / (until - since) * 1e9


def loop(step, wait=wait):
    """Call ``step`` again and again; ``wait`` ends with all work."""
    wait()
    if place := os.environ.get("TURNS"):
        _turns(step, wait, place)
    else:
        _counted(step, wait, *sys.argv[1:])


def run_for(step, wait, seconds):
    """Run steps for some seconds; returns how many."""
    since, count = time.perf_counter(), 0
    while time.perf_counter() - since < seconds:
        step()
        count += 1
        if count % 4 == 0:
            wait()
    wait()
    return count


def _turns(step, wait, place):
    """Call ``step`` for as long as each turn lasts, and state iterations and seconds.

    A line is sent before the first turn: the program has loaded.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        line.sendall(b"ready\n")
        for length in line.makefile("r"):
            count, begin = 0, time.perf_counter()
            while time.perf_counter() < begin + float(length):
                step()
                count += 1
            wait()
            line.sendall(f"{count} {time.perf_counter() - begin:.6f}\n".encode())


def _counted(step, wait, seconds, out, idle=None):
    """Run steps for some seconds between two steps of the energy counter, and write what it says."""
    counter = Counter()
    run_for(step, wait, WARM_S)
    result = {}
    if idle:
        result["idle_w"] = counter.idle_w()
        run_for(step, wait, WARM_S / 2)
    since, before = counter.stepped()
    with torch.profiler.record_function("loop"):
        result["steps"] = run_for(step, wait, float(seconds))
    until, after = counter.stepped()
    result |= {"s": (until - since) / 1e9, "j": after - before, "since_ns": since, "until_ns": until}
    with open(out, "w") as file:
        json.dump(result, file)
