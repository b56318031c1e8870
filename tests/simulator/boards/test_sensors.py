"""The sensors of simulated GPUs: what they show of the truth, and what they hide."""

from dataclasses import asdict

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.run import CHANNEL_UNITS, POWER
from jouletrace.simulator.boards import Schedule, SimKernel, SimulatedGpu
from step_truth import read_at


def source(gpu, channel):
    """A new source of the GPU that yields ``channel``."""
    return next(s for s in gpu.sources() if channel in [c.name for c in s.channels])


def record(gpu, channel=POWER, poll_s=None):
    """Start recording a channel; call what is returned for stamps and values so far."""
    reader = source(gpu, channel)
    found = []
    reader.poll()
    gpu.clock.every(poll_s or reader.interval_s, lambda: found.extend(reader.poll()))

    def so_far():
        found.extend(reader.poll())
        chosen = [samples for samples in found if samples.channel == channel]
        times, values = np.concatenate([s.time_ns for s in chosen]), np.concatenate([s.value for s in chosen])
        # a polled reading keeps its value until the next
        new = np.append(True, np.diff(values) != 0) if "SAMPLES" not in reader.channels[0].source else slice(None)
        return times[new], values[new]

    return so_far


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("preset", "power", "sensor"),
    [
        ("v100", "SAMPLES", "volta"),
        ("a100-40", "PowerUsage", "ampere_datacenter"),
        ("a100-80", "PowerUsage", "ampere_datacenter"),
        ("h100", "SAMPLES", "hopper"),
        ("h200", "SAMPLES", "hopper"),
    ],
)
def test_the_best_power_source_comes_first_and_channels_have_known_names(preset, power, sensor):
    gpu = SimulatedGpu(f"sim:{preset}")
    sources = gpu.sources()
    assert sources[0].channels[0].name == POWER
    assert power in sources[0].channels[0].source
    assert sources[0].channels[0].sensor == sensor
    names = [channel.name for s in sources for channel in s.channels]
    assert len(names) == len(set(names))
    assert set(names) <= set(CHANNEL_UNITS)
    assert {"energy_counter_j", "clock_sm_mhz", "temperature_c", "throttle_bits"} <= set(names)
    assert ("power_average_w" in names) == (preset in ("h100", "h200"))


def test_channels_report_nominal_values_and_leak_no_hidden_parameter():
    gpus = [SimulatedGpu(f"sim:h100?seed={seed}&gain=1") for seed in range(3)]
    stated = [[asdict(c) | {"device": ""} for s in gpu.sources() for c in s.channels] for gpu in gpus]
    assert stated[0] == stated[1] == stated[2]
    for channel in stated[0]:
        assert channel["origin"] == "nominal"
        assert "SIMULATED" in channel["source"]
        assert channel["delay_s"] is None
    details = [gpu.info.details | {"seed": 0} for gpu in gpus]
    assert details[0] == details[1] == details[2]


