"""Steps as long as the time between the samples that the sensor's readings are made of."""

import numpy as np
import pytest

from experiment_lab import Lab
from jouletrace.devices.simulated import SimKernel
from jouletrace.energy.beat import left
from jouletrace.errors import NotPossibleError
from jouletrace.experiments import commons
from jouletrace.experiments.arms import GAPS, PACE, REMOVE, SCREEN, SLOPE
from jouletrace.experiments.detuning import detuning, longer
from jouletrace.experiments.estimate import Estimator
from jouletrace.experiments.levels import Observed
from jouletrace.experiments.plan import PlanSettings

pytestmark = pytest.mark.thorough

SAMPLING_S, WINDOW_S = 0.8e-3, 0.5

SWINGING = [
    SimKernel(f"k{i}", 60e-6, power, op=f"op{i}", module=f"m{i}", clocked=0.9)
    for i, power in enumerate((150, 250, 350, 450, 550, 650, 700, 600, 500, 400, 300, 200))
]
"""Three quarters of a millisecond in which power rises and falls once: what is sampled at one phase is far off."""


@pytest.mark.parametrize("iteration_ms", [0.4, 0.53, 0.79, 0.797, 0.8, 0.803, 0.81, 1.2, 1.6])
def test_a_pause_takes_a_step_and_its_variants_off_the_beat(iteration_ms):
    iteration_s = iteration_ms / 1e3
    assert left(np.array([iteration_s * f for f in (0.98, 1, 1.02)]), SAMPLING_S, WINDOW_S).max() > 0.01
    added = np.linspace(-0.12, 0.1, 12)
    pause_s = detuning(iteration_s, added, SAMPLING_S, WINDOW_S)
    assert 0 < pause_s <= 0.5 * iteration_s
    assert left(iteration_s * (1 + np.array([-0.01, 0, 0.01, *added])) + pause_s, SAMPLING_S, WINDOW_S).max() <= 0.05


@pytest.mark.parametrize("iteration_ms", [0.45, 0.65, 0.9, 1.0, 1.4, 2.0, 4.0, 8.0, 26.0])
def test_a_step_that_does_not_beat_gets_no_pause(iteration_ms):
    assert detuning(iteration_ms / 1e3, [-0.01, 0.01], SAMPLING_S, WINDOW_S) == 0


def test_a_step_whose_large_part_would_bring_it_onto_the_beat_gets_a_pause():
    pause_s = detuning(1.0e-3, [-0.2, -0.05], SAMPLING_S, WINDOW_S)
    assert pause_s > 0
    assert left(np.array([0.8e-3]) + pause_s, SAMPLING_S, WINDOW_S)[0] <= 0.02


def test_where_no_pause_ends_the_beat_none_is_made():
    assert detuning(0.4e-3, np.linspace(-0.2, 0.12, 20), SAMPLING_S, WINDOW_S) is None


def test_without_a_known_sampling_there_is_no_pause():
    assert detuning(0.8e-3, [], None, WINDOW_S) == 0


def test_references_with_other_pauses_all_pause_longer_and_differ():
    pause_s = detuning(0.8e-3, [-0.1, 0.1], SAMPLING_S, WINDOW_S)
    others = longer(0.8e-3, pause_s, SAMPLING_S, WINDOW_S)
    assert len(set(others)) == len(others) >= 4
    assert pause_s + 0.04 * SAMPLING_S < min(others) < max(others) < pause_s + 0.25 * SAMPLING_S


def board(sampling_s):
    """One without a cap, whose readings are the mean of 26 samples so far apart."""
    given = f"fast_s:0.00002,kernel_gap_s:0.000001,record_period_s:{26 * sampling_s}"
    return f"sim:h100?cap=off&seed=1&sensor=sampled&given={given}"


def iteration_s():
    return Lab(board(SAMPLING_S), SWINGING).step.replay(500).seconds / 500


class Sensed(Lab):
    """A lab whose windows have the energies that the board's own sensor tells, not the true ones."""

    def measured(self):
        period_s = 26 * iteration_s()
        for row in self.rows:
            if "energy_j" not in row:
                # A sensor is at any phase when a window begins, and keeps to its own.
                first = row["start_ns"] + (1 + np.random.default_rng(row["order"]).random()) * period_s * 1e9
                stamps = np.arange(first, row["end_ns"], period_s * 1e9).astype(np.int64)
                power = self.gpu.read_at("power_w", stamps)
                row["energy_j"] = float(power.mean()) * (row["end_ns"] - row["start_ns"]) / 1e9
                row["clock_mhz"] = self.gpu.truth.clock_mhz(row["start_ns"], row["end_ns"])
        return super().measured()


