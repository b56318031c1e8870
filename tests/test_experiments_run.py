"""Whole experiments on simulated boards, held against the truth about each kernel.

Windows get their true energies, noise of the load and drift included; what the sensor adds is left to
``benchmarks/experiments_sim.py``.
"""

import numpy as np
import pytest

from covering import fewest
from experiment_lab import KERNELS, SMALL, Lab
from jouletrace.devices.simulated import open_simulated
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.experiments.arms import GAPS, NULL, REFERENCE, REMOVE, REPEAT, SCREEN, STEP
from jouletrace.experiments.parts import POOLED_OP
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.run import tables
from jouletrace.steps.simulated import SimulatedStep

pytestmark = pytest.mark.thorough


def holds(estimate, value):
    return estimate.low <= value <= estimate.high


def test_without_a_cap_parts_are_found_and_close():
    hits, closures = [], []
    for seed in range(5):
        lab = Lab(f"sim:h100?cap=off&seed={seed}", settings=PlanSettings(seed=seed))
        found = lab.run()
        true = lab.in_windows(0)
        assert found.pause_s == 0
        assert found.flags == ()
        for part in lab.experiment.parts:
            cost = found.parts[part.id]
            hits.append(holds(cost.cost.energy_j, true[part.id]))
            assert cost.cost.energy_j.value == pytest.approx(true[part.id], rel=0.1)
            assert cost.cost.energy_j.half_width < 0.12 * true[part.id]
            assert cost.matched is None
        closures.append(found.closure)
        idle_j = lab.gpu.truth.idle_w(lab.rows[-1]["end_ns"]) * lab.gpu.truth.parameters().launch_gap_s
        assert found.gaps.energy_j.value == pytest.approx(idle_j, rel=0.3)
    assert sum(hits) >= fewest(len(hits))
    assert all(abs(closure.value - 1) < 0.02 and holds(closure, 1) for closure in closures)


def test_a_repetition_in_the_cache_disagrees_with_removal_and_says_so():
    lab = Lab("sim:h100?cap=off")
    found = lab.run()
    add = next(part.id for part in lab.experiment.parts if part.op == "add_")
    assert "methods_disagree" in found.parts[add].flags
    assert found.parts[add].repetition.energy_j.value < 0.85 * found.parts[add].removal.energy_j.value


def test_under_a_cap_marginal_and_clock_matched_costs_are_found_and_a_naive_leave_one_out_is_not():
    lab = Lab("sim:h100?seed=3", settings=PlanSettings(budget_s=120))
    found = lab.run()
    spin_ns = round(found.pause_s * 1e9)
    assert spin_ns > 0
    assert found.clock_spread_mhz <= 15
    matched, marginal = lab.in_windows(spin_ns), lab.marginal()
    for part in lab.experiment.parts:
        cost = found.parts[part.id]
        assert cost.matched.energy_j.value == pytest.approx(matched[part.id], rel=0.15)
        assert cost.cost.energy_j.value == pytest.approx(marginal[part.id], rel=0.15)
    inside = [holds(found.parts[i].matched.energy_j, matched[i]) for i in matched]
    inside += [holds(found.parts[i].cost.energy_j, marginal[i]) for i in marginal]
    assert sum(inside) >= len(inside) - 1
    assert found.closure.value == pytest.approx(1, abs=0.02)
    assert found.closure_matched.value == pytest.approx(1, abs=0.02)
    # products cost more at the higher clock and what waits for memory less: both figures are needed
    up = next(part.id for part in lab.experiment.parts if part.module == "*.up")
    assert found.parts[up].matched.energy_j.low > found.parts[up].cost.energy_j.high
    assert abs(naive_sum(lab) - 1) > 0.1


