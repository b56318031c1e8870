"""The first look at a step's parts: what can only be changed together, and what there is no time for."""

import numpy as np
import pytest

from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.errors import NotPossibleError
from jouletrace.experiments.arms import REMOVE, SCREEN, Arm
from jouletrace.experiments.bench import Bench
from jouletrace.experiments.estimate import estimate_parts
from jouletrace.experiments.parts import JOINED_OP, make_parts
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.experiments.screening import screen
from jouletrace.run import tables
from jouletrace.steps.base import Interval
from jouletrace.steps.cycles import Cycles
from jouletrace.steps.simulated import SimulatedStep
from jouletrace.workloads.marks import OPTIMIZER

pytestmark = pytest.mark.thorough

SPEC = "sim:h100?cap=off&seed=3"
MODEL = [SimKernel("gemm", 400e-6, 800.0, op=f"mm{i}", module=f"{i}", shapes="bf16[64,64]") for i in range(4)]
ADAM = [SimKernel("each", 150e-6, 500.0, op=f"foreach_{i}_", module=OPTIMIZER, in_place=True) for i in range(3)]


class Chained:
    """A step whose marked units write over each other's results: they go all together or not at all."""

    def __init__(self, step, stuck):
        self.step, self.stuck = step, stuck

    def __getattr__(self, name):
        return getattr(self.step, name)

    def variant(self, changes):
        changed = {unit.op: times for unit, times in changes.items() if unit.op in self.stuck}
        if changed and (set(changed) != self.stuck or set(changed.values()) != {0}):
            raise NotPossibleError(f"{min(changed)} is written over")
        return self.step.variant(changes)


def chained(kernels=(*MODEL, *ADAM), stuck=ADAM):
    return Chained(SimulatedStep(open_simulated(SPEC), list(kernels)), {kernel.op for kernel in stuck})


def looked_at(step, **settings):
    bench = Bench(step, 0.02)
    bench.measure_iteration(0.08)
    windows, generator = [], screen(bench, make_parts(step.units()), PlanSettings(**settings), 0.0)
    while True:
        try:
            windows.append(next(generator))
        except StopIteration as end:
            return end.value, windows, bench


def test_operators_that_can_only_go_together_are_one_part_with_one_remark():
    step = chained()
    known, windows, bench = looked_at(step)
    together = known.parts[-1]
    assert together.op == JOINED_OP
    assert together.phase == "optimizer"
    assert [member.op for member in together.members] == [kernel.op for kernel in ADAM]
    assert [part.op for part in known.parts[:-1]] == [kernel.op for kernel in MODEL]
    assert known.share[together.id] == pytest.approx(3 * 150 / (4 * 400 + 3 * 150), rel=0.05)
    assert [code for code, _ in bench.notes] == ["measured_together"]
    assert "3 operators of optimizer" in bench.notes[0][1]
    assert {window.arm.kind for window in windows} == {SCREEN}


def test_what_goes_only_with_its_whole_phase_takes_that():
    mixed = [*ADAM, SimKernel("sum", 50e-6, 300.0, op="add", module=OPTIMIZER)]

    class OnlyAll(Chained):
        def variant(self, changes):
            changed = {unit.op for unit in changes if unit.module == OPTIMIZER}
            if changed & {kernel.op for kernel in ADAM} and len(changed) < len(mixed):
                raise NotPossibleError("written over")
            return self.step.variant(changes)

    step = OnlyAll(SimulatedStep(open_simulated(SPEC), [*MODEL, *mixed]), set())
    known, _, _ = looked_at(step)
    assert [member.op for member in known.parts[-1].members] == [kernel.op for kernel in mixed]


def test_what_can_not_go_at_all_stays_and_is_said_so():
    never = Chained(SimulatedStep(open_simulated(SPEC), [*MODEL, *ADAM]), {"nothing", ADAM[0].op})
    known, _, bench = looked_at(never)
    assert [part.op for part in known.parts] == [kernel.op for kernel in (*MODEL, *ADAM)]
    assert any(code == "variant_refused" and ADAM[0].op in text for code, text in bench.notes)


