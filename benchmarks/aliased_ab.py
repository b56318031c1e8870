"""A null ``ab`` of a step as long as the sensor's sampling period: it must give no verdict, and must be flagged.

Each seed is a simulated H100 of its own whose sensor samples as real ones do, at the rate of the step give or take a
few hertz. The step is copies and then a matrix product, so that its power swings by 740 W; A and B are the same step.

    python benchmarks/aliased_ab.py -o aliased-ab.md
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import jouletrace as jt
from jouletrace.compare.pairs import DIFFERENT, Comparison
from jouletrace.devices import open_device
from jouletrace.execution.steps.simulated import simulate_workload
from jouletrace.run.readings import ALIASED
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.base import WorkloadOptions

OFF_HZ = (0.0, 0.02, -0.1, 0.3, -1.0, 3.0)
"""Between the frequency of the step and the samples' rate; one after the other over the seeds."""


def step_of(rows: int):
    """A callable whose power swings within it, and its input."""
    w = torch.zeros(4096, 2048, dtype=torch.half)

    def step(x):
        for _ in range(8):
            x = x.clone()
        return x @ w

    return step, torch.zeros(rows, 4096, dtype=torch.half)


def frequency_hz(spec: str, rows: int) -> float:
    """Repetitions of the step per second on this GPU, back to back."""
    device = open_device(spec)
    _, step = simulate_workload(ObjectWorkload(*step_of(rows)), WorkloadOptions(), device, "graph")
    device.close()
    return 1 / step.schedule.at(1.0, 1.0).period_s


def one_seed(seed: int, off_hz: float) -> tuple[Comparison, float, float]:
    """The comparison, the rate of the samples and the step's frequency."""
    spec = f"sim:h100-80?seed={seed}&sensor=sampled"
    few, many = (1 / frequency_hz(spec, rows) for rows in (8192, 10240))
    rows = round(8192 + 2048 * (1 / 1225 - few) / (many - few))
    step_hz = frequency_hz(spec, rows)
    model, x = step_of(rows)
    rate_hz = step_hz + off_hz
    return jt.ab(model, model, x, device=f"{spec}&given=sample_rate_hz:{rate_hz}", mode="graph"), rate_hz, step_hz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("-o", "--output", help="write the table here too")
    arguments = parser.parse_args()
    lines = ["| seed | step, Hz | samples, Hz | change of energy B over A | verdicts | flagged |", "|" + "---|" * 6]
    false = flagged = 0
    for seed in range(1, arguments.seeds + 1):
        found, rate_hz, step_hz = one_seed(seed, OFF_HZ[seed % len(OFF_HZ)])
        energy = found.row("energy_total_j")
        verdicts = [row.verdict for row in found.rows]
        false += any(verdict in DIFFERENT for verdict in verdicts)
        flagged += all(ALIASED in found.row(metric).flags for metric in ("energy_total_j", "power_w"))
        low, value, high = (100 * np.array([energy.change.low, energy.change.value, energy.change.high])).round(2)
        said = ", ".join(f"{row.metric}: {row.verdict}" for row in found.rows)
        lines.append(
            f"| {seed} | {step_hz:.2f} | {rate_hz:.2f} | {value} % ({low} to {high}) | {said} | {energy.flags} |"
        )
        print(lines[-1], flush=True)
    lines += ["", f"False verdicts: {false} of {arguments.seeds}. Flagged: {flagged} of {arguments.seeds}."]
    print(lines[-1])
    if arguments.output:
        Path(arguments.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
