"""The states that a simulated GPU jumps between, and the cycle counter that distinguishes them."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.simulator.boards import PRESETS, SimKernel, open_simulated
from jouletrace.simulator.boards.states import STATES, States

KERNELS = [SimKernel("a", 70e-6, 550.0), SimKernel("b", 30e-6, 350.0, clocked=0.3, core=0.5)]
HEAVY = [SimKernel("a", 60e-6, 950.0, clocked=0.9), SimKernel("b", 40e-6, 700.0, clocked=0.2, core=0.4)]
STAYS = "states=100000"
"""A GPU that stays in its first state for longer than any test."""

_, UPPER = STATES


def state_of(gpu):
    """Index of the state that it has been in last."""
    now = gpu.clock.time_ns()
    return int(gpu.truth.real_mhz(now - 10**6, now) > gpu.truth.clock_mhz(now - 10**6, now))


def in_state(index, query="noise=0&cap=off"):
    """A GPU that stays in that state."""
    boards = (open_simulated(f"sim:h100?{query}&{STAYS}&run={run}") for run in range(20))
    return next(gpu for gpu in boards if state_of(gpu) == index)


def counted(gpu, do):
    """Clock in MHz by the cycle counter while the GPU does something, and when it did."""
    cycles, start = gpu.board.cycles()
    do()
    after, end = gpu.board.cycles()
    return (after - cycles) / (end - start) * 1e3, start, end


@pytest.mark.parametrize("preset", PRESETS)
def test_an_ordinary_gpu_counts_the_clock_that_its_driver_reports(preset):
    gpu = open_simulated(f"sim:{preset}?cap=off")
    idle, start, end = counted(gpu, lambda: gpu.board.wait(0.5))
    assert end - start == 500_000_000
    assert idle == pytest.approx(PRESETS[preset].clock_idle_mhz, rel=1e-8)
    busy, start, end = counted(gpu, lambda: gpu.board.run(KERNELS, 3333))
    assert busy == pytest.approx(PRESETS[preset].clock_max_mhz, rel=1e-8)
    assert gpu.truth.real_mhz(start, end) == gpu.truth.clock_mhz(start, end)
    waiting, *_ = counted(gpu, lambda: gpu.board.wait(0.1))
    assert waiting == pytest.approx(PRESETS[preset].clock_max_mhz, rel=1e-8)


def test_under_a_cap_it_counts_what_the_governor_sets_from_tick_to_tick():
    gpu = open_simulated("sim:h100?seed=3")
    clock, start, end = counted(gpu, lambda: gpu.board.run(HEAVY, 20000))
    assert clock == pytest.approx(gpu.truth.clock_mhz(start, end), rel=1e-8)
    assert clock < 1900


def test_a_counter_in_real_time_counts_the_time_that_passes():
    gpu = open_simulated("sim:h100?realtime=1")
    clock, start, end = counted(gpu, lambda: gpu.board.wait(0.05))
    assert end - start >= 50_000_000
    assert clock == pytest.approx(345, rel=1e-6)


def test_in_its_lower_state_a_gpu_is_the_one_without_states_to_the_last_bit():
    lower = in_state(0, "seed=2")
    plain = open_simulated(lower.spec.replace(f"&{STAYS}", ""))
    lives = []
    for gpu in (lower, plain):
        start, end = gpu.board.run(HEAVY, 4000)
        gpu.board.wait(0.5)
        readings = [sample.value.tolist() for source in gpu.sources() for sample in source.poll()]
        lives.append((end - start, gpu.truth.energy_j(start, end), gpu.board.cycles(), readings))
    assert lives[0] == lives[1]


def test_in_its_upper_state_all_takes_less_time_and_more_energy_at_the_clock_that_the_driver_reports_as_before():
    steps = []
    for gpu in (in_state(0), in_state(1)):
        schedule = gpu.board.schedule(KERNELS)
        gpu.board.run(schedule, 100_000)
        clock, start, end = counted(gpu, lambda schedule=schedule, gpu=gpu: gpu.board.run(schedule, 5000))
        assert gpu.truth.clock_mhz(start, end) == pytest.approx(1980, rel=1e-9)
        assert clock == pytest.approx(gpu.truth.real_mhz(start, end), rel=1e-8)
        [told] = [s for source in gpu.sources() for s in source.poll() if s.channel == "clock_sm_mhz"]
        assert told.value == [1980]
        steps.append((clock, (end - start) / 5000, gpu.truth.caused_energy_j(start, end) / 5000))
    clock, time, energy = np.array(steps[1]) / steps[0]
    assert clock == pytest.approx(1.0067, abs=1e-8)
    assert -0.006 < time - 1 < -0.003
    assert 0.008 < energy - 1 < 0.014
    assert 0.01 < energy / time - 1 < 0.02


def test_kernels_and_idle_sum_to_a_window_in_which_the_state_changed():
    gpu = open_simulated("sim:h100?cap=off&states=0.2&seed=1")
    schedule = gpu.board.schedule(KERNELS)
    start, end = gpu.board.run(schedule, 20000)
    real = gpu.truth.real_mhz(start, end)
    assert 1980 * 1.001 < real < 1980 * 1.0057
    step = gpu.truth.step(schedule, start, end)
    assert step.time_s == pytest.approx((end - start) / 1e9 / 20000, rel=1e-5)
    assert step.energy_j == pytest.approx(gpu.truth.caused_energy_j(start, end) / 20000, rel=1e-5)
    assert step.kernel_j.sum() + step.gap_j == pytest.approx(step.energy_j, rel=1e-12)


def test_a_state_lasts_as_long_in_the_mean_as_asked_and_either_is_as_usual():
    states = States(4.0, 0, np.random.default_rng(1))
    seen = np.array([states.at(ms * 1_000_000) for ms in range(0, 8_000_000, 10)])
    changes = np.flatnonzero(np.diff(seen))
    lasted = np.diff(changes) * 0.01
    assert lasted.mean() == pytest.approx(4.0, rel=0.08)
    assert lasted.std() == pytest.approx(4.0, rel=0.15)
    assert seen.mean() == pytest.approx(0.5, abs=0.05)


def test_a_gpu_without_the_key_stays_in_its_lower_state():
    states = States(None, 0, np.random.default_rng(1))
    assert {states.at(second * 10**9) for second in range(100_000)} == {0}


def test_states_are_those_of_the_gpu_and_run_however_it_is_read():
    def life(query, poll_s=None):
        gpu = open_simulated(f"sim:h100?cap=off&states=1&{query}")
        for source in gpu.sources() if poll_s else []:
            gpu.clock.every(poll_s, source.poll)
        start, end = gpu.board.run(KERNELS, 50_000)
        return end - start, gpu.truth.energy_j(start, end), gpu.board.cycles()[0]

    assert life("seed=2") == life("seed=2", poll_s=0.0123)
    assert len({life(query)[2] for query in ("seed=2", "seed=2&run=1", "seed=3")}) == 3


@pytest.mark.parametrize("value", ["0", "-1", "0.05", "nan", "inf", "1e9", "often", ""])
def test_a_state_must_last_a_sensible_time(value):
    with pytest.raises(BadInputError, match=r"^[^\n]*'states'[^\n]*$"):
        open_simulated(f"sim:h100?states={value}")
