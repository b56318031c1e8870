"""Accuracy of the phases of generating on simulated GPUs, whose energy is known exactly.

A model is counted and turned into an iteration and its pieces on GPUs drawn by seed. The profile's figures
of each phase, of a forward at each length, of the whole and of the closure, from the GPU's own noisy
sensors, are compared with the truth: the noiseless steady state at the temperature of the windows, at the load's mean
power in this run. A single run can't determine how its power deviates from that of other runs (``--repeats``
can); "any run" compares the same figures with the GPU's mean over all runs.

    python benchmarks/generation_sim.py --seeds 245 --modes graph
"""

import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from jouletrace import analysis
from jouletrace.analysis.iterations import SEGMENT
from jouletrace.devices import open_device
from jouletrace.execution.steps.simulated import simulate_generation
from jouletrace.profiler import generation, passes
from jouletrace.profiler.passes import warm_up
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.stats.interval import standard_error
from jouletrace.workloads import resolve
from jouletrace.workloads.base import Workload
from jouletrace.workloads.options import WorkloadOptions
from judging import judged, options
from step_truth import mean_step, steady_step

WORKLOAD, QUIET = "llama-1b", Progress()
HEADER = (
    "| workload, mode, figure | n | covered | covered, any run | median half-width | RMS error "
    "| RMS error / standard error |\n|---|---|---|---|---|---|---|"
)


def measured(workload: Workload, options: WorkloadOptions, spec: str, settings: ProfileSettings) -> list[tuple]:
    """A profile's passes on one GPU: figure, estimate, truth in this run, truth in any."""
    device = open_device(spec)
    built, step, pieces, _ = simulate_generation(workload, options, device, settings.mode)
    with tempfile.TemporaryDirectory() as folder:
        session = Session("profile", [device], folder=Path(folder) / "run", settings=settings.to_dict())
        with session:
            session.run.workload = {**built.facts, "items": built.items}
            warm = warm_up(session, step, settings.warmup_s, QUIET)
            passes.idle(session, "context idle before", settings, QUIET)
            generation.measure(session, step, lambda: pieces, settings, warm.iteration_s, QUIET)
            passes.idle(session, "context idle after", settings, QUIET)
            run = session.finish()
    analysis.analyse(run)
    found = compared(run, device, step, pieces)
    device.close()
    return found


def compared(run: Run, gpu, step, pieces) -> list[tuple]:
    stated = run.workload["generation"]["segments"]
    steps = {None: step, **{one["unit"]: piece for one, (_, piece) in zip(stated, pieces.segments, strict=True)}}
    windows = [row for row in run.windows.to_pylist() if row["variant"] in ("untouched", SEGMENT)]
    heat = np.mean([gpu.truth.temperature_c(row["end_ns"]) for row in windows])
    steady = {unit: steady_step(gpu, one.schedule, temperature_c=heat) for unit, one in steps.items()}
    seconds, active, expected = [], [], []
    for row in windows:
        one = mean_step(gpu, steps[row["unit"]].schedule, row["start_ns"], row["end_ns"])
        seconds.append(row["replays"] * one.time_s)
        active.append(row["replays"] * one.kernel_active_j.sum())
        expected.append(row["replays"] * steady[row["unit"]].kernel_active_j.sum())
    scale = sum(active) / sum(expected)

    def joules(weights: dict[int | None, float], scale: float) -> float:
        return sum(
            weight * (steady[unit].energy_j + (scale - 1) * steady[unit].kernel_active_j.sum())
            for unit, weight in weights.items()
        )

    weights = {one["unit"]: one["weight"] / one["times"] for one in stated}
    rows = run.units.to_pylist()
    wanted = {"whole": (MODEL_UNIT, {None: 1.0})}
    for row in rows:
        if row["level"] == "phase":
            of = {one["unit"]: weights[one["unit"]] for one in stated if one["phase"] == row["phase"]}
            wanted[row["name"]] = (row["id"], of)
        if row["level"] == "length":
            times = next(one["times"] for one in stated if one["unit"] == row["id"])
            wanted.setdefault("one token, first length", (row["id"], {row["id"]: 1 / times}))
    found = [
        (name, run.result("energy_total_j", unit), joules(of, scale), joules(of, 1.0))
        for name, (unit, of) in wanted.items()
    ]
    closures = [joules(weights, s) / joules({None: 1.0}, s) for s in (scale, 1.0)]
    return [*found, ("closure", run.result("closure_phases"), *closures)]


def summary(title: str, rows: list[tuple]) -> str:
    here, anywhere = (judged([(row[1], row[place]) for row in rows]) for place in (2, 3))
    own = np.array([standard_error(row[1])[0] for row in rows])
    ratio = np.sqrt(np.mean(((here.value - here.truth) / own) ** 2))
    shares = f"{here.held.mean():.1%} | {anywhere.held.mean():.1%} | {np.median(here.half):.2%} | {here.rms:.2%}"
    return f"| {title} | {len(rows)} | {shares} | {ratio:.2f} |"


def main() -> None:
    asked = options(__doc__, seeds=20, first_seed=0, modes=["graph", "eager"]).parse_args()
    print(HEADER, flush=True)
    options_ = WorkloadOptions(task="generate", batch=1, seq_len=32, max_new_tokens=12)
    for mode in asked.modes:
        rows = defaultdict(list)
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            spec = f"sim:h100?seed={seed}"
            settings = ProfileSettings(task="generate", device=spec, mode=mode, seed=seed, latency_s=0.1)
            for row in measured(resolve(WORKLOAD), options_, spec, settings):
                rows[row[0]].append(row)
        rows["all phases"] = [row for name in ("prefill", "decode", "between forwards") for row in rows[name]]
        for name, some in rows.items():
            print(summary(f"{WORKLOAD}, {mode}, {name}", some), flush=True)


if __name__ == "__main__":
    main()
