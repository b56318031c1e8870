"""Boards that jump between two states of their own: parts with the SMs' cycle counters and without them.

Five layers of four kernels on simulated boards without a cap, in one state throughout or for so many seconds at a time
in one and the other: 0.67 % in clock apart, told by the cycle counter alone. Windows have their true energies. What is
known without counters is estimated from the same windows. Truth is what the kernels drew in the reference's windows.

    OPENBLAS_NUM_THREADS=1 python benchmarks/states_sim.py -o states.md    (with more, threads get in each other's way)
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.experiments.arms import REFERENCE
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.levels import Observed
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.run import tables
from jouletrace.steps.simulated import SimulatedStep
from output import print_text

BOARDS = 15
BUDGET_S = 60
WARM_S = 25
STATES = ("", "&states=12", "&states=4")
LAYER = (
    SimKernel("norm", 80e-6, 350.0, op="norm", module="norm", clocked=0.2, core=0.4),
    SimKernel("gemm", 360e-6, 950.0, op="mm", module="up", clocked=0.9),
    SimKernel("gemm", 320e-6, 900.0, op="mm", module="down", clocked=0.9),
    SimKernel("add", 60e-6, 330.0, op="add", module="sum", clocked=0.2, core=0.4),
)
KERNELS = 5 * LAYER


@dataclass
class Rows:
    """What was found of all parts on all boards, with counters or without."""

    off: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    half: list[float] = field(default_factory=list)
    unsteady: int = 0
    windows: int = 0

    def add(self, windows: pa.Table, true: dict[int, float]) -> None:
        """Estimate the parts of one experiment."""
        found = estimate_parts(windows, list(true))
        for part, truth in true.items():
            cost = found.parts[part].cost.energy_j
            self.off.append(abs(cost.value / truth - 1))
            self.held.append(cost.low <= truth <= cost.high)
            self.half.append(cost.half_width / truth)
        self.unsteady += int(Observed.of(windows).stretches.between.sum())
        self.windows += len(windows)

    def line(self, name: str) -> str:
        """A row of the table."""
        return (
            f"| {name} | {np.mean(self.off):.1%} ({max(self.off):.1%}) | {np.mean(self.held):.1%} of {len(self.held)} "
            f"| {np.median(self.half):.1%} | {self.unsteady / self.windows:.1%} of {self.windows} |"
        )


def experiment(spec: str, seed: int) -> tuple[pa.Table, dict[int, float]]:
    """Windows of an experiment, and the true energy of each part in joules."""
    gpu = open_simulated(spec)
    step = SimulatedStep(gpu, KERNELS)
    step.replay(round(WARM_S / (step.replay(10).seconds / 10)))
    rows: list[dict[str, object]] = []

    def measured() -> pa.Table:
        for row in rows:
            if "energy_j" not in row:
                row["energy_j"] = gpu.truth.caused_energy_j(row["start_ns"], row["end_ns"])
                row["clock_mhz"] = gpu.truth.clock_mhz(row["start_ns"], row["end_ns"])
        return tables.from_rows(rows, "windows")

    run = Experiment(step, measured, PlanSettings(budget_s=BUDGET_S, seed=seed))
    for window in run.windows():
        rows.append({**window.columns(), "order": len(rows)})
    own = [row for row in rows if row["variant"] == REFERENCE]
    drawn = np.mean([gpu.truth.step(step.schedule, row["start_ns"], row["end_ns"]).kernel_j for row in own], axis=0)
    gap_j = gpu.truth.parameters().kernel_gap_s * gpu.truth.idle_w(own[-1]["end_ns"])
    true = {part.id: sum(drawn[i] + gap_j for unit in part.units for i in step.places(unit)) for part in run.parts}
    return measured(), true


def without_counters(windows: pa.Table) -> pa.Table:
    """The same windows as if nobody had read them."""
    column = windows.column_names.index("counted_mhz")
    return windows.set_column(column, "counted_mhz", pa.nulls(len(windows), pa.float64()))


def table() -> str:
    """As markdown."""
    lines = [
        f"{BOARDS} boards of each kind, {BUDGET_S} s of experiments each.",
        "",
        "| | parts off by, mean (most) | intervals that hold the truth | half-width, median | beside a change |",
        "|---|---|---|---|---|",
    ]
    for states in STATES:
        counted, blind = Rows(), Rows()
        for seed in range(BOARDS):
            windows, true = experiment(f"sim:h100?cap=off&seed={seed}{states}", seed)
            counted.add(windows, true)
            blind.add(without_counters(windows), true)
        name = f"states of {states.partition('=')[2]} s" if states else "one state"
        lines += [blind.line(f"{name}, without counters"), counted.line(f"{name}, with counters")]
    return "\n".join(lines)


if __name__ == "__main__":
    print_text(__doc__, table)
