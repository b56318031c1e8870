"""Tools that state the energy of a block of work on a GPU, each as its own pages advise, for ``peers_gpu.py``.

What a user writes is the body of each function. Each gets the GPU idle at both ends of its block, and so does the
truth: Zeus and jouletrace synchronise by themselves, the others need a line for it.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def one_gpu() -> int:
    """Show this process and its children one GPU, in NVML's order, and give its index there.

    CodeCarbon, ``nvidia-smi`` and NVML count all GPUs of the host, Zeus and jouletrace those that CUDA shows; Zeus
    reads no UUIDs. Without this tools would measure different GPUs, and jouletrace the sum of all.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    if not first.isdigit():
        import pynvml

        pynvml.nvmlInit()
        first = str(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(first)))
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": first}
    return int(first)


GPU = one_gpu()

POLL_S = 0.02
"""Spacing of readings of NVML's momentary power, which the driver renews every 0.1 s."""


class Block:
    """A block of work. After it ``joules`` is a number, or an estimate that a call gives; NaN is no figure.

    ``seconds`` is how long the tool says that the block took.
    """

    joules: Any = float("nan")
    seconds: Any = float("nan")


@contextmanager
def zeus() -> Iterator[Block]:
    """Zeus, a window: it reads the energy counter at both edges."""
    from zeus.monitor import ZeusMonitor

    block, monitor = Block(), _once("zeus", lambda: ZeusMonitor(gpu_indices=[0]))
    monitor.begin_window("block")
    yield block
    result = monitor.end_window("block")
    block.joules = result.total_energy
    block.seconds = result.time


@contextmanager
def zeus_approx() -> Iterator[Block]:
    """As ``zeus``, with momentary power × time where the counter didn't step: its option for short windows."""
    from zeus.monitor import ZeusMonitor

    block, monitor = Block(), _once("approx", lambda: ZeusMonitor(gpu_indices=[0], approx_instant_energy=True))
    monitor.begin_window("block")
    yield block
    result = monitor.end_window("block")
    block.joules = result.total_energy
    block.seconds = result.time


@contextmanager
def codecarbon() -> Iterator[Block]:
    """CodeCarbon, offline, with its defaults: a tracker around the block; of its figures that of the GPU."""
    from codecarbon import OfflineEmissionsTracker

    block, tracker = Block(), OfflineEmissionsTracker(**CODECARBON)
    _synchronize()
    tracker.start()
    yield block
    _synchronize()
    tracker.stop()
    block.joules = tracker.final_emissions_data.gpu_energy * 3.6e6
    block.seconds = tracker.final_emissions_data.duration


@contextmanager
def codecarbon_task() -> Iterator[Block]:
    """CodeCarbon, a task of a tracker that lives on: it reads the counter at both edges however short the task is."""
    from codecarbon import OfflineEmissionsTracker

    block, tracker = Block(), _once("codecarbon", lambda: OfflineEmissionsTracker(**CODECARBON))
    _synchronize()
    tracker.start_task("block")
    yield block
    _synchronize()
    task = tracker.stop_task()
    block.joules = task.gpu_energy * 3.6e6
    block.seconds = task.duration


@contextmanager
def nvidia_smi() -> Iterator[Block]:
    """``nvidia-smi -lms 100``, the mean of ``power.draw`` × time: what ends up in spreadsheets."""
    query = ["nvidia-smi", "-i", str(GPU), "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", "100"]
    block, polling = Block(), subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
    first = polling.stdout.readline()
    _synchronize()
    begin = time.perf_counter()
    yield block
    _synchronize()
    block.seconds = time.perf_counter() - begin
    polling.terminate()
    lines = [line for line in polling.stdout if line.endswith("\n")]  # one that the end cut off is none
    polling.wait()
    watts = [float(line) for line in lines or [first]]  # the first is from before the block
    block.joules = block.seconds * sum(watts) / len(watts)