def naive_sum(lab):
    """Graph nodes switched off one part at a time, each held against one window of the whole."""

    def energy():
        n = round(0.5 / (lab.step.replay(20).seconds / 20))
        interval = lab.step.replay(n)
        return lab.gpu.truth.caused_energy_j(interval.start_ns, interval.end_ns) / n

    whole, saved = energy(), 0.0
    for part in lab.experiment.parts:
        for unit in part.units:
            lab.step.toggle(unit, enabled=False)
        saved += whole - energy()
        for unit in part.units:
            lab.step.toggle(unit, enabled=True)
    return saved / whole


def test_power_under_a_cap_explains_most_of_its_noise():
    lab = Lab("sim:h100?seed=3", settings=PlanSettings(budget_s=100))
    found = lab.run()
    rows = [row for row in lab.rows if row["variant"] == REFERENCE]
    spread = np.std(np.log([row["energy_j"] / row["replays"] for row in rows]), ddof=1)
    reference = found.reference.energy_j
    assert reference.half_width / reference.value < 0.6 * 2 * spread / np.sqrt(len(rows))


def test_small_parts_are_pooled_and_the_sum_stays_whole():
    lab = Lab("sim:h100?cap=off", [*KERNELS, *SMALL])
    found = lab.run()
    assert [part.op for part in lab.experiment.parts].count(POOLED_OP) == 1
    assert len(lab.experiment.parts) == 5
    assert abs(found.closure.value - 1) < 0.02


def test_the_budget_holds_and_more_of_it_narrows_the_intervals():
    widths = {}
    for budget_s in (40, 100):
        settings = PlanSettings(budget_s=budget_s, target=0.001)
        lab = Lab("sim:h100?cap=off", settings=settings)
        found = lab.run()
        assert lab.experiment.spent_s <= 1.05 * budget_s
        widths[budget_s] = np.mean([cost.cost.energy_j.half_width for cost in found.parts.values()])
    assert widths[100] < 0.8 * widths[40]


def test_time_goes_where_intervals_are_too_wide_and_ends_when_none_is():
    lab = Lab("sim:h100?cap=off", settings=PlanSettings(target=0.5, closure=0.5))
    lab.run()
    counts = {kind: sum(arm.kind == kind for arm in lab.arms()) for kind in (REMOVE, REPEAT)}
    assert counts == {REMOVE: 2 * 4, REPEAT: 4}
    strict = Lab("sim:h100?cap=off", settings=PlanSettings(target=0.05, closure=0.5))
    strict.run()
    removed = [arm.part for arm in strict.arms() if arm.kind == REMOVE]
    small = next(part.id for part in strict.experiment.parts if part.op == "add_")
    large = next(part.id for part in strict.experiment.parts if part.module == "*.up")
    assert removed.count(small) > removed.count(large)


def test_the_same_seed_runs_the_same_plan():
    settings = PlanSettings(budget_s=40)
    one, other = (Lab("sim:h100?cap=off&noise=0", settings=settings) for _ in range(2))
    one.run(), other.run()
    assert [row["variant"] for row in one.rows] == [row["variant"] for row in other.rows]


class Counted:
    """A step that counts what is open, and refuses what it is told to."""

    def __init__(self, step, refuse=(), pace=True, opened=None):
        self.step, self.refuse, self.pace = step, refuse, pace
        self.opened = opened if opened is not None else []

    def __getattr__(self, name):
        return getattr(self.step, name)

    def variant(self, changes):
        for unit, multiplicity in changes.items():
            if (unit.op, multiplicity == 0) in self.refuse:
                raise NotPossibleError(f"{unit.op} can't be changed so")
        return self._open(self.step.variant(changes))

    def empty(self):
        if any(removed for _, removed in self.refuse):
            raise NotPossibleError("some unit can't be removed")
        return self._open(self.step.empty())

    def paced(self, spin_s, pieces=1):
        if not self.pace:
            raise NotPossibleError("steps on the CPU aren't paced")
        return self._open(self.step.paced(spin_s, pieces))

    def _open(self, step):
        fresh = Counted(step, self.refuse, self.pace, self.opened)
        self.opened.append(fresh)
        return fresh

    def close(self):
        self.opened.remove(self)


