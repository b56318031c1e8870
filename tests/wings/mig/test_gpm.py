"""GPM counters: shares of the time between two samples, of a GPU and of a MIG instance."""

import ctypes
import gc
import math
import os
from types import MappingProxyType, SimpleNamespace

import pytest

from fake_mig_nvml import FakeMigNvml
from fake_nvml import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeClock,
    FakeNvml,
    NVMLError,
    a100,
    h100,
)
from jouletrace.analysis.conditions import conditions
from jouletrace.devices.nvml import METRICS, GpmSource, Nvml, NvmlGpu, NvmlMig, Unavailable
from jouletrace.profiler.backends import torch as torch_backend
from jouletrace.run import CHANNEL_UNITS, DeviceInfo, Run, tables
from jouletrace.wings.mig import NvmlMigBackend, make_plan
from jouletrace.wings.mig.activity import instance_activity
from jouletrace.wings.mig.apply import apply
from shown import fact_of

GRAPHICS, SM, DRAM, PCIE_TX = 1, 2, 10, 20
UNINITIALIZED = 1


class _Metric(ctypes.Structure):
    _fields_ = (("metricId", ctypes.c_uint), ("nvmlReturn", ctypes.c_uint), ("value", ctypes.c_double))


class _Request:
    """Stands for c_nvmlGpmMetricsGet_t; samples are plain objects here."""

    def __init__(self):
        self.version = self.numMetrics = 0
        self.sample1 = self.sample2 = None
        self.metrics = [_Metric() for _ in range(32)]


class GpmCalls:
    """GPM as the driver has it: counters that go on with time; a sample holds what they stood at.

    ``busy`` is the share in per cent that a metric counts; an instance counts a tenth of the GPU's.
    """

    c_nvmlGpmMetricsGet_t = _Request
    free_error = 0
    busy = MappingProxyType({GRAPHICS: 92.0, SM: 80.0, DRAM: math.nan, PCIE_TX: 3.0})

    def nvmlGpmSampleAlloc(self):
        return SimpleNamespace(at=None, scale=1.0)

    def nvmlGpmSampleGet(self, board, sample):
        sample.at, sample.scale = self.clock.now_ns, 1.0
        return sample

    def nvmlGpmSampleFree(self, sample):
        if self.free_error:
            raise NVMLError(self.free_error)

    def nvmlGpmMigSampleGet(self, board, instance, sample):
        sample.at, sample.scale = self.clock.now_ns, 0.1 * instance
        return sample

    def nvmlGpmMetricsGet(self, request):
        assert request.sample1.at < request.sample2.at, "the older sample comes first"
        for metric in request.metrics[: request.numMetrics]:
            known = metric.metricId in self.busy
            metric.nvmlReturn = 0 if known else NOT_SUPPORTED
            metric.value = self.busy.get(metric.metricId, 0.0) * request.sample2.scale
        return request


class FakeGpm(GpmCalls, FakeNvml):
    pass


class FakeGpmMig(GpmCalls, FakeMigNvml):
    pass


def source(clock, **how):
    fake = FakeGpm(h100(), clock=clock)
    return GpmSource(Nvml(fake), fake.boards[0], "GPU-1", clock, **how)


def readings(samples):
    return {one.channel: float(one.value[0]) for one in samples}


def test_shares_are_between_0_and_1_and_rates_in_bytes():
    clock = FakeClock()
    gpm = source(clock)
    clock.sleep(0.2)
    assert readings(gpm.poll()) == pytest.approx(
        {"graphics_active": 0.92, "sm_active": 0.80, "pcie_sent_bytes_per_s": 3 * 2**20}
    ), "what is no number, or not supported, is left out"


def test_samples_less_than_100_ms_apart_say_nothing():
    clock = FakeClock()
    gpm = source(clock)
    clock.sleep(0.05)
    assert gpm.poll() == []
    clock.sleep(0.06)
    assert gpm.poll() != []


def test_a_reading_is_stamped_in_the_middle_of_its_interval():
    clock = FakeClock()
    gpm = source(clock)
    before = clock.now_ns
    clock.sleep(0.2)
    assert {int(one.time_ns[0]) - before for one in gpm.poll()} == {100_000_000}


def test_all_channels_have_a_unit():
    clock = FakeClock()
    assert {channel.name for channel in source(clock).channels} == {name for name, _ in METRICS.values()}
    assert all(channel.unit == CHANNEL_UNITS[channel.name][0] for channel in source(clock).channels)


def channels(device):
    return [channel.name for one in device.sources() for channel in one.channels]


def test_a_sample_that_fails_once_leaves_the_next_comparison_right():
    clock = FakeClock()
    fake = FakeGpm(h100(), clock=clock)
    gpm = GpmSource(Nvml(fake), fake.boards[0], "GPU-1", clock)
    clock.sleep(0.2)
    fake.boards[0].errors["nvmlGpmSampleGet"] = NOT_SUPPORTED
    assert gpm.poll() == []
    fake.boards[0].errors.clear()
    before = clock.now_ns
    clock.sleep(0.2)
    assert {int(one.time_ns[0]) - before for one in gpm.poll()} == {0}, "over 0.4 s, since the last good one"


@pytest.fixture(autouse=True)
def no_switch(monkeypatch):
    monkeypatch.delenv("JOULETRACE_GPM", raising=False)


def board_of(fake):
    return NvmlGpu(fake.boards[0].uuid, Nvml(fake), fake.clock)


