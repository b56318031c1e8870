"""The cost of ``jt.record`` for the loop that it records: its start, and paired segments with it and without.

    PYTHONPATH=src python benchmarks/live_overhead.py                 (on the GPU, else CPU and a simulated GPU)
    PYTHONPATH=src python benchmarks/live_overhead.py --pairs 20 --step-ms 10 --ranges 3

A step launches the same work with and without; recorded segments mark ``--ranges`` ranges, one
``record_function`` and a step each. Time is the host's, from the first launch until the GPU has finished
the last one; CPU time is that of this process, all threads, which is more informative where other processes use the
CPU too. Pairs run in succession, with alternating order within a pair; first without kernels, then with them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import jouletrace as jt
from jouletrace.stats.interval import mean_estimate


def work_on(gpu: bool, seconds: float) -> Callable[[], None]:
    """A piece of work of about so many seconds."""
    on = torch.device("cuda" if gpu else "cpu")
    size = 4096 if gpu else 256
    a = torch.randn(size, size, device=on, dtype=torch.float16 if gpu else torch.float32)

    def multiply(n: int) -> None:
        for _ in range(n):
            torch.mm(a, a)

    def timed(n: int) -> float:
        begin = time.perf_counter()
        multiply(n)
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    timed(200)
    n = max(round(seconds / (timed(200) / 200)), 1)
    return lambda: multiply(n)


def stretch(step: Callable[[], None], steps: int, ranges: int, gpu: bool) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of so many steps, each marked: marks do nothing where nothing is recorded."""
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        for k in range(ranges):
            with jt.range(f"part {k}"):
                step()
        with torch.profiler.record_function("rest"):
            step()
        jt.step()
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - begin, time.process_time() - cpu


def starts(devices: str) -> None:
    """Print how long the thread that records waits for the start, and when the rest of it is ready."""
    for number in range(4):
        recording = jt.record("start", device=devices)
        begin = time.perf_counter()
        recording.__enter__()
        waited = time.perf_counter() - begin
        while not recording.started:
            time.sleep(1e-3)
        ready = time.perf_counter() - begin
        tracer = recording._tracer
        traced = tracer._segment_ns if tracer is not None else None
        beside = f", kernels from {(traced - recording._start_ns) / 1e6:.0f} ms on" if traced else ""
        recording.__exit__(None, None, None)
        verdict = "at most 100 ms" if waited <= 0.1 else "MORE THAN 100 ms"
        print(f"START {number}: waits {1e3 * waited:.0f} ms ({verdict}); recorder after {1e3 * ready:.0f} ms{beside}")


def summary(what: str, ratios: list[float], most: float) -> str:
    """Mean with its interval, median and verdict."""
    found, middle = mean_estimate(np.array(ratios)), float(np.median(ratios))
    percent = [f"{100 * (value - 1):+.2f} %" for value in (found.value, found.low, found.high, middle)]
    verdict = f"at most {100 * most:g} %" if middle <= 1 + most else f"MORE THAN {100 * most:g} %"
    return f"OVERHEAD in {what}: mean {percent[0]} ({percent[1]} to {percent[2]}), median {percent[3]}: {verdict}"


def main() -> None:
    """Print the ratio, pair by pair."""
    options = argparse.ArgumentParser(description="Overhead of jt.record")
    options.add_argument("--pairs", type=int, default=12)
    options.add_argument("--seconds", type=float, default=2.0, help="length of a segment")
    options.add_argument("--step-ms", type=float, default=10.0)
    options.add_argument("--ranges", type=int, default=3)
    chosen = options.parse_args()
    gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    devices = "visible" if gpu else "sim:h100?realtime=1&load=0.5:300"
    step = work_on(gpu, chosen.step_ms / 1e3 / (chosen.ranges + 1))
    steps = max(round(chosen.seconds / chosen.step_ms * 1e3), 10)
    starts(devices)
    stretch(step, steps, chosen.ranges, gpu)
    marks = (2 * chosen.ranges + 3) * steps
    print(f"steps of {chosen.step_ms:g} ms with {chosen.ranges + 1} ranges, {marks} marks per segment")
    for kernels, most in ((False, 0.005), (True, 0.03)):
        ratios: tuple[list[float], list[float]] = [], []
        what = "with kernels" if kernels else "without kernels"
        for pair in range(chosen.pairs):
            seconds = {}
            for recorded in (True, False) if pair % 2 else (False, True):
                if recorded:
                    options = {"on_update": lambda _: None, "update_s": 1.0, "kernels": kernels}
                    with jt.record("overhead", device=devices, **options) as recording:
                        recording.now()  # when the recorder has started
                        seconds[True] = stretch(step, steps, chosen.ranges, gpu)
                else:
                    seconds[False] = stretch(step, steps, chosen.ranges, gpu)
            for kind, found in enumerate(ratios):
                found.append(seconds[True][kind] / seconds[False][kind])
            ratio, cpu = ratios[0][-1], ratios[1][-1]
            print(f"pair {pair}, {what}: recorded / not, time {ratio:.4f}, CPU time {cpu:.4f}", flush=True)
        print(summary(f"time, {what}", ratios[0], most))
        print(summary(f"CPU time, {what}", ratios[1], most))
        print(recording)


if __name__ == "__main__":
    main()
