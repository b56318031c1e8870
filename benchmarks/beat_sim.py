"""A step as long as the sensor's samples are apart, on simulated boards: its parts with a pause and without one.

Twelve kernels whose powers rise and fall once in an iteration, on boards without a cap whose readings are means of 26
samples just an iteration apart. Windows have the energies that this sensor tells; truth is what the kernels drew.

    python benchmarks/beat_sim.py -o beat.md
"""

import numpy as np

from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.experiments.arms import REFERENCE, Arm
from jouletrace.experiments.estimate import Findings, estimate_parts
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.run import tables
from jouletrace.steps.simulated import SimulatedStep
from output import print_text

BOARDS = 10
BUDGET_S = 90
SAMPLES = 26
POWERS_W = (150, 250, 350, 450, 550, 650, 700, 600, 500, 400, 300, 200)
KERNELS = [SimKernel(f"k{i}", 60e-6, w, op=f"op{i}", module=f"m{i}", clocked=0.9) for i, w in enumerate(POWERS_W)]


def board(seed: int, sampling_s: float) -> str:
    """One whose power follows its load at once, so that the swing is all there to be seen."""
    given = f"fast_s:0.00002,kernel_gap_s:0.000001,record_period_s:{SAMPLES * sampling_s}"
    return f"sim:h100?cap=off&seed={seed}&sensor=sampled&given={given}"


def experiment(seed: int, alone_s: float, detune: bool) -> tuple[Findings, dict[int, float]]:
    """What was found, and the true energy of each part in joules."""
    gpu = open_simulated(board(seed, alone_s))
    step = SimulatedStep(gpu, KERNELS)
    step.replay(round(25 / alone_s))
    rows: list[dict[str, object]] = []
    period_ns = SAMPLES * alone_s * 1e9

    def measured():
        for row in rows:
            if "energy_j" not in row:
                start, end = row["start_ns"], row["end_ns"]
                # The sensor keeps to its own time: at any phase of it when a window begins.
                phase = np.random.default_rng([seed, row["order"]]).random()
                stamps = np.arange(start + (1 + phase) * period_ns, end, period_ns).astype(np.int64)
                row["energy_j"] = float(gpu.read_at("power_w", stamps).mean()) * (end - start) / 1e9
                row["clock_mhz"] = gpu.truth.clock_mhz(start, end)
        return tables.from_rows(rows, "windows")

    settings = PlanSettings(budget_s=BUDGET_S, sampling_s=alone_s if detune else None, seed=seed)
    run = Experiment(step, measured, settings)
    for window in run.windows():
        rows.append({**window.columns(), "order": len(rows)})
    found = estimate_parts(measured(), [part.id for part in run.parts])
    spin_ns = round(found.detuned_s * 1e9)
    schedule = (step.paced(found.detuned_s) if spin_ns else step).schedule
    own = [row for row in rows if row["variant"] == Arm(REFERENCE, spin_ns=spin_ns).variant]
    drawn = np.mean([gpu.truth.step(schedule, row["start_ns"], row["end_ns"]).kernel_j for row in own], axis=0)
    gap_j = gpu.truth.parameters().kernel_gap_s * gpu.truth.idle_w(own[-1]["end_ns"])
    return found, {part.id: sum(drawn[i] + gap_j for u in part.units for i in step.places(u)) for part in run.parts}


def table() -> str:
    """As markdown."""
    lines = [
        f"{BOARDS} boards, {BUDGET_S} s of experiments each, {len(KERNELS)} parts.",
        "",
        "| | parts off by, mean (most) | intervals that hold the truth | half-width, median | closure |",
        "|---|---|---|---|---|",
    ]
    for detune in (False, True):
        off, held, half, closures = [], [], [], []
        for seed in range(BOARDS):
            alone_s = SimulatedStep(open_simulated(board(seed, 0.8e-3)), KERNELS).replay(500).seconds / 500
            found, true = experiment(seed, alone_s, detune)
            for part, truth in true.items():
                cost = found.parts[part].cost.energy_j
                off.append(abs(cost.value / truth - 1))
                held.append(cost.low <= truth <= cost.high)
                half.append(cost.half_width / truth)
            closures.append(found.closure.value)
        name, closure = "with a pause" if detune else "as it is", f"{min(closures):.3f} to {max(closures):.3f}"
        wrong = f"{np.mean(off):.1%} ({max(off):.1%})"
        lines.append(f"| {name} | {wrong} | {np.mean(held):.1%} of {len(held)} | {np.median(half):.1%} | {closure} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print_text(__doc__, table)
