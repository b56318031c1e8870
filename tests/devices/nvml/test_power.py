"""The driver's power record and what stands in for it."""

import numpy as np
import pytest

from fake_nvml import GPU_IS_LOST, NOT_SUPPORTED, START_NS, ULL, UNKNOWN, FakeClock, FakeNvml, a100, h100, v100
from jouletrace.devices import Device
from jouletrace.devices.nvml import Nvml, NvmlGpu
from jouletrace.devices.nvml.record import judge
from jouletrace.errors import NotPossibleError
from jouletrace.run import CHANNEL_UNITS, POWER
from jouletrace.sensor import integrate


def burst(t: float) -> float:
    """100 W for ever, and 500 W more from 1.003 s to 1.303 s: 150 J in all."""
    return 100.0 * t + 500.0 * (min(max(t, 1.003), 1.303) - 1.003)


def open_gpu(board, tick_ns=0):
    clock = FakeClock(tick_ns)
    library = FakeNvml(board, clock=clock)
    return NvmlGpu(board.uuid, Nvml(library), clock), library, clock


def power_of(gpu):
    return next(s for s in gpu.sources() if s.channels[0].name == POWER)


def read_every(source, clock, interval_s, polls):
    stamps, watts = [], []
    for _ in range(polls):
        for samples in source.poll():
            stamps.append(samples.time_ns)
            watts.append(samples.value)
        clock.sleep(interval_s)
    return np.concatenate(stamps), np.concatenate(watts)


def test_the_ring_read_every_second_gives_every_sample_once_and_every_joule():
    gpu, _, clock = open_gpu(h100(joules=burst))
    stamps, watts = read_every(power_of(gpu), clock, 1.0, 5)
    assert np.all(np.diff(stamps) == 20_000_000)
    assert len(stamps) == 119 + 4 * 50
    energy = integrate(stamps, watts, [START_NS + 500_000_000], [START_NS + 2_500_000_000])[0]
    assert energy == pytest.approx(2 * 100 + 150, abs=1e-3)


def test_stamps_are_exact_to_the_microsecond_of_the_driver():
    gpu, _, clock = open_gpu(h100())
    clock.sleep(0.123456)
    stamps = power_of(gpu).poll()[0].time_ns
    assert stamps.dtype == np.int64
    assert stamps[-1] == START_NS + 120_000_000


def test_nothing_new_in_the_ring_is_no_news_and_no_error():
    gpu, _, _ = open_gpu(h100())
    source = power_of(gpu)
    assert len(source.poll()[0].time_ns) == 119
    assert source.poll() == []


def test_a_ring_that_overran_leaves_a_hole_in_the_stamps():
    gpu, _, clock = open_gpu(h100())
    source = power_of(gpu)
    first = source.poll()[0].time_ns
    clock.sleep(4.0)
    late = source.poll()[0].time_ns
    assert late[0] - first[-1] == pytest.approx(4.0e9 - 118 * 20e6)


def test_the_record_names_its_call_and_its_period():
    gpu, _, _ = open_gpu(h100())
    channel = power_of(gpu).channels[0]
    assert channel.source == "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)"
    assert (channel.period_s, channel.gapless, channel.gain_pct, channel.origin) == (0.02, True, 5.0, "nominal")
    assert channel.sampling_s == 1 / 1222.5  # known of H100s and H200s
    assert channel.device == gpu.info.id


def test_other_value_types_of_the_ring_are_understood():
    gpu, _, _ = open_gpu(h100(ring_type=ULL))
    assert power_of(gpu).poll()[0].value == pytest.approx(100.0)


def test_a_ring_that_has_only_begun_to_fill_is_given_a_moment():
    gpu, _, _ = open_gpu(h100(ring_since_us=-100_000))
    assert gpu.sensors.ring.usable
    assert power_of(gpu).poll()[0].time_ns[0] == START_NS - 100_000_000


def test_a_ring_that_was_broken_a_moment_ago_is_given_a_moment_too(monkeypatch):
    gpu, library, clock = open_gpu(h100())
    ring = library.nvmlDeviceGetSamples

    def broken(board, kind, after_us):
        value_type, samples = ring(board, kind, after_us)
        since = START_NS // 1000
        return value_type, [s for s in samples if not since - 1_000_000 < s.timeStamp < since - 60_000]

    monkeypatch.setattr(library, "nvmlDeviceGetSamples", broken, raising=False)
    assert NvmlGpu(gpu.spec, Nvml(library), clock).sensors.ring.usable
    assert clock.now_ns > START_NS


def test_sparse_samples_in_the_ring_are_not_taken_for_a_record():
    gpu, _, _ = open_gpu(a100())
    assert not gpu.sensors.ring.usable
    assert "167 ms apart" in gpu.sensors.ring.reason


