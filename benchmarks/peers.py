"""Tools that people use for the energy of a GPU, side by side on one GPU in one session, each as its own pages advise.

    PYTHONPATH=src python benchmarks/peers.py OUT.json [--tools 'zeus; jouletrace']
    PYTHONPATH=src python benchmarks/peers.py OUT.json --table

Energies of blocks of work of ``PLAN`` seconds, a ViT-B at batch 64 after a pause, in random order of tools and
lengths; the truth is the GPU's own counter between its steps, less idle power for the rest of that bracket
(``bursts.py``). Tools that aren't installed are left out, and named. ``docs/peers.md`` states what came out, and what
is unfair.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bursts import true_energies
from counter import PolledCounter, steps_of
from jouletrace.stats.interval import mean_estimate

PLAN = ((0.05, 6), (0.2, 6), (1.0, 5), (5.0, 3), (10.0, 1))
"""Seconds of a block, and how many for each tool."""

PAUSE_S = 1.2
POLL_S = 0.1


class Block:
    """A block of work. ``joules`` is known after it."""

    joules = float("nan")


# the tools: what a user writes is the body of each function


@contextmanager
def zeus() -> Iterator[Block]:
    """Zeus, a window; for short ones its pages advise ``approx_instant_energy``."""
    from zeus.monitor import ZeusMonitor

    block, monitor = Block(), _once("zeus", lambda: ZeusMonitor(gpu_indices=[0]))
    monitor.begin_window("block")
    yield block
    block.joules = monitor.end_window("block").total_energy


@contextmanager
def zeus_approx() -> Iterator[Block]:
    """As ``zeus``, with an estimate by the momentary power where the counter didn't step."""
    from zeus.monitor import ZeusMonitor

    block, monitor = Block(), _once("approx", lambda: ZeusMonitor([0], approx_instant_energy=True))
    monitor.begin_window("block")
    yield block
    block.joules = monitor.end_window("block").total_energy


@contextmanager
def codecarbon() -> Iterator[Block]:
    """CodeCarbon, offline; of its figures that of the GPU."""
    from codecarbon import OfflineEmissionsTracker

    block = Block()
    tracker = OfflineEmissionsTracker(country_iso_code="USA", gpu_ids=[0], save_to_file=False, log_level="critical")
    tracker.start()
    yield block
    _synchronize()
    tracker.stop()
    block.joules = tracker.final_emissions_data.gpu_energy * 3.6e6


@contextmanager
def nvidia_smi() -> Iterator[Block]:
    """``nvidia-smi -lms``, its mean times the time: what ends up in spreadsheets."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", "100"]
    block, polling = Block(), subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
    assert polling.stdout is not None
    polling.stdout.readline()
    begin = time.perf_counter()
    yield block
    _synchronize()
    seconds = time.perf_counter() - begin
    polling.terminate()
    watts = [float(line) for line in polling.stdout.read().split()]
    block.joules = seconds * float(np.mean(watts)) if watts else float("nan")


@contextmanager
def instant() -> Iterator[Block]:
    """NVML's momentary power, polled every 0.1 s by a thread."""
    import pynvml

    pynvml.nvmlInit()
    gpu, block, ending, watts = pynvml.nvmlDeviceGetHandleByIndex(0), Block(), threading.Event(), list[float]()

    def poll() -> None:
        while True:
            (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_POWER_INSTANT])
            watts.append(value.value.uiVal / 1e3)
            if ending.wait(POLL_S):
                return

    begin, thread = time.perf_counter(), threading.Thread(target=poll)
    thread.start()
    yield block
    _synchronize()
    seconds = time.perf_counter() - begin
    ending.set()
    thread.join()
    block.joules = seconds * float(np.mean(watts))


@contextmanager
def jouletrace() -> Iterator[Block]:
    """This project, a block of code."""
    import jouletrace as jt

    block = Block()
    with jt.measure("block") as measured:
        yield block
    block.joules = measured.energy_j.value or float("nan")


TOOLS: dict[str, Callable[[], Any]] = {
    "zeus": zeus,
    "zeus, approx": zeus_approx,
    "codecarbon": codecarbon,
    "nvidia-smi": nvidia_smi,
    "NVML instant": instant,
    "jouletrace": jouletrace,
}

_KEPT: dict[str, Any] = {}


def _once(name: str, make: Callable[[], Any]) -> Any:
    """A monitor that lives for the whole program, as users have it."""
    if name not in _KEPT:
        _KEPT[name] = make()
    return _KEPT[name]


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def model(batch: int) -> Callable[[], None]:
    """A step of ViT-B, fp16, eager."""
    import torch
    import torchvision

    net = torchvision.models.vit_b_16().cuda().half().eval()
    images = torch.randn(batch, 3, 224, 224, device="cuda").half()

    @torch.no_grad()
    def step() -> None:
        net(images)

    return step


