"""The simulated GPU: time, energy, heat, clocks and noise, and that its truth is exact."""

import itertools
import time

import numpy as np
import pytest

from jouletrace.devices import Device
from jouletrace.devices.base import RealClock
from jouletrace.errors import BadInputError
from jouletrace.simulator.boards import PRESETS, Schedule, SimKernel, SimulatedGpu, board
from jouletrace.simulator.boards.clock import FOREVER_NS
from jouletrace.simulator.boards.presets import draw
from pace import worked
from step_truth import clock_mhz, mean_step, steady_step

MILD = [SimKernel("a", 60e-6, 300.0), SimKernel("b", 40e-6, 100.0, clocked=0.2, core=0.4)]
HEAVY = [SimKernel("a", 60e-6, 900.0), SimKernel("b", 40e-6, 700.0, clocked=0.2, core=0.4)]


def quiet(preset="h100", **keys):
    """A GPU without noise."""
    return SimulatedGpu(f"sim:{preset}?noise=0" + "".join(f"&{key}={value}" for key, value in keys.items()))


@pytest.mark.thorough
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_device_that_says_simulated(preset):
    gpu = SimulatedGpu(f"sim:{preset}?seed=3")
    assert isinstance(gpu, Device)
    assert gpu.info.simulated
    assert gpu.info.kind == "gpu"
    assert gpu.info.id == f"SIM-{preset}-3"
    assert gpu.info.name.startswith("SIMULATED ")
    assert gpu.processes() == []
    assert gpu.capabilities()[0 if gpu.sensors.ring.usable else 1].available
    gpu.close()


def test_short_names_mean_the_usual_gpu():
    assert SimulatedGpu("sim:h100").info.name == "SIMULATED H100 80GB"
    assert SimulatedGpu("sim:a100").info.id == "SIM-a100-80-0"
    assert SimulatedGpu("sim:h200").info.id == "SIM-h200-141-0"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sim:h900", "v100, a100-40, a100-80, h100-80, h200-141"),
        ("sim:", "h100-80"),
        ("h100", "sim:NAME"),
        ("sim:h100?sede=1", "seed"),
        ("sim:h100?seed", "seed=VALUE"),
        ("sim:h100?seed=1&seed=2", "one value"),
        ("sim:h100?seed=-1", "whole number"),
        ("sim:h100?noise=nan", "not a finite number"),
        ("sim:h100?cap=50", "200..700"),
        ("sim:h100?cap=900", "200..700"),
        ("sim:h100?sensor=magic", "sampled"),
        ("sim:h100?load=2", "SECONDS:WATTS"),
        ("sim:h100?load=0:100", "lasts 0.001"),
        ("sim:h100?realtime=maybe", "1 or 0"),
    ],
)
def test_a_bad_spec_is_refused_in_one_line(spec, says):
    with pytest.raises(BadInputError, match=r"^[^\n]+$") as error:
        SimulatedGpu(spec)
    assert says in str(error.value)


def test_a_locked_clock_slows_what_computes_and_saves_power_until_idle_power_outweighs_it():
    def iteration(mhz, clocked, core):
        gpu = quiet()
        gpu.lock_clock(mhz)
        assert gpu.clock_mhz() == mhz, "of an idle GPU, too"
        start, end = gpu.board.run([SimKernel("a", 1e-3, 400.0, clocked=clocked, core=core)], 1000)
        assert clock_mhz(gpu, start, end) == pytest.approx(mhz)
        return (end - start) / 1e12, gpu.truth.energy_j(start, end) / 1000

    computes, moves = ({mhz: iteration(mhz, *shares) for mhz in (1980.0, 1200.0, 300.0)} for shares in ((1, 1), (0, 0)))
    seconds, joules = ({mhz: one[n] for mhz, one in computes.items()} for n in (0, 1))
    assert seconds[1200.0] / seconds[1980.0] == pytest.approx(1980 / 1200, rel=0.01)
    assert joules[1200.0] < joules[1980.0] < joules[300.0], "the least is between the ends"
    assert moves[1200.0] == pytest.approx(moves[1980.0], rel=0.01)