@contextmanager
def instant() -> Iterator[Block]:
    """NVML's momentary power, polled by a thread from edge to edge, its mean × time."""
    import pynvml

    pynvml.nvmlInit()
    gpu, block, ending, watts = pynvml.nvmlDeviceGetHandleByIndex(GPU), Block(), threading.Event(), list[float]()

    def poll() -> None:
        while True:
            ended = ending.wait(POLL_S if watts else 0)
            (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_POWER_INSTANT])
            watts.append(value.value.uiVal / 1e3)
            if ended:
                return

    _synchronize()
    begin, thread = time.perf_counter(), threading.Thread(target=poll)
    thread.start()
    yield block
    _synchronize()
    block.seconds = time.perf_counter() - begin
    ending.set()
    thread.join()
    block.joules = block.seconds * sum(watts) / len(watts)


@contextmanager
def samples() -> Iterator[Block]:
    """The driver's own record of power samples, which jouletrace reads, without a model of the sensor.

    The mean of those stamped within the block × its time. A thread reads on for 0.5 s, since they arrive late.
    """
    import pynvml

    pynvml.nvmlInit()
    gpu, block, ending, found = pynvml.nvmlDeviceGetHandleByIndex(GPU), Block(), threading.Event(), dict[int, float]()

    def poll() -> None:
        ended = False
        while not ended:
            ended = ending.wait(0.5)
            if ended:
                time.sleep(0.5)
            _, new = pynvml.nvmlDeviceGetSamples(gpu, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
            found.update((one.timeStamp, one.sampleValue.uiVal / 1e3) for one in new)

    _synchronize()
    begin, thread = time.time_ns() // 1000, threading.Thread(target=poll)
    thread.start()
    yield block
    _synchronize()
    end = time.time_ns() // 1000
    ending.set()

    def joules() -> float:
        thread.join()
        watts = [one for at, one in found.items() if begin <= at <= end]
        return block.seconds * sum(watts) / len(watts) if watts else float("nan")

    block.seconds = (end - begin) / 1e6
    block.joules = joules


@contextmanager
def jouletrace() -> Iterator[Block]:
    """This project, a block of code, without a calibration."""
    import jouletrace as jt

    block = Block()
    with jt.measure("block") as measured:
        yield block
    block.joules = lambda: measured.energy_j
    block.seconds = measured.time_s.value


TOOLS: dict[str, Callable[[], Any]] = {
    "zeus": zeus,
    "zeus, approx": zeus_approx,
    "codecarbon": codecarbon,
    "codecarbon, task": codecarbon_task,
    "nvidia-smi": nvidia_smi,
    "NVML instant": instant,
    "NVML samples": samples,
    "jouletrace": jouletrace,
}

CODECARBON = {"country_iso_code": "USA", "gpu_ids": [GPU], "output_methods": [], "log_level": "critical"}
"""No network, no file, no lines on the terminal; the period stays at 15 s, since readings between the edges of a block
add nothing to those of an energy counter."""

_KEPT: dict[str, Any] = {}


def _once(name: str, make: Callable[[], Any]) -> Any:
    """A monitor that lives for the whole program, as users have it."""
    if name not in _KEPT:
        _KEPT[name] = make()
    return _KEPT[name]


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def end_recorders() -> None:
    """End the processes that ``jt.measure`` starts at first use, which would run beside other tools."""
    from jouletrace.profiler import measure

    for recording in measure._recordings.values():
        recording.close()
    measure._recordings.clear()


def lines_of(tool: str) -> int:
    """Statements that a user writes for a block: those of the tool's function but for what this script adds."""
    tree = ast.parse(inspect.getsource(TOOLS[tool]))
    body = [ast.unparse(node) for node in ast.walk(tree.body[0]) if isinstance(node, ast.stmt)][1:]
    ours = ("block = Block()", "yield block", "block.seconds = result", "block.seconds = t", "block.seconds = measured")
    ours += ("block.seconds = (", "polling.wait", "lines =")
    return len([text for text in body if not text.startswith((*ours, "'", '"'))])
