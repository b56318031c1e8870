"""Simulated Runs as users make them, each with its truth, for ``trust.py``."""

import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "wings" / "serving"))
sys.path.insert(0, str(Path(__file__).parent / "estimator"))
import logs

import bursts_sim
import programs
import scenarios
from boards import true_level_w
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.profiler import profile as profiling
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.profiler.record import split
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Estimate, Run
from jouletrace.simulator.boards import SimKernel, SimulatedGpu
from jouletrace.tracer.process_trace import Launched, ProcessTrace
from jouletrace.wings.serving.analysis.steady import requests_of, steady_window
from measurands import LateStep
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run
from serving_runs import START_NS, energy_between
from step_truth import mean_step, steady_step
from two_gpus import part

Judged = tuple[str, Estimate, float]
Made = tuple[Run, list[Judged]]
"""A Run, and of each judged figure a name, the figure and the truth."""

QUICK: dict[str, Any] = {"latency_s": 0.2, "detail_time_s": 10.0}


def profiled(seed: int, spec: str, workload: Any, *, late: bool = False, kernels: Any = None, **changes: Any) -> Made:
    """A profile on a simulated GPU; of another host that is late between iterations, or of other kernels."""
    spec += f"{'&' if '?' in spec else '?'}seed={seed}"
    device, kept, making = SimulatedGpu(spec), [], profiling.prepare

    def prepared(*arguments: Any) -> Any:
        found = making(*arguments)
        if late or kernels:
            step = (LateStep if late else type(found.step))(device, kernels or found.step.schedule.kernels)
            step.rng, step.at_once = np.random.default_rng(seed), 4
            found = replace(found, step=step)
        kept.append(found.step)
        return found

    with patch.object(profiling, "open_device", lambda _: device), patch.object(profiling, "prepare", prepared):
        run = profiling.profile_workload(workload, ProfileSettings(device=spec, seed=seed, **QUICK | changes))
    return run, of_profile(run, device, kept[-1], late)