def test_a_locked_clock_is_lowered_by_the_power_cap_and_comes_back_when_it_is_released():
    gpu = quiet()
    gpu.lock_clock(1800.0)
    start, end = gpu.board.run(HEAVY, 10_000)
    assert 600 < clock_mhz(gpu, start + (end - start) // 2, end) < 1700
    gpu.lock_clock(None)
    gpu.clock_mhz()
    start, end = gpu.board.run(MILD, 20_000)
    assert clock_mhz(gpu, (start + end) // 2, end) == pytest.approx(1980, rel=0.001)


def test_the_same_seed_is_the_same_gpu_and_run():
    def life(spec):
        gpu = SimulatedGpu(spec)
        start, end = gpu.board.run(HEAVY, 5000)
        return end - start, gpu.truth.energy_j(start, end)

    assert life("sim:h100?seed=5") == life("sim:h100?seed=5")
    assert life("sim:h100?seed=5") != life("sim:h100?seed=6")
    assert life("sim:h100?seed=5") != life("sim:h100?seed=5&run=1")


def test_another_run_is_the_same_gpu_with_other_noise():
    first, second = SimulatedGpu("sim:h100?seed=5"), SimulatedGpu("sim:h100?seed=5&run=1")
    assert first.truth.parameters() == second.truth.parameters()


def test_parameters_lie_in_the_ranges_of_the_preset_and_differ():
    for preset in PRESETS.values():
        drawn = [draw(preset, seed) for seed in range(20)]
        for name, (low, high) in preset.ranges.items():
            values = [getattr(parameters, name) for parameters in drawn]
            assert low <= min(values) < max(values) <= high, name


def test_energies_of_adjacent_windows_sum_exactly():
    gpu = SimulatedGpu("sim:h100")
    start, _ = gpu.board.run(HEAVY, 3000)
    gpu.board.wait(0.5)
    end = gpu.clock.time_ns()
    cuts = np.sort(np.random.default_rng(0).integers(start, end, 200))
    edges = [start, *cuts.tolist(), end]
    for energy in (gpu.truth.energy_j, gpu.truth.caused_energy_j):
        parts = sum(energy(a, b) for a, b in itertools.pairwise(edges))
        assert parts == pytest.approx(energy(start, end), rel=1e-12)


def test_one_nanosecond_of_a_steady_load_has_the_energy_of_one_nanosecond():
    gpu = quiet()
    start, end = gpu.board.load(400.0, 1.0)
    middle = (start + end) // 2
    # far along in float64 joules a nanosecond is near the resolution: 1e-13 J of 1e3 J
    assert gpu.truth.energy_j(middle, middle + 1) == pytest.approx(400e-9, rel=1e-3)
    assert gpu.truth.energy_j(middle, middle + 1000) == pytest.approx(400e-6, rel=1e-4)


def test_a_window_outside_of_what_was_simulated_is_refused():
    gpu = quiet()
    now = gpu.clock.time_ns()
    with pytest.raises(ValueError, match="not within"):
        gpu.truth.energy_j(now - 10**9, now + 1)
    with pytest.raises(ValueError, match="not within"):
        gpu.truth.energy_j(now, now - 1)


def test_the_energy_of_a_run_is_that_of_its_kernels():
    gpu = quiet()
    gpu.board.hold_context()
    n = 2000
    start, end = gpu.board.run(Schedule(MILD, gap_s=1e-6, launch_gap_s=5e-6), n)
    # 100 µs of kernels, one pause, one launch
    assert (end - start) / n == pytest.approx(106e3, abs=1)
    idle = (gpu.truth.idle_w(start) + gpu.truth.idle_w(end)) / 2
    active = n * sum(kernel.active_j for kernel in MILD)
    caused = gpu.truth.caused_energy_j(start, end)
    assert caused == pytest.approx(active + idle * (end - start) / 1e9, rel=1e-4)
    # the tail falls outside of the run
    drawn = gpu.truth.energy_j(start, end)
    gpu.board.wait(0.1)
    tail = gpu.truth.energy_j(end, gpu.clock.time_ns()) - gpu.truth.idle_w(end) * 0.1
    assert 0.1 < caused - drawn < 5
    assert tail == pytest.approx(caused - drawn, rel=0.05)


def test_caused_and_drawn_energy_agree_in_steady_state():
    gpu = quiet()
    start, end = gpu.board.run(MILD, 10000)
    a, b = start + 300_000_000, end - 100_000_000
    assert gpu.truth.caused_energy_j(a, b) == pytest.approx(gpu.truth.energy_j(a, b), rel=1e-5)


def test_reading_the_gpu_changes_nothing():
    def life(poll_s):
        gpu = SimulatedGpu("sim:h100?seed=2")
        for source in gpu.sources() if poll_s else []:
            gpu.clock.every(poll_s, source.poll)
        start, end = gpu.board.run(HEAVY, 4000)
        gpu.board.wait(0.5)
        return end - start, gpu.truth.energy_j(start, end)

    assert life(0.0123) == life(None)


def test_idle_levels_with_and_without_a_context():
    gpu = SimulatedGpu("sim:h100")
    board, clock = gpu.board, gpu.clock

    def mean_w(seconds):
        start = clock.time_ns()
        board.wait(seconds)
        return gpu.truth.energy_j(start, clock.time_ns()) / seconds

    assert 68 < mean_w(2) < 79
    board.hold_context()
    assert 115 < mean_w(2) < 135
    board.release_context()
    board.wait(0.2)
    assert 68 < mean_w(1) < 79


@pytest.mark.thorough
def test_context_idle_is_higher_on_a_hot_die_and_falls_as_it_cools():
    gpu = quiet()
    gpu.board.hold_context()
    gpu.board.wait(20)
    cold = gpu.truth.idle_w(gpu.clock.time_ns())
    gpu.board.load(690.0, 20)
    end = gpu.clock.time_ns()
    assert gpu.truth.temperature_c(end) > 50
    gpu.board.wait(0.5)
    hot = gpu.truth.energy_j(end + 300_000_000, end + 500_000_000) / 0.2
    assert hot > cold + 8
    gpu.board.wait(40)
    now = gpu.clock.time_ns()
    assert gpu.truth.energy_j(now - 10**9, now) == pytest.approx(cold, abs=1.0)


def test_the_cap_holds_power_after_an_overshoot():
    gpu = SimulatedGpu("sim:h100")
    gpu.board.hold_context()
    gpu.board.wait(1)
    start, end = gpu.board.run(HEAVY, 60000)
    truth = gpu.truth
    assert truth.energy_j(start + 30_000_000, start + 60_000_000) / 0.03 > 740
    assert truth.energy_j(start + 400_000_000, end) / ((end - start) / 1e9 - 0.4) == pytest.approx(700, rel=0.015)
    assert 1300 < clock_mhz(gpu, start + 400_000_000, end) < 1900
    assert (end - start) / 60000 > 1.05 * 100e3


def test_a_lower_cap_slows_the_gpu_and_no_cap_does_not():
    def period_and_power(cap):
        gpu = quiet(cap=cap)
        start, end = gpu.board.run(HEAVY, 20000)
        middle = (start + end) // 2
        return (end - start) / 20000, gpu.truth.energy_j(middle, end) * 1e9 / (end - middle)

    free, capped, low = (period_and_power(cap) for cap in ("off", 700, 400))
    assert free[1] > 800
    assert capped[1] == pytest.approx(700, rel=0.01)
    assert low[1] == pytest.approx(400, rel=0.01)
    assert free[0] < capped[0] < low[0]


def test_removing_work_under_the_cap_speeds_up_the_rest():
    gpu = quiet()
    board = gpu.board
    both = steady_step(gpu, board.schedule(HEAVY))
    without = steady_step(gpu, board.schedule(HEAVY[1:]))
    assert without.kernel_s[0] < 0.99 * both.kernel_s[1]
    assert without.clock_mhz > both.clock_mhz


def test_the_steady_state_is_what_a_long_run_settles_to():
    gpu = quiet()
    schedule = gpu.board.schedule(HEAVY)
    start, end = gpu.board.run(schedule, 100000)
    start += 2_000_000_000
    seen = mean_step(gpu, schedule, start, end)
    steady = steady_step(gpu, schedule, gpu.truth.temperature_c(end))
    assert seen.time_s == pytest.approx(steady.time_s, rel=0.01)
    assert seen.energy_j == pytest.approx(steady.energy_j, rel=0.01)
    assert seen.clock_mhz == pytest.approx(steady.clock_mhz, rel=0.02)


def test_kernels_and_idle_sum_to_the_energy_of_the_window():
    gpu = SimulatedGpu("sim:h100?seed=4")
    schedule = gpu.board.schedule(HEAVY)
    n = 20000
    start, end = gpu.board.run(schedule, n)
    step = mean_step(gpu, schedule, start, end)
    assert step.time_s == pytest.approx((end - start) / 1e9 / n, rel=1e-3)
    assert step.kernel_j.sum() <= step.energy_j
    assert step.energy_j == pytest.approx(gpu.truth.caused_energy_j(start, end) / n, rel=1e-3)
    assert step.kernel_s.sum() + step.gap_s == pytest.approx(step.time_s, rel=1e-12)


def test_the_host_hides_behind_long_kernels_and_shows_behind_short_ones():
    long, short = [SimKernel("k", 50e-6, 100.0)] * 10, [SimKernel("k", 5e-6, 100.0)] * 10
    assert Schedule(long, host_s=10e-6).at(1.0, 1.0).period_s == pytest.approx(500e-6)
    assert Schedule(short, host_s=10e-6).at(1.0, 1.0).period_s == pytest.approx(100e-6)
    mixed = Schedule([long[0], *short], host_s=10e-6).at(1.0, 1.0)
    # eleven launches; the long kernel overlaps with the launches of those behind it
    assert mixed.period_s == pytest.approx(110e-6)
    assert mixed.busy_s == pytest.approx(100e-6)


def test_a_slower_clock_lengthens_a_kernel_by_the_share_that_is_clocked():
    line = Schedule([SimKernel("k", 100e-6, 100.0, clocked=0.5, core=0.5)]).at(0.5, 0.6)
    assert line.period_s == pytest.approx(150e-6)
    assert line.active_j == pytest.approx(0.01 * (0.5 + 0.5 * 0.6))


def test_iterations_are_timed_one_by_one_and_sum_to_the_run():
    gpu = SimulatedGpu("sim:h100?seed=1")
    each = gpu.board.run_timed(HEAVY, 3000)
    assert each.shape == (3000,)
    assert 115e-6 < np.median(each) < 140e-6
    # the cap takes hold in between
    assert np.median(each[-500:]) > 1.02 * np.median(each[:200])
    start, end = gpu.board.run(HEAVY, 3000)
    assert each.sum() == pytest.approx((end - start) / 1e9, rel=0.1)


def test_timed_iterations_without_noise_are_the_period_of_the_schedule():
    gpu = quiet()
    schedule = Schedule(MILD, gap_s=1e-6, launch_gap_s=5e-6)
    assert np.median(gpu.board.run_timed(schedule, 500)) == pytest.approx(106e-6, abs=1e-6)


def test_load_noise_is_autocorrelated():
    gpu = SimulatedGpu("sim:h100?seed=1")
    start, end = gpu.board.load(500.0, 20.0)
    edges = np.arange(start + 10**9, end, 10_000_000)
    power = np.array([gpu.truth.energy_j(int(a), int(a) + 10_000_000) for a in edges[:-1]]) / 0.01
    off = power - power.mean()
    assert 0.5 < off.std() < 8
    assert np.mean(off[1:] * off[:-1]) / off.var() > 0.5
    assert abs(np.mean(off[100:] * off[:-100]) / off.var()) < 0.6


@pytest.mark.thorough
def test_runs_on_one_gpu_differ_by_a_little():
    energies = []
    for run in range(12):
        gpu = SimulatedGpu(f"sim:h100?seed=1&run={run}")
        start, end = gpu.board.run(MILD, 20000)
        energies.append(gpu.truth.caused_energy_j(start, end))
    spread = np.std(energies) / np.mean(energies)
    assert 0.0005 < spread < 0.01


def test_timers_are_called_at_their_pace_while_a_caller_sleeps_or_works():
    gpu = quiet()
    begin = gpu.clock.time_ns()
    seen = []
    timer = gpu.clock.every(0.1, lambda: seen.append(gpu.clock.time_ns() - begin))
    gpu.clock.sleep(0.35)
    gpu.board.run(MILD, 5000)
    passed = gpu.clock.time_ns() - begin
    assert passed > 850_000_000
    assert seen == [100_000_000 * (i + 1) for i in range(passed // 100_000_000)]
    timer.cancel()
    timer.cancel()
    count = len(seen)
    gpu.clock.sleep(1)
    assert len(seen) == count


def test_a_timer_must_not_let_time_pass():
    gpu = quiet()
    gpu.clock.every(0.1, lambda: gpu.clock.sleep(1))
    with pytest.raises(RuntimeError, match="must not let time pass"):
        gpu.clock.sleep(1)
    with pytest.raises(ValueError, match="positive"):
        gpu.clock.every(0, lambda: None)


def test_virtual_time_starts_at_a_fixed_epoch_and_sleeping_is_exact():
    gpu = quiet()
    assert gpu.clock.virtual
    assert gpu.clock.time_ns() == 1_767_225_600 * 10**9
    gpu.clock.sleep(1.234567891)
    assert gpu.clock.monotonic_ns() == 1_234_567_891
    gpu.clock.sleep(-1)
    assert gpu.clock.monotonic_ns() == 1_234_567_891


def test_a_plan_in_the_spec_repeats_while_no_one_works():
    gpu = quiet(load="2:120,1:600")
    begin = gpu.clock.time_ns()  # a whole number of 3 s since 1970
    gpu.board.wait(6)
    for cycle in range(2):
        start = begin + cycle * 3 * 10**9
        assert gpu.truth.energy_j(start + 10**9, start + 2 * 10**9) == pytest.approx(120, rel=0.01)
        assert gpu.truth.energy_j(start + 2_300_000_000, start + 3 * 10**9) == pytest.approx(420, rel=0.01)


@pytest.mark.parametrize(("watts", "seconds"), [(0, 1), (-5, 1), (float("nan"), 1), (100, 0), (100, float("inf"))])
def test_a_load_must_be_positive_and_end(watts, seconds):
    with pytest.raises(BadInputError, match="must be positive"):
        quiet().board.load(watts, seconds)


def test_bad_kernels_and_counts_are_refused():
    with pytest.raises(BadInputError, match="time_s"):
        SimKernel("k", 0.0, 1.0)
    with pytest.raises(BadInputError, match="active_w"):
        SimKernel("k", 1e-6, -1.0)
    with pytest.raises(BadInputError, match="clocked"):
        SimKernel("k", 1e-6, 1.0, clocked=1.5)
    with pytest.raises(BadInputError, match="at least 1"):
        quiet().board.run(MILD, 0)
    with pytest.raises(BadInputError, match="needs a kernel"):
        Schedule([])


@pytest.mark.thorough
def test_twenty_seconds_of_gpu_time_are_cheap():
    gpu = SimulatedGpu("sim:h100")
    gpu.clock.every(0.02, gpu.sources()[0].poll)
    kernels = [SimKernel(f"k{i}", 20e-6, 800.0) for i in range(300)]
    with worked() as work:
        gpu.board.run(kernels, 1600)
        gpu.board.wait(10)
    assert work.loops < 30


def test_real_time_follows_the_wall_clock():
    gpu = SimulatedGpu("sim:h100?realtime=1&noise=0&load=3600:300")
    assert not gpu.clock.virtual
    start = time.time_ns()
    gpu.board.wait(0.2)
    end = time.time_ns()
    assert end - start >= 200_000_000
    gpu.board.catch_up()
    assert gpu.truth.energy_j(start, end) == pytest.approx(300 * (end - start) / 1e9, rel=0.02)


def test_work_in_real_time_takes_as_long_as_it_says():
    gpu = SimulatedGpu("sim:h100?realtime=1")
    before = time.time_ns()
    start, end = gpu.board.load(400.0, 0.2)
    assert before <= start
    assert end - start == pytest.approx(200_000_000, abs=2)
    assert time.time_ns() >= end


class Jumping(RealClock):
    """Real time that passes at once."""

    now_ns = 1_793_491_200 * 10**9

    def time_ns(self):
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * 1e9)


def test_real_time_forgets_its_past_and_reads_the_same(monkeypatch):
    monkeypatch.setattr(board, "RealClock", Jumping)
    given, gpus = [], []
    for past_ns in (20 * 10**9, FOREVER_NS):
        monkeypatch.setattr(board, "REAL_PAST_NS", past_ns)
        gpu = SimulatedGpu("sim:h100?realtime=1&load=0.7:300,0.3:90")
        sources, rows = gpu.sources(), []
        for seconds in [0.5] * 80 + [30.0, 0.5, 0.5]:
            gpu.clock.sleep(seconds)
            rows += [some.value.tolist() for source in sources for some in source.poll()]
        given.append(rows)
        gpus.append(gpu)
    assert given[0] == given[1]
    bounded, whole = (gpu.board.engine.trace for gpu in gpus)
    assert whole.since_ns == whole.start_ns == bounded.start_ns
    assert 20e9 < bounded.end_ns - bounded.since_ns < 62e9
    with pytest.raises(ValueError, match="not within the simulated time"):
        gpus[0].truth.energy_j(bounded.start_ns, bounded.end_ns)


class Delayed(Jumping):
    """Real time of a host that lets this process wait for 80 ms after each look at it."""

    def time_ns(self):
        self.now_ns += 80_000_000
        return self.now_ns


def test_a_delayed_reader_reads_no_power_that_was_not_simulated(monkeypatch):
    monkeypatch.setattr(board, "RealClock", Delayed)
    gpu = SimulatedGpu("sim:h100?realtime=1&load=100:300")
    sources, watts = gpu.sources(), []
    for _ in range(30):
        gpu.clock.sleep(0.5)
        watts += [w for source in sources for some in source.poll() if some.channel == "power_w" for w in some.value]
    assert len(watts) > 500
    assert min(watts) > 250


def readings(spec):
    """Contents of a GPU's own record after some work, and when each reading was stamped."""
    gpu = SimulatedGpu(spec)
    source = gpu.sources()[0]
    gpu.board.load(400.0, 1.3)
    gpu.clock.sleep(0.7)
    found = [one for one in source.poll() if one.channel == "power_w"]
    return np.concatenate([one.time_ns for one in found]), np.concatenate([one.value for one in found])


@pytest.mark.parametrize("spec", ["sim:h100?seed=3", "sim:a100-80?seed=1&load=0.31:200,0.2:90", "sim:v100"])
def test_another_start_of_virtual_time_changes_nothing_but_the_stamps(monkeypatch, spec):
    monkeypatch.setenv("JOULETRACE_SIMULATED_START", "1767225600")
    stamps, watts = readings(spec)
    monkeypatch.setenv("JOULETRACE_SIMULATED_START", "1791234567")
    later, others = readings(spec)
    assert np.array_equal(later - stamps, np.full(len(stamps), (1791234567 - 1767225600) * 10**9))
    assert np.array_equal(watts, others)


def test_virtual_time_starts_in_the_present(monkeypatch):
    monkeypatch.delenv("JOULETRACE_SIMULATED_START")
    before = time.time_ns() // 10**9
    start = SimulatedGpu("sim:h100").clock.time_ns() // 10**9
    assert before <= start <= time.time_ns() // 10**9


@pytest.mark.parametrize("start", ["", "yesterday", "-5", "9" * 20])
def test_a_start_that_is_none_is_refused(monkeypatch, start):
    monkeypatch.setenv("JOULETRACE_SIMULATED_START", start)
    with pytest.raises(BadInputError, match="JOULETRACE_SIMULATED_START"):
        SimulatedGpu("sim:h100")


def test_schedules_in_turn_run_as_each_of_them_does():
    gpu, apart = quiet(), quiet()
    once, twice = Schedule(MILD, gap_s=1e-6, launch_gap_s=5e-6), Schedule([*MILD, *MILD], gap_s=1e-6, launch_gap_s=5e-6)
    order = [once, twice, once, once, twice] * 20
    start = gpu.clock.time_ns()
    edges = gpu.board.run_traced(order)
    begin = apart.clock.time_ns()
    each = [np.diff(apart.board.run(one, 1)) for one in order]
    assert edges.shape == (sum(len(one.kernels) for one in order), 2)
    assert (np.diff(edges.ravel()) >= 0).all()
    assert edges[-1, 1] - start == pytest.approx(np.sum(each), abs=len(order))  # each was rounded to a nanosecond
    ends = np.cumsum([len(one.kernels) for one in order])
    assert edges[ends - 1, 1] - start == pytest.approx(np.cumsum(each), abs=len(order))
    caused, expected = (
        one.truth.caused_energy_j(since, one.clock.time_ns()) for one, since in ((gpu, start), (apart, begin))
    )
    assert caused == pytest.approx(expected, rel=1e-5)
