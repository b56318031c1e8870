"""An experiment on a simulated step, with the true energies of its windows."""

from dataclasses import dataclass, field

import numpy as np
from jouletrace.experiments.arms import REFERENCE, Arm
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment

from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.run import tables
from jouletrace.steps.base import DETACHED
from jouletrace.steps.simulated import SimulatedStep


def layer(i):
    """Kernels of one layer; the sum finds its data in the cache when it is repeated."""
    base = 4 * i
    before = (base - 1,) if i else ()
    return [
        SimKernel("norm", 80e-6, 350.0, op="norm", module=f"{i}.norm", clocked=0.2, core=0.4, sources=before),
        SimKernel("gemm", 360e-6, 950.0, op="mm", module=f"{i}.up", clocked=0.9, sources=(base,)),
        SimKernel("gemm", 320e-6, 900.0, op="mm", module=f"{i}.down", clocked=0.9, sources=(base + 1,)),
        SimKernel(
            "add", 60e-6, 330.0, op="add_", module=f"{i}", clocked=0.2, core=0.4, repeat=0.6,
            sources=(base + 2, *before), in_place=True,
        ),
    ]  # fmt: skip


KERNELS = [kernel for i in range(5) for kernel in layer(i)]
SMALL = [SimKernel(f"k{i}", 8e-6, 300.0, op=f"tiny{i}", module="head") for i in range(4)]


@dataclass
class Lab:
    """A warm step, and the windows that an experiment ran on it."""

    spec: str
    kernels: list = field(default_factory=lambda: KERNELS)
    settings: PlanSettings = field(default_factory=PlanSettings)
    wrap: object = staticmethod(lambda step: step)

    def __post_init__(self):
        self.gpu = open_simulated(self.spec)
        self.step = SimulatedStep(self.gpu, self.kernels)
        self.step.replay(round(25 / (self.step.replay(10).seconds / 10)))
        self.rows = []
        self.experiment = Experiment(self.wrap(self.step), self.measured, self.settings)

    def measured(self):
        truth = self.gpu.truth
        for row in self.rows:
            if "energy_j" not in row:
                row["energy_j"] = truth.caused_energy_j(row["start_ns"], row["end_ns"])
                row["clock_mhz"] = truth.clock_mhz(row["start_ns"], row["end_ns"])
        return tables.from_rows(self.rows, "windows")

    def run(self):
        for window in self.experiment.windows():
            self.rows.append({**window.columns(), "order": len(self.rows)})
        return self.findings()

    def findings(self):
        return estimate_parts(self.measured(), [part.id for part in self.experiment.parts])

    def arms(self):
        return [Arm.read(row["variant"], row["unit"], row["multiplicity"]) for row in self.rows]

    def in_windows(self, spin_ns):
        """True energy of each part at equal clocks: what its kernels drew in the reference's own windows."""
        step = self.step.paced(spin_ns / 1e9) if spin_ns else self.step
        label = Arm(REFERENCE, spin_ns=spin_ns).variant
        rows = [row for row in self.rows if row["variant"] == label]
        drawn = [self.gpu.truth.step(step.schedule, row["start_ns"], row["end_ns"]) for row in rows]
        kernel_j = np.mean([t.kernel_j for t in drawn], axis=0)
        gap_j = self.gpu.truth.parameters().kernel_gap_s * self.gpu.truth.idle_w(rows[-1]["end_ns"])
        return {
            part.id: sum(kernel_j[i] + gap_j for unit in part.units for i in self.step.places(unit))
            for part in self.experiment.parts
        }

    def marginal(self):
        """True marginal energy of each part: steady steps with it detached less without, in this run's power."""
        truth, schedule = self.gpu.truth, self.step.schedule
        rows = [(row["start_ns"], row["end_ns"]) for row in self.rows if row["variant"] == REFERENCE]
        heat = np.mean([truth.temperature_c(end) for _, end in rows])
        steady = [truth.steady(schedule, clock_mhz=truth.clock_mhz(*edges)) for edges in rows]
        drawn = [truth.step(schedule, *edges) for edges in rows]
        scale = np.mean([one.active_j / other.active_j for one, other in zip(drawn, steady, strict=True)])

        def steady_j(step):
            kernels = [kernel.scaled(power=scale) for kernel in step.schedule.kernels]
            return self.gpu.truth.steady(self.gpu.board.schedule(kernels), temperature_c=heat).energy_j

        return {
            part.id: steady_j(self.step.variant(part.changes(DETACHED))) - steady_j(self.step.variant(part.changes(0)))
            for part in self.experiment.parts
        }