def of_profile(run: Run, device: Any, step: Any, late: bool) -> list[Judged]:
    """Figures of the model by what it draws at the temperature of its windows; of parts by what they drew in them."""
    truth = device.truth
    windows = [row for row in run.windows.to_pylist() if row["variant"] == "untouched"]
    edges = [(row["start_ns"], row["end_ns"]) for row in windows]
    drawn_j = np.array([truth.energy_j(*one) for one in edges])
    seconds, replays = np.ptp(edges, axis=1) / 1e9, np.array([row["replays"] for row in windows])
    heat = float(np.mean([truth.temperature_c(sum(one) // 2) for one in edges]))
    steady = steady_step(device, step.schedule, temperature_c=heat)
    each_j, each_s = float(np.mean(drawn_j / replays)), float(np.mean(seconds / replays))
    total_j, watts = (each_j, each_j / each_s) if late else (steady.energy_j, steady.energy_j / steady.time_s)
    idle_w = true_level_w(run, device, "context idle")
    wanted = {
        "energy_total_j": total_j,
        "power_w": watts,
        "baseline_context_idle_w": idle_w,
        "energy_active_over_context_idle_j": total_j - idle_w * each_s,
    }
    found = [(name, run.result(name), value) for name, value in wanted.items()]
    if not late and any(level in ("layer", "op", "kernel") for level in run.units["level"].to_pylist()):
        steps = [mean_step(device, step.schedule, *one) for one in edges]
        kernel_j = np.mean([one.kernel_j for one in steps], axis=0)
        found += of_parts(run, step.schedule.kernels, kernel_j)
    device.close()
    return found


def of_parts(run: Run, kernels: Any, joules: Any) -> list[Judged]:
    """Energies of layers, operators and kernels of a profile, each once."""
    sums: Counter[tuple] = Counter()
    for kernel, own in zip(kernels, joules, strict=True):
        names = str(kernel.module).split(".")
        for depth in range(1, len(names) + 1):
            sums["layer", ".".join(names[:depth])] += own
        sums["op", ".".join("*" if name.isdigit() else name for name in names), kernel.op, kernel.shapes] += own
    found = {}
    for row in run.units.to_pylist():
        key = ("layer", row["module"]) if row["level"] == "layer" else ("op", row["module"], row["op"], row["shapes"])
        if row["level"] in ("layer", "op") and key in sums:
            found[key] = ("/".join(map(str, key)), run.result("energy_total_j", row["id"]), sums[key])
    return list(found.values())


def program(seed: int, group: str, seconds: float = 10.0) -> Made:
    """A program's kernels and power, as ``record`` splits them; the first tenths of a second are idle."""
    make = programs.OWN.get(group) or (lambda seed, seconds: scenarios.draw(seed, group, seconds))
    scene, recorded, truth = make(seed, seconds)
    run = part(scene, recorded, 0, "GPU-0")
    run.devices[0].power_limit_w = 700.0
    named = [("", ""), *zip(recorded.operators, recorded.modules, strict=True)]
    zeros = np.zeros(len(recorded.kind), int)
    known = {"labels": named, "label": recorded.kind + 1, "sampled": zeros == 0, "paths": [(), ("train",)]}
    work = Launched.from_columns(
        recorded.names, recorded.kind, recorded.start_ns, recorded.end_ns, path=zeros + 1, **known
    )
    times = [(scene.begin_ns, scene.finish_ns)]
    whole = split.split_of(run, [ProcessTrace(100, "train.py", 0, ["GPU-0"], work, times)], None)
    if whole is None:
        return run, []
    phase = next(row for row in whole.spans.to_pylist() if row["kind"] == "phase")
    start, end = phase["start_ns"], phase["end_ns"]
    joules = truth.power.energy_j(np.array([start, end], float) - truth.power.begin_ns)
    found = [("energy_total_j", whole.result("energy_total_j"), float(np.diff(joules)[0]))]
    inside = (recorded.start_ns >= start) & (recorded.end_ns <= end)
    own = np.bincount(recorded.kind[inside], truth.drawn.kernel_j[truth.traced][inside], len(recorded.names))
    of_name: Counter[str] = Counter()
    for name, value in zip(recorded.names, own, strict=True):
        of_name[name] += value
    sums: dict[str, list[Estimate]] = defaultdict(list)
    for row in whole.units.to_pylist():
        if row["level"] == "kernel" and row["name"] in of_name:
            sums[row["name"]].append(whole.result("energy_total_j", row["id"]))
    return whole, found + [(name, one[0], of_name[name]) for name, one in sums.items() if len(one) == 1]


def watched(seed: int, spec: str, seconds: float = 15.0) -> Made:
    """A GPU that follows a plan, watched."""
    device = SimulatedGpu(f"{spec}&seed={seed}")
    run = monitor([device], duration_s=seconds)
    (phase,) = run.spans.to_pylist()
    end = min(phase["end_ns"], phase["start_ns"] + round(1e9 * (run.result("time_s", 1).value or 0)))
    return run, [("energy_total_j", run.result("energy_total_j", 1), device.truth.energy_j(phase["start_ns"], end))]


def bursts(seed: int) -> Made:
    """Bursts of iterations after idle, as ranges with steps, on an H100 whose sensor samples."""
    rate = float(np.random.default_rng(seed).choice(bursts_sim.RATES))
    run, ran = bursts_sim.recorded(rate, seed, 1, calibrated=False)
    each = bursts_sim.energies(run, len(ran))
    return run, [(what[0], one, what[-1]) for what, one in zip(ran, each, strict=True)]


UPDATE_S, WINDOW_S = 0.1, 0.025
"""Update period of an A100's sensor, and the time that a reading is the mean of."""


def logged(seed: int, mode: str, periods_s: tuple[float, ...], spacing_s: float) -> Made:
    """A log of ``nvidia-smi`` on an A100, imported; edges of the load lie so far apart, or it has such a period."""
    rng = np.random.default_rng([seed, int(1e3 * spacing_s), len(mode)])
    times, _, *load = logs.log(mode, float(rng.choice(periods_s)), spacing_s, rng)
    phase = rng.random()
    updated = (np.floor(times / UPDATE_S - phase) + phase) * UPDATE_S  # a reading is the mean of the window before
    values = np.diff([np.interp(updated - late_s, *load) for late_s in (WINDOW_S, 0.0)], axis=0)[0] / WINDOW_S
    stamps = [f"{datetime.fromtimestamp(1.77e9 + at, UTC):%Y/%m/%d %H:%M:%S.%f}"[:-3] for at in times]
    lines = [f"{stamp}, 0, NVIDIA A100-SXM4-80GB, {watts:.2f} W" for stamp, watts in zip(stamps, values, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "smi.csv"
        path.write_text("\n".join(["timestamp, index, name, power.draw [W]", *lines]) + "\n")
        run = analyse(read_files([path]))
    unit = next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    truth = float(np.diff(np.interp(times[[0, -1]], *load))[0])
    return run, [("energy_total_j", run.result("energy_total_j", unit), truth)]


def served(seed: int, most_new: int) -> Made:
    """Loads of a simulated server with continuous batching, and its scheduler's steps."""
    law, rng = replace(Law(), most_new=most_new), np.random.default_rng(seed)
    levels = [scheduled_level(law, *drawn(rng, rate, 40, (50, 1500), (20, 200))) for rate in (1, 2, 4)]
    run, record, _ = scheduled_run(law, levels, seed=seed)
    analyse(run)
    above = law.above_idle()
    factors = {"step": above.step_j, "new_token": above.new_j, "sequence": above.sequence_j}
    found = [(name, run.result(f"energy_{name}_j"), value) for name, value in factors.items()]
    found += [("context_token", run.result("energy_context_token_j"), law.context_j)]
    for number, unit in enumerate(row["id"] for row in run.units.to_pylist() if row["level"] == "load"):
        requests = requests_of(run, number)
        window = ((requests.nanoseconds(edge) - START_NS) / 1e9 for edge in steady_window(requests)[:2])
        found.append((f"load {number}", run.result("energy_total_j", unit), energy_between(record, *window)))
    return run, found


def swing(period_s: float) -> list[SimKernel]:
    """Kernels of an iteration with a high and a low half."""
    return [SimKernel("gemm", period_s / 2, watts, clocked=0.2, core=0.5) for watts in (350.0, 60.0)]


def plan(seed: int) -> str:
    """Two levels of random power and length."""
    rng = np.random.default_rng(seed)
    return ",".join(f"{rng.uniform(0.3, 3):.2f}:{watts:.0f}" for watts in (rng.uniform(90, 150), rng.uniform(180, 290)))


def groups() -> dict[str, Callable[[int], Made]]:
    """Groups by name, of Runs that nothing is wrong with."""
    found: dict[str, Callable[[int], Made]] = {}
    resnet = partial(profiled, workload="resnet50")
    for board in ("h100", "h200", "a100-80", "v100"):
        spec = f"sim:{board}"
        found |= {
            f"profile, {board}": lambda seed, spec=spec: resnet(seed, spec, mode=("eager", "graph")[seed % 2]),
            f"profile, late host, {board}": partial(resnet, spec=spec, late=True),
            f"monitor, {board}": lambda seed, spec=spec: watched(seed, f"{spec}?load={plan(seed)}"),
        }
    for board in ("h100", "a100-80", "v100"):
        at = {"spec": f"sim:{board}", "mode": "graph"}
        found |= {
            f"profile --detail kernel, {board}": partial(profiled, workload="deit-t", batch=32, detail="kernel", **at),
            f"profile --task train, {board}": partial(resnet, task="train", detail="phase", **at),
        }
    for apart in (0.1, 1.0):
        for name, mode, edges_s in (
            ("edges at random", "random", logs.EDGES_S["random"]),
            ("periods", "periodic", PERIODS_S),
        ):
            found[f"log, {name}, {apart:g} s"] = partial(logged, mode=mode, periods_s=edges_s, spacing_s=apart)
    found["bursts"] = bursts
    found |= {f"bench, steps of {most}": partial(served, most_new=most) for most in (512, 4096)}
    return found | {f"program, {name}": partial(program, group=name) for name in programs.ALL if name not in FOREIGN}


PERIODS_S = (0.95, 1.05, 1.7, 3.3, 10.0)
FOREIGN = (*programs.BAD, "near_locked", "foreign_response")
HEALTHY = groups()
OTHERS: dict[str, Callable[[int], Made]] = {
    **{f"program, {name}": partial(program, group=name) for name in FOREIGN},
    "log, in its own rhythm": partial(logged, mode="periodic", periods_s=(1.0,), spacing_s=1.0),
    **{
        f"profile, {name}": partial(profiled, spec=f"sim:{spec}", workload="resnet50", **changes)
        for name, spec, changes in (
            ("noise × 4", "h100?noise=4", {}),
            ("others at work", "h100?load=0.7:180,0.4:400", {}),
            ("drift of 2 %", "h100?given=drift:0.02,drift_s:20", {}),
            ("2 s", "a100-80", {"max_time_s": 2.0}),
            ("warm-up of 0.3 s", "v100", {"warmup_s": 0.3}),
            ("swings of 20 ms", "v100", {"kernels": swing(0.02003)}),
            ("swings of a sample", "h100?sensor=sampled&given=sample_rate_hz:1230", {"kernels": swing(2.0005 / 1230)}),
        )
    },
}
"""Groups whose load, sensor or settings are bad."""