def test_parts_together_make_the_whole():
    step = chained()
    rows, gpu = [], step.step._device

    def measured():
        for row in rows:
            if "energy_j" not in row:
                row["energy_j"] = gpu.truth.caused_energy_j(row["start_ns"], row["end_ns"])
        return tables.from_rows(rows, "windows")

    step.replay(round(20 / (step.replay(10).seconds / 10)))
    experiment = Experiment(step, measured, PlanSettings(budget_s=60))
    for window in experiment.windows():
        rows.append({**window.columns(), "order": len(rows)})
    together = next(part for part in experiment.parts if part.op == JOINED_OP)
    found = estimate_parts(measured(), [part.id for part in experiment.parts])
    assert found.closure.value == pytest.approx(1, abs=0.01)
    truth = gpu.truth.step(step.schedule, rows[-30]["start_ns"], rows[-30]["end_ns"])
    assert found.parts[together.id].cost.energy_j.value == pytest.approx(np.sum(truth.kernel_j[-3:]), rel=0.05)


def test_without_time_for_all_the_largest_are_looked_at_and_the_rest_is_pooled():
    small = [SimKernel("k", 4e-6, 300.0, op=f"tiny{i}", module="head", shapes="f32[8]") for i in range(40)]
    step = SimulatedStep(open_simulated(SPEC), [*small, *MODEL])
    known, windows, bench = looked_at(step, budget_s=3.0)
    seen = {window.arm.part for window in windows}
    assert {part.id for part in known.parts if part.op.startswith("mm")} <= seen
    unseen = [part for part in known.parts if part.id not in seen]
    assert len(unseen) > 20
    assert all(known.share[part.id] == 0.0 for part in unseen)
    assert any(code == "not_looked_at" and str(len(unseen)) in text for code, text in bench.notes)


def test_one_that_can_not_be_removed_is_found_among_those_there_was_no_time_for():
    small = [SimKernel("k", 4e-6, 300.0, op=f"tiny{i}", module="head", shapes="f32[8]") for i in range(40)]
    step = Chained(SimulatedStep(open_simulated(SPEC), [*MODEL, *small]), {"nothing", "tiny33"})
    known, _, bench = looked_at(step, budget_s=2.0)
    stays = next(part for part in known.parts if part.op == "tiny33")
    assert {part for kind, part in bench.refused if kind == REMOVE} == {stays.id}
    assert bench.capture(Arm(REMOVE, stays.id, 0), {stays.id: stays}, None) is None


class Warming:
    """A step whose first milliseconds after a capture run at a lower clock, another each time."""

    def __init__(self, step, counts, seed=0):
        self.step, self.rng = step, np.random.default_rng(seed)
        self.cycles = self._cycles if counts else lambda: None
        self.mhz, self.cycles_done, self.time_ns = 1980.0, 0.0, 0

    def __getattr__(self, name):
        return getattr(self.step, name)

    def _cycles(self):
        return Cycles(np.array([0]), np.array([round(self.cycles_done)]), np.array([self.time_ns]))

    def variant(self, changes):
        self.mhz = 1980.0 * (1 - 0.03 * self.rng.random())
        inner = self.step.variant(changes)
        warming, replay = self, inner.replay

        def slower(n):
            ran = replay(n)
            length = round((ran.end_ns - ran.start_ns) * (1980.0 / warming.mhz) ** 0.5)
            warming.time_ns += length
            warming.cycles_done += length * warming.mhz / 1e3
            return Interval(ran.start_ns, ran.start_ns + length)

        inner.replay = slower
        return inner


@pytest.mark.parametrize(("counts", "off"), [(True, 0.001), (False, 0.02)])
def test_short_looks_at_a_board_whose_clock_is_rising_are_brought_to_one_clock(counts, off):
    kernels = [SimKernel("gemm", 10e-6, 800.0, op=f"mm{i}", module=f"{i}", shapes="fp16[64,64]") for i in range(40)]
    step = SimulatedStep(open_simulated(SPEC), kernels)
    known, windows, _ = looked_at(Warming(step, counts))
    shares = np.array([known.share[part.id] for part in known.parts])
    assert len(shares) == 40
    assert sum(window.arm.part is None for window in windows) >= 4
    apart = np.abs(shares - np.median(shares)).max()
    assert apart < off
    assert counts or apart > 0.005
    assert np.median(shares) == pytest.approx(1 / 40, abs=0.002 if counts else 0.01)  # launch is nobody's