def windows(tools: list[str]) -> dict[str, Any]:
    """Energies of blocks: rows of tool, seconds, joules said, start, end, seconds until the figure was there."""
    import pynvml
    import torch

    step = model(64)
    for _ in range(50):
        step()
    _synchronize()
    begin = time.perf_counter()
    for _ in range(50):
        step()
    _synchronize()
    iteration_s = (time.perf_counter() - begin) / 50
    plan = [(tool, seconds) for seconds, count in PLAN for tool in tools for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(plan))
    pynvml.nvmlInit()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    rows, target = [], Path(tempfile.mkdtemp()) / "counter.npy"
    for tool in tools:  # what starts once isn't in the first block
        with TOOLS[tool]():
            step()
    with PolledCounter(uuid, target):
        time.sleep(3.0)
        for number in order:
            tool, seconds = plan[number]
            time.sleep(PAUSE_S)
            entered = time.perf_counter()
            with TOOLS[tool]() as block:
                ready = time.perf_counter()
                start_ns = time.time_ns()
                for _ in range(max(1, round(seconds / iteration_s))):
                    step()
                _synchronize()
                end_ns, ended = time.time_ns(), time.perf_counter()
            row = {"tool": tool, "seconds": seconds, "joules": block.joules, "start_ns": start_ns, "end_ns": end_ns}
            rows.append({**row, "before_s": ready - entered, "after_s": time.perf_counter() - ended})
        time.sleep(2.0)
    start, end = (np.array([row[name] for row in rows]) for name in ("start_ns", "end_ns"))
    truths = zip(*true_energies(steps_of(target), start, end), strict=True)
    return {
        "rows": [
            {**row, "truth": float(true), "truth_sd": float(sd)} for row, (true, sd) in zip(rows, truths, strict=True)
        ]
    }


def lines_of(tool: str) -> int:
    """Statements that a user writes for a block: those of the tool's function but for what this script adds."""
    tree = ast.parse(inspect.getsource(TOOLS[tool]))
    body = [node for node in ast.walk(tree.body[0]) if isinstance(node, ast.stmt)][1:]
    texts = [ast.unparse(node) for node in body if not isinstance(node, ast.Assert)]
    ours = ("block = Block()", "yield block")
    return len([text for text in texts if text not in ours and not text.startswith(("'", '"'))])


def table(measured: dict[str, Any]) -> str:
    """Errors of blocks, times, overhead."""
    lines = []
    rows = measured.get("windows", {}).get("rows", [])
    lengths = sorted({row["seconds"] for row in rows})
    if rows:
        lines += ["| tool | lines | " + " | ".join(f"{one:g} s" for one in lengths) + " | ms before | ms after |"]
        lines += ["|---" * (len(lengths) + 4) + "|"]
    for tool in (tool for tool in TOOLS if any(row["tool"] == tool for row in rows)):
        cells = [str(lines_of(tool))]
        for seconds in lengths:
            error = [100 * (r["joules"] / r["truth"] - 1) for r in rows if (r["tool"], r["seconds"]) == (tool, seconds)]
            known = np.array(error)[np.isfinite(error)]
            missing = f", {len(error) - len(known)} of {len(error)} missing" if len(known) < len(error) else ""
            spread = f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else ""
            cells.append((f"{known.mean():+.1f}{spread}" if len(known) else "–") + missing)
        waits = [
            f"{1e3 * np.median([r[name] for r in rows if r['tool'] == tool]):.1f}" for name in ("before_s", "after_s")
        ]
        lines.append(f"| {tool} | " + " | ".join([*cells, *waits]) + " |")
    return "\n".join([*lines, *_overhead_lines(measured.get("overhead", {}), measured.get("cpu", {}))])


def _overhead_lines(found: dict[str, dict[str, list[tuple[float, float]]]], cores: dict[str, float]) -> list[str]:
    """By tool: percent of the time of each work, the mean with its 95 % interval, and percent of a core."""
    if not found:
        return []
    heads = [*found, *(["CPU beside the program"] if cores else [])]
    lines = ["", "| tool | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for tool in next(iter(found.values())):
        cells = []
        for pairs_of in found.values():
            ratios = np.log([inside / plain for plain, inside in pairs_of[tool]])
            mean = mean_estimate(ratios)
            if mean.value is None:
                cells.append("one pair alone")
                continue
            percent = [100 * np.expm1(value) for value in (mean.value, mean.low, mean.high)]
            cells.append("{:+.1f} ({:+.1f} to {:+.1f}) %".format(*percent))
        cells += [f"{100 * cores[tool]:.1f} %" if tool in cores else "–"] if cores else []
        lines.append(f"| {tool} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure, and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("output", type=Path)
    options.add_argument("--tools", default="; ".join(TOOLS), type=lambda text: text.split("; "), help="joined by '; '")
    options.add_argument("--table", action="store_true", help="only print what the file has")
    chosen = options.parse_args()
    if not chosen.table:
        packages = {"zeus": "zeus", "zeus, approx": "zeus", "codecarbon": "codecarbon"}
        missing = [tool for tool in chosen.tools if tool in packages and not find_spec(packages[tool])]
        chosen.tools = [tool for tool in chosen.tools if tool not in missing]
        if missing:
            print(f"not installed: {', '.join(missing)}", flush=True)
        chosen.output.write_text(json.dumps({"windows": windows(chosen.tools)}))
    print(table(json.loads(chosen.output.read_text())))


if __name__ == "__main__":
    main()