def test_all_variants_pause_alike_and_what_the_pause_costs_is_taken_off():
    alone_s = iteration_s()
    lab = Lab(board(alone_s), SWINGING, PlanSettings(budget_s=90, sampling_s=alone_s))
    found = lab.run()
    arms = [arm for arm in lab.arms() if arm.kind not in (GAPS, PACE, SCREEN)]
    assert {arm.spin_ns for arm in arms if arm.kind != SLOPE} == {round(found.detuned_s * 1e9)}
    assert len({arm.spin_ns for arm in arms if arm.kind == SLOPE}) >= 3
    assert found.pause_s == 0
    assert [code for code, _ in lab.experiment.notes] == ["detuned"]
    # The kernel that waits is launched too, whatever its length: a gap more.
    assert found.untouched.time_s.value == pytest.approx(alone_s, rel=3e-3)
    assert found.closure.value == pytest.approx(1, abs=0.02)
    assert found.closure.low <= 1 <= found.closure.high


def test_a_sensor_that_sees_one_phase_tells_little_without_the_pause_and_much_with_it():
    alone_s = iteration_s()
    off, half, held = {}, {}, {}
    for sampling_s in (None, alone_s):
        lab = Sensed(board(alone_s), SWINGING, PlanSettings(budget_s=90, sampling_s=sampling_s))
        found = lab.run()
        true = lab.in_windows(round(found.detuned_s * 1e9))
        costs = [(found.parts[part].cost.energy_j, true[part]) for part in true]
        off[sampling_s] = np.mean([abs(cost.value / truth - 1) for cost, truth in costs])
        half[sampling_s] = np.median([cost.half_width / truth for cost, truth in costs])
        held[sampling_s] = np.mean([cost.low <= truth <= cost.high for cost, truth in costs])
    assert off[alone_s] < 0.04 < off[None]
    assert half[alone_s] < 0.1 < half[None]
    assert held[alone_s] >= 0.75


def test_a_step_that_cannot_pause_is_measured_as_it_is_and_the_run_says_so():
    alone_s = iteration_s()

    class Restless:
        def __init__(self, step):
            self._step = step

        def __getattr__(self, name):
            return getattr(self._step, name)

        def paced(self, spin_s, pieces=1):
            raise NotPossibleError("it never waits")

    settings = PlanSettings(budget_s=60, sampling_s=alone_s, pace=False)
    lab = Lab(board(alone_s), SWINGING, settings, Restless)
    found = lab.run()
    assert found.detuned_s == 0
    [(code, text)] = lab.experiment.notes
    assert code == "beats_with_sensor"
    assert "it never waits" in text


def test_an_experiment_that_ends_early_has_costs_of_parts_but_none_of_the_step_without_its_pause():
    alone_s = iteration_s()
    lab = Lab(board(alone_s), SWINGING, PlanSettings(budget_s=90, sampling_s=alone_s))
    whole = lab.run()
    lab.rows = [row for row in lab.rows if not str(row["variant"]).startswith((SLOPE, GAPS))]
    found = lab.findings()
    assert found.untouched.energy_j.value is None
    assert found.untouched.energy_j.reason == "not_measured"
    assert found.closure.value is None
    for part, cost in found.parts.items():
        assert cost.cost.energy_j.value == pytest.approx(whole.parts[part].cost.energy_j.value, rel=0.02)


def test_without_other_references_the_pause_costs_what_it_does_alone():
    alone_s = iteration_s()
    lab = Lab(board(alone_s), SWINGING, PlanSettings(budget_s=90, sampling_s=alone_s))
    whole = lab.run()
    lab.rows = [row for row in lab.rows if not str(row["variant"]).startswith(SLOPE)]
    assert lab.findings().untouched.energy_j.value == pytest.approx(whole.untouched.energy_j.value, rel=0.02)


def test_a_part_without_which_the_step_beats_is_flagged():
    alone_s = iteration_s()
    lab = Lab(board(alone_s), SWINGING, PlanSettings(budget_s=60))
    lab.run()
    parts = [part.id for part in lab.experiment.parts]
    seen = Observed.of(lab.measured())
    without = {arm.part: time_s for arm, time_s in zip(seen.arm, seen.time_s, strict=True) if arm.kind == REMOVE}
    found = Estimator(lab.measured(), sampling_s=without[parts[0]]).findings(parts)
    assert "beats_with_sensor" in found.parts[parts[0]].flags
    found = Estimator(lab.measured(), sampling_s=1.13 * alone_s).findings(parts)
    assert not any("beats_with_sensor" in part.flags for part in found.parts.values())


def test_a_first_round_of_few_blocks_has_all_references_with_other_pauses():
    common = commons.detuned(100, [200, 300, 400, 500, 600])
    spread = [common.of(i, 2, 0) for i in range(2)]
    assert {arm.spin_ns for arms in spread for arm in arms if arm.kind == SLOPE} == {200, 300, 400, 500, 600}
    later = [common.of(0, 1, before)[-1].spin_ns for before in range(2, 7)]
    assert sorted(later) == [200, 300, 400, 500, 600]