@pytest.mark.parametrize(
    ("stamps_ms", "now_ms", "reason"),
    [
        ([], 0, "0 power samples"),
        (list(range(0, 100, 20)), 100, "only 5 samples"),
        ([*range(0, 2000, 20), *range(3000, 3100, 20)], 3100, "only 5 samples since its last hole"),
        (list(range(0, 2000, 20)), 9000, "7.0 s old"),
        (list(range(0, 20000, 100)), 20000, "100 ms apart"),
    ],
)
def test_what_is_wrong_with_a_ring_is_reported(stamps_ms, now_ms, reason):
    check = judge(np.array(stamps_ms, np.int64) * 1000, now_ms * 1000)
    assert not check.usable
    assert reason in check.reason


def test_jitter_of_the_stamps_is_not_taken_for_holes():
    steps = np.random.default_rng(1).uniform(9_000, 35_000, 118).astype(np.int64)
    stamps = np.concatenate([[0], np.cumsum(steps)])
    assert judge(stamps, int(stamps[-1])).usable


def test_an_a100_polls_its_usage_and_says_so():
    gpu, _, clock = open_gpu(a100(joules=burst))
    source = power_of(gpu)
    channel = source.channels[0]
    assert channel.source == "nvmlDeviceGetPowerUsage, polled every 5 ms"
    assert (channel.gapless, channel.window_s, source.interval_s) == (False, 0.025, 0.005)
    _, watts = read_every(source, clock, 0.02, 80)
    assert watts.max() == pytest.approx(600.0)
    assert [c.name for s in gpu.sources() for c in s.channels].count("power_instant_w") == 0


def test_without_a_ring_an_h100_polls_its_instant_power_not_the_average():
    board = h100()
    board.errors["nvmlDeviceGetSamples"] = NOT_SUPPORTED
    gpu, _, _ = open_gpu(board)
    names = {c.name: c.source for s in gpu.sources() for c in s.channels}
    assert "POWER_INSTANT" in names["power_w"]
    assert names["power_average_w"] == "nvmlDeviceGetPowerUsage"


def test_a_v100_without_ring_or_fields_still_has_power():
    gpu, _, _ = open_gpu(v100())
    channel = power_of(gpu).channels[0]
    assert channel.source.startswith("nvmlDeviceGetPowerUsage")
    assert channel.period_s == 0.02


def test_a_gpu_that_reports_no_power_has_a_reason_instead():
    board = v100()
    board.errors["nvmlDeviceGetPowerUsage"] = NOT_SUPPORTED
    gpu, _, _ = open_gpu(board)
    assert all(c.name != POWER for s in gpu.sources() for c in s.channels)
    assert gpu.info.details["no_power"] == "no_power_sensor"


def test_a_sensor_that_reads_zero_watts_is_not_believed():
    gpu, _, _ = open_gpu(a100(joules=lambda t: 0.0))
    assert gpu.info.details["no_power"] == "no_power_sensor"
    assert "reads 0 W" in {r.channel: why for r, why in gpu.sensors.absent}["power_instant_w"]


def test_a_gpu_lost_in_a_recording_ends_it_with_one_line():
    board = h100()
    gpu, _, clock = open_gpu(board)
    source = power_of(gpu)
    source.poll()
    clock.sleep(1.0)
    board.errors["all"] = GPU_IS_LOST
    with pytest.raises(NotPossibleError, match="the GPU is lost"):
        source.poll()


def test_a_passing_fault_of_the_ring_loses_nothing_and_a_lasting_one_is_raised():
    board = h100()
    gpu, _, clock = open_gpu(board)
    source = power_of(gpu)
    last = source.poll()[0].time_ns[-1]
    clock.sleep(1.0)
    board.errors["nvmlDeviceGetSamples"] = UNKNOWN
    assert source.poll() == []
    clock.sleep(1.0)
    del board.errors["nvmlDeviceGetSamples"]
    assert source.poll()[0].time_ns[0] - last == 20_000_000
    board.errors["nvmlDeviceGetSamples"] = UNKNOWN
    source.poll()
    source.poll()
    with pytest.raises(NotPossibleError, match="can't be read any more"):
        source.poll()


def test_every_channel_is_in_the_vocabulary():
    for board in (h100(), a100(), v100()):
        gpu, _, _ = open_gpu(board)
        assert isinstance(gpu, Device)
        channels = [c for s in gpu.sources() for c in s.channels]
        assert len({c.name for c in channels}) == len(channels)
        for channel in channels:
            assert CHANNEL_UNITS[channel.name][0] == channel.unit