def test_a_gpu_records_its_activity_beside_its_power():
    fake = FakeGpm(h100())
    sources = board_of(fake).sources()
    assert sources[0].channels[0].name == "power_w"
    fake.clock.sleep(0.2)
    assert readings(sources[-1].poll())["sm_active"] == pytest.approx(0.80)


def test_activity_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("JOULETRACE_GPM", "0")
    fake = FakeGpm(h100())
    assert "graphics_active" not in channels(board_of(fake))
    assert not any("Gpm" in name for name in fake.calls), "nothing of it is called"


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ("gpm", NOT_SUPPORTED),
        ("gpm", FUNCTION_NOT_FOUND),
        ("nvmlGpmQueryDeviceSupport", NO_PERMISSION),
        ("nvmlGpmSampleGet", NOT_SUPPORTED),
        ("nvmlGpmSampleGet", UNKNOWN),
    ],
)
def test_a_gpu_or_driver_that_refuses_gpm_records_the_rest_as_before(refused, code):
    fake = FakeGpm(h100())
    with_it = channels(board_of(fake))
    fake.boards[0].errors[refused] = code
    gpm_names = {name for name, _ in METRICS.values()}
    assert channels(board_of(fake)) == [name for name in with_it if name not in gpm_names]
    with pytest.raises(Unavailable):
        GpmSource(Nvml(fake), fake.boards[0], "GPU-1", fake.clock)


def test_a_gpu_of_before_hopper_has_no_such_channels():
    fake = FakeGpm(a100())
    fake.boards[0].errors.pop("gpm")
    fake.nvmlGpmQueryDeviceSupport = lambda board: SimpleNamespace(isSupportedDevice=0)
    assert "graphics_active" not in channels(board_of(fake))
    assert "nvmlGpmSampleAlloc" not in fake.calls


@pytest.mark.thorough
def test_samples_are_given_back_with_their_source():
    fake = FakeGpm(h100())
    gpu = board_of(fake)
    gpu.sources()
    gc.collect()
    assert fake.calls["nvmlGpmSampleAlloc"] == fake.calls["nvmlGpmSampleFree"] == 2


@pytest.mark.thorough
def test_a_source_that_outlives_the_library_goes_silently(capsys):
    fake = FakeGpm(h100())
    sources = board_of(fake).sources()
    fake.free_error = UNINITIALIZED
    del sources
    gc.collect()
    assert fake.calls["nvmlGpmSampleFree"] == 1
    assert capsys.readouterr().err == ""


def divided():
    fake = FakeGpmMig()
    backend = NvmlMigBackend(fake.board.uuid, Nvml(fake))
    apply(make_plan(["3g.40gb", "2g.20gb"], backend), backend, fake.board.uuid)
    return fake, {c.uuid: one.id for one in backend.instances() for c in one.compute}


def test_an_instance_has_activity_and_memory_of_its_own_and_power_only_of_the_gpu():
    fake, uuids = divided()
    uuid, number = next(iter(uuids.items()))
    device = NvmlMig(uuid, Nvml(fake), fake.clock)
    sources = device.sources()
    owners = {(channel.device, channel.name) for one in sources for channel in one.channels}
    assert (fake.board.uuid, "power_w") in owners
    assert (fake.board.uuid, "graphics_active") not in owners, "MIG is on: the GPU as a whole isn't counted"
    assert (uuid, "power_w") not in owners
    assert {(uuid, "graphics_active"), (uuid, "memory_used_bytes")} <= owners
    fake.clock.sleep(0.2)
    found = readings(sources[-1].poll())
    assert found["graphics_active"] == pytest.approx(0.092 * number)
    assert found["memory_used_bytes"] == 2 << 30


def test_each_instance_of_a_gpu_is_asked_by_its_number():
    fake, uuids = divided()
    sources = instance_activity(fake.board.uuid, uuids, Nvml(fake), fake.clock)
    fake.clock.sleep(0.2)
    found = {uuid: float(one.value[0]) for s in sources for uuid, one in s.poll() if one.channel == "sm_active"}
    assert found == pytest.approx({uuid: 0.08 * number for uuid, number in uuids.items()})


def test_activity_is_shown_beside_power():
    device = DeviceInfo("GPU-1", "a GPU")
    rows = [(0.1 * n, "graphics_active", 0.9 + 0.02 * (n % 2)) for n in range(10)] + [(0.5, "sm_active", 0.75)]
    samples = [{"time_ns": int(t * 1e9), "device": "GPU-1", "channel": c, "value": v} for t, c, v in rows]
    run = Run(devices=[device], samples=tables.from_rows(samples, "samples"))
    assert conditions(run)["activity"] == pytest.approx({"graphics": 0.91, "sm": 0.75})
    assert fact_of(run, "Activity") == "graphics engine 91 % · SMs 75 %"
    assert "activity" not in conditions(Run(devices=[device]))


def test_a_mig_instance_is_the_only_device_that_cuda_shows(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = []

    def index(uuid):
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
        return 0

    monkeypatch.setattr(torch_backend, "cuda_index", index)
    for kind, uuid in (("gpu", "GPU-1"), ("mig", "MIG-1")):
        assert torch_backend.torch_device_of(SimpleNamespace(info=DeviceInfo(uuid, "x", kind=kind))) == "cuda:0"
    assert seen == ["0,1", "MIG-1"]