def counted(**keys):
    return lambda step: Counted(step, **keys)


@pytest.mark.parametrize("spec", ["sim:h100?cap=off", "sim:h100"])
def test_broken_off_at_any_window_nothing_stays_open_and_what_there_is_can_be_estimated(spec):
    for stop in (1, 8, 30):
        opened = []
        lab = Lab(spec, settings=PlanSettings(budget_s=60), wrap=counted(opened=opened))
        running = lab.experiment.windows()
        most = 0
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for window in running:
                lab.rows.append({**window.columns(), "order": len(lab.rows)})
                most = max(most, len(opened))
                if len(lab.rows) == stop:
                    running.throw(KeyboardInterrupt())
        assert opened == []
        assert most <= PlanSettings().hold + 6 + 10  # variants, common ones, steps with a pause
        found = lab.findings()
        assert found.windows <= stop
        assert found.closure.value is None
    assert any(cost.cost.energy_j.value is not None for cost in found.parts.values())


def test_after_the_end_nothing_stays_open():
    opened = []
    lab = Lab("sim:h100", settings=PlanSettings(budget_s=40), wrap=counted(opened=opened))
    lab.run()
    assert opened == []


def test_what_can_not_be_removed_is_repeated_and_said_so():
    lab = Lab("sim:h100?cap=off", wrap=counted(refuse={("norm", True)}))
    found = lab.run()
    norm = next(part.id for part in lab.experiment.parts if part.op == "norm")
    assert found.parts[norm].cost.energy_j.method == "repetition"
    assert found.parts[norm].cost.energy_j.value == pytest.approx(lab.in_windows(0)[norm], rel=0.1)
    assert lab.experiment.refused == {(REMOVE, norm): "norm can't be changed so"}
    assert found.gaps.energy_j.value is None
    assert found.closure.reason == "not_measured"
    assert any("norm" in text for code, text in lab.experiment.notes if code == "variant_refused")


def test_a_step_that_can_not_be_paced_is_measured_as_it_is():
    lab = Lab("sim:h100?cap=off", wrap=counted(pace=False))
    found = lab.run()
    assert found.pause_s == 0
    assert {arm.spin_ns for arm in lab.arms()} == {0}
    assert abs(found.closure.value - 1) < 0.02
    assert "not_paced" in {code for code, _ in lab.experiment.notes}


def test_repetition_alone_measures_where_nothing_can_be_removed():
    lab = Lab("sim:h100?cap=off", settings=PlanSettings(removal=False))
    found = lab.run()
    assert REMOVE not in {arm.kind for arm in lab.arms()}
    up = next(part.id for part in lab.experiment.parts if part.module == "*.up")
    assert found.parts[up].cost.energy_j.method == "repetition"
    assert holds(found.parts[up].cost.energy_j, lab.in_windows(0)[up])


def test_a_step_without_units_is_refused():
    step = Counted(SimulatedStep(open_simulated("sim:h100"), KERNELS))
    step.units = list
    with pytest.raises(BadInputError, match="no operators"):
        Experiment(step, lambda: tables.empty("windows"))


def test_windows_say_all_that_is_needed_to_estimate_again():
    lab = Lab("sim:h100?cap=off", settings=PlanSettings(budget_s=40))
    lab.run()
    kinds = {arm.kind for arm in lab.arms()}
    assert {REFERENCE, NULL, STEP, REMOVE, REPEAT, GAPS, SCREEN} <= kinds
    blocks = [row["block"] for row in lab.rows]
    assert blocks == sorted(blocks)
    assert all(a["end_ns"] <= b["start_ns"] for a, b in zip(lab.rows, lab.rows[1:], strict=False))
    assert all(row["unit"] is None for row in lab.rows if row["variant"].startswith((REFERENCE, NULL, STEP, GAPS)))