def test_the_record_is_gapless_jittered_and_in_order():
    gpu = SimulatedGpu("sim:h100")
    so_far = record(gpu)
    gpu.board.load(500.0, 10.0)
    stamps, values = so_far()
    apart = np.diff(stamps) / 1e6
    assert len(stamps) == pytest.approx(500, abs=10)
    assert apart.min() > 5
    assert apart.max() < 36
    assert apart.std() > 2
    assert np.median(apart) == pytest.approx(20, abs=0.5)
    assert np.all(np.round(values, 3) == values)
    assert np.all(stamps % 1000 == 0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_record_integrates_to_the_truth(seed):
    gpu = SimulatedGpu(f"sim:h100?seed={seed}")
    so_far = record(gpu)
    start = gpu.clock.time_ns()
    for _ in range(10):
        gpu.board.load(500.0, 0.7)
        gpu.board.wait(0.6)
    gpu.board.wait(0.5)
    stamps, values = so_far()
    inside = (stamps >= start) & (stamps <= gpu.clock.time_ns())
    t, v = stamps[inside], values[inside]
    integral = np.trapezoid(v, (t - t[0]) / 1e9)
    assert integral == pytest.approx(gpu.truth.energy_j(int(t[0]), int(t[-1])), rel=0.01)


def test_the_ring_loses_what_is_not_read_in_time_without_a_word():
    gpu = SimulatedGpu("sim:h100")
    reader = source(gpu, POWER)
    assert len(reader.poll()[0].time_ns) == pytest.approx(119, abs=1)
    gpu.board.wait(1.0)
    assert len(reader.poll()[0].time_ns) == pytest.approx(50, abs=2)
    gpu.board.wait(10.0)
    late = reader.poll()[0]
    assert len(late.time_ns) == 119
    assert gpu.clock.time_ns() - late.time_ns[0] < 2.45e9
    assert reader.poll() == []


def test_two_sources_read_the_same_ring_each_at_its_pace():
    gpu = SimulatedGpu("sim:h100")
    first, second = source(gpu, POWER), source(gpu, POWER)
    gpu.board.wait(0.5)
    first.poll()
    gpu.board.wait(0.5)
    a, b = first.poll()[0], second.poll()[0]
    assert len(b.time_ns) > len(a.time_ns)
    assert np.array_equal(b.time_ns[-len(a.time_ns) :], a.time_ns)
    assert np.array_equal(b.value[-len(a.value) :], a.value)


def test_a_step_looks_in_the_record_as_on_the_recorded_gpu():
    # recorded on an H100: from 122 W to 469, 851, 911 W at 11, 31, 55 ms, before the cap acts at 920 W;
    # from 690 W to 437, 180, 136, 127 W at 11, 31, 51, 85 ms
    up, down = [], []
    for seed in range(6):
        gpu = SimulatedGpu(f"sim:h100?seed={seed}&cap=off&noise=0.2")
        gpu.board.hold_context()
        gpu.board.wait(1)
        start, end = gpu.board.load(910.0, 0.2)
        gpu.board.wait(0.3)
        idle = gpu.truth.idle_w(start)
        at = start + np.array([11, 31, 55]) * 1_000_000
        up.append((read_at(gpu, POWER, at) - idle) / (910 - idle))
        at = end + np.array([11, 31, 51, 85]) * 1_000_000
        down.append((read_at(gpu, POWER, at) - gpu.truth.idle_w(end)) / (910 - idle))
    assert np.mean(up, axis=0) == pytest.approx([0.435, 0.914, 0.989], abs=0.04)
    assert np.mean(down, axis=0) == pytest.approx([0.55, 0.094, 0.016, 0.005], abs=0.04)


@pytest.mark.thorough
def test_under_the_cap_the_record_wanders_as_on_the_recorded_gpu():
    kernels = [SimKernel("gemm", 600e-6, 870.0, clocked=0.9, core=0.9), SimKernel("add", 400e-6, 600.0, clocked=0.2)]
    deviations, next_ones = [], []
    for seed in range(4):
        gpu = SimulatedGpu(f"sim:h100?seed={seed}")
        gpu.board.run(kernels, 1000)
        so_far = record(gpu)
        gpu.board.run(kernels, 12000)
        values = so_far()[1]
        off = values - values.mean()
        deviations.append(off.std())
        next_ones.append([np.mean(off[lag:] * off[:-lag]) / off.var() for lag in (1, 3)])
    assert 35 < np.mean(deviations) < 55
    assert np.mean(next_ones, axis=0) == pytest.approx([0.81, 0.5], abs=0.12)


def test_the_long_average_of_a_short_burst_reads_far_too_low():
    gpu = SimulatedGpu("sim:h100")
    gpu.board.hold_context()
    gpu.board.wait(2)
    so_far = record(gpu, "power_average_w")
    gpu.board.load(600.0, 0.2)
    gpu.board.wait(2)
    values = so_far()[1]
    assert values.max() < 250


def test_the_instant_reading_sees_a_short_window_now_and_then():
    gpu = SimulatedGpu("sim:h100?noise=0")
    so_far = record(gpu, "power_instant_w")
    for _ in range(40):
        gpu.board.load(500.0, 0.087)
        gpu.board.wait(0.091)
    stamps, values = so_far()
    assert np.median(np.diff(stamps)) == pytest.approx(1e8, rel=0.1)
    # it catches highs, lows and mixtures
    assert values.max() > 480
    assert values.min() < 150
    assert np.sum((values > 200) & (values < 400)) > 5


@pytest.mark.thorough
def test_the_sparse_sensor_leaves_most_of_the_time_unseen():
    gpu = SimulatedGpu("sim:a100?noise=0")
    so_far = record(gpu)
    gpu.board.hold_context()
    reads = []
    for i in range(60):
        gpu.board.wait(0.5)
        start, _ = gpu.board.load(300.0, 0.02)
        gpu.board.wait(0.2 + 0.0017 * i)
        stamps, values = so_far()
        near = (stamps > start) & (stamps < start + 150_000_000)
        reads.append(values[near].max() > 100)
    seen = np.mean(reads)
    # a 20 ms burst and a window of about 22 ms every 100 ms
    assert 0.2 < seen < 0.65


def test_the_energy_counter_is_a_true_integral_in_steps():
    gpu = SimulatedGpu("sim:h100?noise=0")
    gpu.board.hold_context()
    gpu.board.wait(1)
    so_far = record(gpu, "energy_counter_j", poll_s=0.005)
    gpu.board.load(500.0, 5.0)
    stamps, values = so_far()
    assert np.median(np.diff(stamps)) == pytest.approx(1e8, rel=0.06)
    assert np.all(np.diff(values) > 0)
    assert np.allclose(values * 1000, np.round(values * 1000), atol=1e-3)
    # from one of its steps to another it reports the truth, to within a poll
    truth = gpu.truth.energy_j(int(stamps[10]), int(stamps[-2]))
    assert values[-2] - values[10] == pytest.approx(truth, rel=2e-3)


def test_the_counter_can_read_nothing_over_a_short_window():
    gpu = SimulatedGpu("sim:h100")
    reader = source(gpu, "energy_counter_j")
    changes = []
    for _ in range(40):
        gpu.board.load(400.0, 0.013)
        before = reader.poll()[0].value
        gpu.board.load(400.0, 0.04)
        changes.append(bool(reader.poll()[0].value != before))
    assert 0 < sum(changes) < 40


@pytest.mark.thorough
def test_gain_is_hidden_within_five_percent_and_common_to_all_power_channels():
    ratios = []
    for seed in range(6):
        gpu = SimulatedGpu(f"sim:h100?seed={seed}&gain=1&noise=0")
        gpu.board.hold_context()
        gpu.board.wait(1)
        readers = {name: record(gpu, name) for name in (POWER, "power_average_w", "power_instant_w")}
        counter = record(gpu, "energy_counter_j", poll_s=0.005)
        gpu.board.load(500.0, 4.0)
        seen = [readers[name]()[1][-1] / 500.0 for name in readers]
        stamps, values = counter()
        seen.append((values[-2] - values[-12]) / (stamps[-2] - stamps[-12]) * 1e9 / 500.0)
        assert np.ptp(seen) < 0.01
        ratios.append(np.mean(seen))
    assert 0.94 < min(ratios) < 0.985 or 1.015 < max(ratios) < 1.06
    assert max(ratios) - min(ratios) > 0.01


def test_without_asking_there_is_no_gain_error():
    gpu = SimulatedGpu("sim:h100?seed=3&noise=0")
    so_far = record(gpu)
    gpu.board.load(500.0, 2.0)
    assert so_far()[1][-5:] == pytest.approx(500.0, rel=2e-3)


@pytest.mark.parametrize("rate_hz", [1195.0, 1230.0, 1253.0])
def test_a_sampled_sensor_sees_one_phase_of_a_step_held_at_its_rate_and_the_mean_of_another(rate_hz):
    def readings(period_s):
        gpu = SimulatedGpu(f"sim:h100?noise=0&seed=1&sensor=sampled&cap=off&given=sample_rate_hz:{rate_hz}")
        halves = [SimKernel("high", period_s / 2, 500.0), SimKernel("low", period_s / 2, 20.0)]
        _, end = gpu.board.run(Schedule(halves), round(0.5 / period_s))
        mean = gpu.truth.energy_j(end - 300_000_000, end) / 0.3
        return read_at(gpu, POWER, end - np.arange(15) * 20_000_000 - 5_000_000) - mean

    held = readings(1 / rate_hz)
    assert np.ptp(held) < 15  # each reports of the same phase
    assert abs(held.mean()) > 50
    assert np.ptp(readings(1 / (rate_hz + 5))) > 200  # a alias of 200 ms
    assert np.abs(readings(1.3 / rate_hz)).max() < 40


def test_state_shows_clocks_heat_throttling_and_use():
    gpu = SimulatedGpu("sim:h100")
    reader = source(gpu, "clock_sm_mhz")

    def state():
        return {samples.channel: float(samples.value[0]) for samples in reader.poll()}

    deep = state()
    assert deep["clock_sm_mhz"] == 345
    assert deep["utilization_gpu_pct"] == 0
    assert int(deep["throttle_bits"]) & 0x1
    gpu.board.hold_context()
    gpu.board.wait(1)
    held = state()
    assert held["clock_sm_mhz"] == 1980
    assert held["memory_used_bytes"] > deep["memory_used_bytes"]
    seen = []
    gpu.clock.every(0.1, lambda: seen.append(state()))
    gpu.board.load(900.0, 5.0)
    busy = seen[-2]
    assert busy["utilization_gpu_pct"] == 100
    assert np.mean([s["clock_sm_mhz"] for s in seen[10:-1]]) < 1900
    assert any(int(s["throttle_bits"]) & 0x4 for s in seen)
    assert not int(busy["throttle_bits"]) & 0x1
    assert busy["temperature_c"] > held["temperature_c"]
    assert busy["temperature_c"] == int(busy["temperature_c"])


def test_in_real_time_the_sensors_show_the_present_and_not_the_future():
    gpu = SimulatedGpu("sim:h100?realtime=1&load=3600:250")
    reader = source(gpu, POWER)
    begin = gpu.clock.time_ns()
    first = reader.poll()[0]
    assert len(first.time_ns) == pytest.approx(119, abs=1)
    gpu.clock.sleep(0.15)
    second = reader.poll()[0]
    now = gpu.clock.time_ns()
    assert len(second.time_ns) == pytest.approx((now - begin) / 20e6, abs=3)
    assert first.time_ns[-1] < second.time_ns[0]
    assert second.time_ns[-1] <= now
    assert second.value.mean() == pytest.approx(250, rel=0.05)


def test_parameters_of_a_calibrated_gpu_can_be_given():
    gpu = SimulatedGpu("sim:h100?noise=0&given=record_rise_s:0.03,record_lag_s:-0.002,context_idle_w:111")
    assert gpu.truth.parameters().record_rise_s == 0.03
    assert gpu.truth.parameters().record_window_s == SimulatedGpu("sim:h100").truth.parameters().record_window_s
    assert gpu.info.details["record_rise_s"] == 0.03
    assert gpu.truth.idle_w(gpu.clock.time_ns()) == pytest.approx(111, abs=8)
    _, end = gpu.board.load(500.0, 0.5)
    gpu.board.wait(0.5)
    after = read_at(gpu, POWER, end + np.array([0, 30, 60, 90]) * 1_000_000) - gpu.truth.idle_w(end)
    assert after[2:] / after[1:-1] == pytest.approx(np.exp(-1), abs=0.02)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rise:1", "no parameter 'rise'"),
        ("record_rise_s", "NAME:VALUE"),
        ("record_rise_s:x", "not a number"),
        ("record_rise_s:0", "must be positive"),
        ("record_rise_s:nan", "must be positive"),
        ("record_rise_s:1,record_rise_s:2", "each name once"),
    ],
)
def test_a_parameter_that_cannot_be_given_is_named(given, says):
    with pytest.raises(BadInputError, match=says):
        SimulatedGpu(f"sim:h100?given={given}")


def test_late_stamps_on_hopper_hold_readings_of_the_half_slot_before():
    gpu = SimulatedGpu("sim:h100?noise=0&given=record_window_s:0.0001,record_rise_s:0.002,record_period_s:0.02")
    so_far = record(gpu)
    for _ in range(60):
        gpu.board.load(500.0, 0.083)
        gpu.board.wait(0.067)
    stamps, values = so_far()
    new = stamps > gpu.clock.time_ns() - 8_000_000_000
    stamps, values = stamps[new], values[new]
    slot = np.median(stamps % 20_000_000)
    late = (stamps - slot) % 20_000_000
    late[late > 19_000_000] = 0
    taken = (stamps - late + np.where(late > 10_000_000, 10_000_000, 0)).astype(np.int64)
    assert np.mean(late > 1_000_000) == pytest.approx(0.3, abs=0.08)
    assert np.sqrt(np.mean((read_at(gpu, POWER, taken) - values) ** 2)) < 10
    assert np.sqrt(np.mean((read_at(gpu, POWER, stamps) - values) ** 2)) > 30
