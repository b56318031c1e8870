"""Tools that people use for the energy of a GPU, side by side on one GPU in one session, each as its own pages advise.

    PYTHONPATH=src python benchmarks/peers.py OUT.json
    PYTHONPATH=src python benchmarks/peers.py OUT.json windows --tools 'zeus; jouletrace'
    PYTHONPATH=src python benchmarks/peers.py OUT.json table

``windows``: energies of blocks of work of ``PLAN`` seconds, a ViT-B at batch 64 after a pause, in random order of tools
and lengths; the truth is the GPU's own counter between its steps, less idle power for the rest of that bracket
(``bursts.py``). ``overhead``: time per iteration of ``WORK`` within a block of each tool over that without, by turns of
0.3 s; "nothing" is a pair without any tool. ``cpu``: what the threads and processes of each tool take of a core.
``layers``: what each tool says of the parts of the model, where it says anything. Tools that aren't installed
are left out, and named. ``docs/peers.md`` states what came out, and what is unfair.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

TURN_S, ROUNDS = 0.3, 10
NOTHING = "nothing"
"""The control of ``overhead``: pairs in which neither turn has a tool."""

CPU_S = 16.0
"""Seconds of a block of ``cpu``: CodeCarbon reads every 15 s."""


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


def windows(chosen: argparse.Namespace) -> dict[str, Any]:
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
    plan = [(tool, seconds) for seconds, count in PLAN for tool in chosen.tools for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(plan))
    pynvml.nvmlInit()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    rows, target = [], Path(tempfile.mkdtemp()) / "counter.npy"
    for tool in chosen.tools:  # what starts once isn't in the first block
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


def graph(batch: int) -> Callable[[], None]:
    """The same step as a CUDA graph, each replay waited for: the host has little to do."""
    import torch

    step, captured = model(batch), torch.cuda.CUDAGraph()
    for _ in range(5):
        step()
    _synchronize()
    with torch.cuda.graph(captured):
        step()

    def replay() -> None:
        captured.replay()
        _synchronize()

    return replay


WORK: dict[str, Callable[[], Callable[[], None]]] = {
    "batch 1": lambda: model(1),
    "batch 64": lambda: model(64),
    "batch 64, CUDA graph": lambda: graph(64),
}
"""What ``overhead`` is measured of, by name."""


def overhead(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds per iteration by work and tool: pairs without and within, in either order."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, make in WORK.items():
        step, pairs_of = make(), found.setdefault(name, {tool: [] for tool in (NOTHING, *chosen.tools)})
        for _ in range(30):
            step()
        for number in range(ROUNDS):
            for tool in np.random.default_rng(number).permutation(list(pairs_of)).tolist():
                plain = _turn(step) if number % 2 else None
                inside = _within(tool, step)
                pairs_of[tool].append((plain or _turn(step), inside))
    return found


def _within(tool: str, step: Callable[[], None]) -> float:
    """A turn within a block of a tool, which is warm: what starts once has started, and has ended afterwards."""
    with _block(tool):
        step()
    with _block(tool):
        spent_s = _turn(step)
    _end_recorders()
    return spent_s


def _turn(step: Callable[[], None], seconds: float = TURN_S) -> float:
    """Seconds per iteration in a turn."""
    _synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        count += 1
    _synchronize()
    return (time.perf_counter() - begin) / count


def _block(tool: str) -> AbstractContextManager[object]:
    return nullcontext() if tool == NOTHING else TOOLS[tool]()


def cpu(chosen: argparse.Namespace) -> dict[str, float]:
    """Seconds of CPU per second that a tool's threads and processes take beside the program's own thread."""
    step, found = model(64), {}
    for tool in (NOTHING, *chosen.tools):
        with _block(tool):
            step()
        with _block(tool):
            before, begin = _beside(), time.perf_counter()
            _turn(step, CPU_S)
            found[tool] = (_beside() - before) / (time.perf_counter() - begin)
        _end_recorders()
    return found


def _beside() -> float:
    """Seconds of CPU so far of this process' other threads and of its child processes that live."""
    import psutil

    children = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() - time.thread_time() + sum(float(one.user + one.system) for one in children)


