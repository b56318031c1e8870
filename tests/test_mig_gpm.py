"""GPM counters: shares of the time between two samples, of a board and of a MIG instance."""

import ctypes
import math
import os
from types import MappingProxyType, SimpleNamespace

import pytest

from fake_mig_nvml import FakeMigNvml
from fake_nvml import NOT_SUPPORTED, FakeClock, FakeNvml, h100
from jouletrace.analysis.conditions import conditions
from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.devices.nvml.gpm import METRICS, GpmSource
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.nvml.mig import NvmlMig
from jouletrace.devices.nvml.mig_activity import instance_activity
from jouletrace.devices.nvml.mig_backend import NvmlMigBackend
from jouletrace.mig.apply import apply
from jouletrace.mig.plan import make_plan
from jouletrace.profiler import prepare
from jouletrace.report.facts import condition_lines
from jouletrace.run import DeviceInfo, Run, tables
from jouletrace.run.channels import CHANNEL_UNITS

GRAPHICS, SM, DRAM, PCIE_TX = 1, 2, 10, 20


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

    ``busy`` is the share in per cent that a metric counts; an instance counts a tenth of the board's.
    """

    c_nvmlGpmMetricsGet_t = _Request
    busy = MappingProxyType({GRAPHICS: 92.0, SM: 80.0, DRAM: math.nan, PCIE_TX: 3.0})

    def nvmlGpmSampleAlloc(self):
        return SimpleNamespace(at=None, scale=1.0)

    def nvmlGpmSampleGet(self, board, sample):
        sample.at, sample.scale = self.clock.now_ns, 1.0
        return sample

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


@pytest.mark.parametrize("asked", [True, False])
def test_a_board_records_its_activity_beside_its_power_where_that_is_asked_for(monkeypatch, asked):
    monkeypatch.setenv("JOULETRACE_GPM", "1" if asked else "")
    fake = FakeGpm(h100())
    names = [
        channel.name
        for one in NvmlGpu(fake.boards[0].uuid, Nvml(fake), fake.clock).sources()
        for channel in one.channels
    ]
    assert names[0] == "power_w"
    assert ("graphics_active" in names) == asked


def test_a_board_without_gpm_has_no_such_channels():
    fake = FakeGpm(h100())
    fake.boards[0].errors["gpm"] = NOT_SUPPORTED
    names = [
        channel.name
        for one in NvmlGpu(fake.boards[0].uuid, Nvml(fake), fake.clock).sources()
        for channel in one.channels
    ]
    assert "graphics_active" not in names
    with pytest.raises(Unavailable):
        GpmSource(Nvml(fake), fake.boards[0], "GPU-1", fake.clock)


def divided():
    fake = FakeGpmMig()
    backend = NvmlMigBackend(fake.board.uuid, Nvml(fake))
    apply(make_plan(["3g.40gb", "2g.20gb"], backend), backend, fake.board.uuid)
    return fake, {c.uuid: one.id for one in backend.instances() for c in one.compute}


def test_an_instance_has_activity_and_memory_of_its_own_and_power_only_of_the_board():
    fake, uuids = divided()
    uuid, number = next(iter(uuids.items()))
    device = NvmlMig(uuid, Nvml(fake), fake.clock)
    sources = device.sources()
    owners = {(channel.device, channel.name) for one in sources for channel in one.channels}
    assert (fake.board.uuid, "power_w") in owners
    assert (uuid, "power_w") not in owners
    assert {(uuid, "graphics_active"), (uuid, "memory_used_bytes")} <= owners
    fake.clock.sleep(0.2)
    found = readings(sources[-1].poll())
    assert found["graphics_active"] == pytest.approx(0.092 * number)
    assert found["memory_used_bytes"] == 2 << 30


def test_each_instance_of_a_board_is_asked_by_its_number():
    fake, uuids = divided()
    sources = instance_activity(fake.board.uuid, uuids, Nvml(fake), fake.clock)
    fake.clock.sleep(0.2)
    found = {uuid: float(one.value[0]) for s in sources for uuid, one in s.poll() if one.channel == "sm_active"}
    assert found == pytest.approx({uuid: 0.08 * number for uuid, number in uuids.items()})


def test_activity_is_shown_beside_power():
    device = DeviceInfo("GPU-1", "a board")
    rows = [(0.1 * n, "graphics_active", 0.9 + 0.02 * (n % 2)) for n in range(10)] + [(0.5, "sm_active", 0.75)]
    samples = [{"time_ns": int(t * 1e9), "device": "GPU-1", "channel": c, "value": v} for t, c, v in rows]
    run = Run(devices=[device], samples=tables.from_rows(samples, "samples"))
    assert conditions(run)["activity"] == pytest.approx({"graphics": 0.91, "sm": 0.75})
    (line,) = [text for name, text in condition_lines(run) if name == "Activity"]
    assert line.replace("\u00a0", " ") == "graphics engine 91 % · SMs 75 %"
    assert "activity" not in conditions(Run(devices=[device]))


def test_a_mig_instance_is_the_only_device_that_cuda_shows(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = []

    def index(uuid):
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
        return 0

    monkeypatch.setattr(prepare, "cuda_index", index)
    for kind, uuid in (("gpu", "GPU-1"), ("mig", "MIG-1")):
        assert prepare.torch_device_of(SimpleNamespace(info=DeviceInfo(uuid, "x", kind=kind))) == "cuda:0"
    assert seen == ["0,1", "MIG-1"]
