"""Experiments on a board whose sensor samples by a clock of its own, as H100s do."""

import numpy as np
import pytest

from covering import fewest
from experiment_lab import Lab
from jouletrace.devices.simulated import SimKernel
from jouletrace.energy.beat import seen_variance
from jouletrace.energy.sampling_rate import Repetition, SamplingRate, sampling_rate
from jouletrace.experiments import off_beat
from jouletrace.experiments.arms import GAPS, PACE, SCREEN, SLOPE, Arm
from jouletrace.experiments.estimate import Estimator
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from test_energy_sampling_rate import readings, swinging

pytestmark = pytest.mark.thorough

RATE_HZ, READOUT_S, WINDOW_S = 1228.6, 0.02, 0.5
UNLUCKY_HZ = 1242.6
"""Of a board on which references stand still with the pause that is chosen without knowing the rate."""
SAMPLING = SamplingRate(RATE_HZ, READOUT_S)

SETTINGS = PlanSettings(budget_s=90, sampling_s=1 / 1230, pace=False)

LAYERED = [
    SimKernel(f"k{i}", 63e-6, 480.0 if i % 2 else 200.0, op=f"op{i}", module=f"m{i}", clocked=0.9) for i in range(12)
]
"""0.79 ms, in which power rises and falls six times."""


def said(period_s, pause_s):
    return float(np.sqrt(seen_variance(np.array([period_s]), WINDOW_S, SAMPLING, pause_s)[0]))


@pytest.mark.parametrize("rate_hz", [1206.6, 1217.8, 1228.6, 1239.2, 1254.0])
def test_the_pause_keeps_references_quiet_and_most_variants_too(rate_hz):
    sampling, added = SamplingRate(rate_hz, READOUT_S), np.array([-0.23, -0.15, -0.08, -0.07, 0.05, 0.1, 0.15])
    pause_s = off_beat.step_pause(0.8e-3, added, WINDOW_S, sampling)
    assert 0 < pause_s <= 0.4e-3
    of_step = np.sqrt(seen_variance(np.array([0.8e-3 + pause_s]), WINDOW_S, sampling, pause_s))[0]
    of_variants = np.sqrt(seen_variance(0.8e-3 * (1 + added) + pause_s, WINDOW_S, sampling, pause_s))
    blind = np.linspace(0.04e-3, 0.4e-3, 200)
    of_any = np.sqrt(seen_variance(0.8e-3 + blind, WINDOW_S, sampling, blind))
    assert of_step < 0.0025 < np.quantile(of_any, 0.75)
    assert np.median(of_variants) < 0.004


def test_a_step_long_against_the_samples_gets_no_pause():
    assert off_beat.step_pause(30e-3, np.array([-0.01, 0.01]), WINDOW_S, SAMPLING) == 0


def test_a_variant_on_the_beat_pauses_a_little_longer_and_another_does_not():
    on_s = 1 / (RATE_HZ - 200)
    more_s = off_beat.variant_more(on_s, 0.25e-3, WINDOW_S, SAMPLING)
    assert 0 < more_s <= 20e-6
    assert said(on_s + more_s, 0.25e-3) < 0.5 * said(on_s, 0.25e-3)
    quiet_s = on_s + more_s
    assert said(quiet_s + off_beat.variant_more(quiet_s, 0.25e-3, WINDOW_S, SAMPLING), 0.25e-3) < 0.004


def test_references_that_tell_what_a_pause_costs_lie_apart_and_off_the_beat():
    others = off_beat.others(0.8e-3, 0.25e-3, WINDOW_S, SAMPLING)
    assert len(others) == 5
    assert np.diff(sorted(others)).min() > 20e-6
    assert min(others) > 0.25e-3
    assert np.ptp(others) > 80e-6
    assert max(said(0.8e-3 + one, one) for one in others) < 0.01


class FreeRunning(Lab):
    """A lab whose windows have the energies that such a sensor tells.

    Simulated boards keep no power within an iteration: how it swings there is put in here, alike for all variants.
    """

    told = True

    def __post_init__(self):
        super().__post_init__()
        self.seen = []
        sampling = self.sampling if self.told else lambda: None
        self.experiment = Experiment(self.step, self.measured, self.settings, sampling=sampling)
        for pause_s in [*np.linspace(0.06e-3, 0.34e-3, 24)]:  # a profile has run windows of its own before
            replays = round(WINDOW_S / (0.8e-3 + pause_s))
            ran = (self.step.paced(pause_s) if pause_s else self.step).replay(replays)
            edges = {"start_ns": ran.start_ns, "end_ns": ran.end_ns, "replays": replays}
            row = {"variant": f"before {pause_s}", "unit": None, "multiplicity": 1.0, "order": len(self.rows)}
            self.rows.append({**row, **edges, "energy_j": 0.2 * replays, "clock_mhz": 1980.0})
            self.see(self.rows[-1], pause_s)

    def see(self, row, pause_s):
        """Readings of a window: how far their mean is off, relative."""
        length_s = (row["end_ns"] - row["start_ns"]) / 1e9
        period_s = length_s / row["replays"]
        paused = pause_s / period_s
        stamps, power = readings(UNLUCKY_HZ, period_s, length_s, row["order"], paused)
        self.seen.append(Repetition(period_s, stamps, power))
        phases = np.linspace(0, period_s, 10_000, endpoint=False)
        return power.mean() / (260 * swinging(phases, period_s, paused).mean()) - 1

    def measured(self):
        for row in self.rows:
            if "energy_j" not in row:
                arm = Arm.read(row["variant"], row["unit"], row["multiplicity"])
                true = self.gpu.truth.caused_energy_j(row["start_ns"], row["end_ns"])
                row["energy_j"] = true * (1 + (self.see(row, arm.spin_ns / 1e9) if arm.kind != GAPS else 0.0))
        return super().measured()

    def sampling(self):
        return sampling_rate(self.seen, READOUT_S, 1230.0)


@pytest.fixture(scope="module")
def labs():
    found = {}
    for told in (True, False):
        kind = FreeRunning if told else type("Blind", (FreeRunning,), {"told": False})
        lab = kind("sim:h100?cap=off&seed=1&given=fast_s:0.00002,kernel_gap_s:0.000001", LAYERED, SETTINGS)
        lab.run()
        found[told] = lab
    return found


def errors(lab, sampling=None):
    """How far parts are off, over the true ones, and how many intervals hold them."""
    parts = [part.id for part in lab.experiment.parts]
    found = Estimator(lab.measured(), sampling=sampling).findings(parts)
    true = lab.in_windows(round(1e9 * found.detuned_s))
    costs = {part: found.parts[part].cost.energy_j for part in parts}
    off = [abs(costs[part].value / true[part] - 1) for part in parts]
    return np.mean(off), [costs[part].low <= true[part] <= costs[part].high for part in parts]


def test_readings_of_the_first_windows_tell_the_rate(labs):
    assert labs[True].experiment._sampled.rate_hz == pytest.approx(UNLUCKY_HZ, abs=0.6)


def test_variants_pause_as_the_step_does_or_a_little_longer(labs):
    arms = [arm for arm in labs[True].arms() if arm and arm.kind not in (GAPS, PACE, SCREEN, SLOPE)]
    pauses = np.array(sorted({arm.spin_ns for arm in arms}))
    assert 1 < len(pauses) <= 6
    assert np.ptp(pauses) <= 25_000


def test_energies_are_nearer_to_the_truth_where_the_rate_is_known(labs):
    known, held = errors(labs[True], labs[True].sampling())
    blind, _ = errors(labs[False])
    assert known < 0.6 * blind
    assert sum(held) >= fewest(len(held))