def _end_recorders() -> None:
    """End the processes that ``measure`` starts at first use, which would run beside what is without it."""
    from jouletrace.profiler import measure

    for recording in measure._recordings.values():
        recording.close()
    measure._recordings.clear()


def layers(chosen: argparse.Namespace) -> dict[str, Any]:
    """Joules per iteration by kind of module at batch 64: Zeus around each module, profiler's times, jouletrace."""
    import torch
    import torchvision

    net = torchvision.models.vit_b_16().cuda().half().eval()
    images = torch.randn(64, 3, 224, 224, device="cuda").half()
    kinds = {"attention": torch.nn.MultiheadAttention, "mlp": torchvision.ops.MLP, "norm": torch.nn.LayerNorm}
    found: dict[str, Any] = {}
    with torch.no_grad():
        for _ in range(20):
            net(images)
        if "zeus" in chosen.tools:
            from zeus.monitor import ZeusMonitor

            monitor, sums, hooks = ZeusMonitor(gpu_indices=[0]), dict.fromkeys(kinds, 0.0), []

            def leave(kind: str) -> None:
                sums[kind] += monitor.end_window("module").total_energy

            for module in net.modules():
                for kind, of in kinds.items():
                    if isinstance(module, of):
                        hooks += [
                            module.register_forward_pre_hook(lambda *_: monitor.begin_window("module")),
                            module.register_forward_hook(lambda *_, kind=kind: leave(kind)),
                        ]
            for _ in range(50):
                net(images)
            for hook in hooks:
                hook.remove()
            found["zeus around each module"] = {kind: joules / 50 for kind, joules in sums.items()}
    if "jouletrace" in chosen.tools:
        import jouletrace as jt

        run = jt.profile(net, (images,), detail="layer")
        rows = {unit["name"]: run.result("energy_total_j", unit["id"]) for unit in run.units.to_pylist()}
        found["jouletrace"] = {name: (one.value, one.low, one.high) for name, one in rows.items() if one.value}
        found["jouletrace, warnings"] = [one.message for one in run.warnings]
    with torch.no_grad(), torch.profiler.profile() as profiler:  # the last: it may keep CUPTI to itself
        for _ in range(20):
            net(images)
        torch.cuda.synchronize()
    events = [one for one in profiler.key_averages() if one.self_device_time_total > 0]
    found["torch.profiler, device ms"] = {one.key[:80]: one.self_device_time_total / 20e3 for one in events}
    return found


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "windows": windows,
    "overhead": overhead,
    "cpu": cpu,
    "layers": layers,
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
    """Measure parts, each kept as soon as it is there, and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("output", type=Path)
    options.add_argument("parts", nargs="*", default=list(PARTS))
    options.add_argument("--tools", default="; ".join(TOOLS), type=lambda text: text.split("; "), help="joined by '; '")
    chosen = options.parse_args()
    packages = {"zeus": "zeus", "zeus, approx": "zeus", "codecarbon": "codecarbon"}
    missing = [tool for tool in chosen.tools if tool in packages and not find_spec(packages[tool])]
    chosen.tools = [tool for tool in chosen.tools if tool not in missing]
    if missing:
        print(f"not installed: {', '.join(missing)}", flush=True)
    measured = json.loads(chosen.output.read_text()) if chosen.output.exists() else {}
    for part in chosen.parts:
        if part == "table":
            continue
        began = time.perf_counter()
        measured[part] = PARTS[part](chosen)
        print(f"[{part}: {time.perf_counter() - began:.0f} s]", flush=True)
        chosen.output.write_text(json.dumps(measured))
    print(table(measured))


if __name__ == "__main__":
    main()
