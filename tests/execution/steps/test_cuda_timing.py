"""How iterations on a GPU are timed, against a GPU of our own making: one queue, in virtual time.

The host takes ``host_s`` to launch an iteration, the device ``device_s`` to run it; an event takes
its stamp when the device comes to it.
"""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps import AHEAD, CudaStep, FlushStep, registry
from jouletrace.execution.steps.cuda import ColdStep
from jouletrace.profiler import ProfileSettings
from jouletrace.profiler.backends import torch as torch_backend
from jouletrace.workloads import WorkloadOptions

torch = pytest.importorskip("torch")

FLUSH_S = 0.004


class FakeGpu:
    """Host and device clocks, and what is in the queue."""

    def __init__(self, host_s, device_s):
        self.host_s, self.device_s = host_s, device_s
        self.now = 100.0
        self.device_free = 100.0
        self.launched = 0
        self.most_ahead = 0
        self.events_waited = 0
        self.busy_until = []

    def launch(self, device_s=None, host_s=None):
        self.now += self.host_s if host_s is None else host_s
        self.device_free = max(self.device_free, self.now) + (self.device_s if device_s is None else device_s)
        self.launched += 1
        self.busy_until.append(self.device_free)
        self.most_ahead = max(self.most_ahead, sum(end > self.now for end in self.busy_until[-2 * AHEAD :]))

    def synchronize(self, device=None):
        self.now = max(self.now, self.device_free)

    def event(self, enable_timing):
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = max(self.gpu.device_free, self.gpu.now)

    def synchronize(self):
        self.gpu.events_waited += 1
        self.gpu.now = max(self.gpu.now, self.at)

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


class FakeStep(CudaStep):
    mode = "eager"

    def __init__(self, gpu):
        self.gpu = gpu
        self.device = torch.device("cuda", 0)

    def launch(self):
        self.gpu.launch()

    def close(self):
        pass


@pytest.fixture
def fake(monkeypatch):
    """Makes a fake GPU with the given launch and run times, and a step on it."""

    def make(host_s, device_s):
        gpu = FakeGpu(host_s, device_s)
        monkeypatch.setattr(torch.cuda, "Event", gpu.event)
        monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
        monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
        monkeypatch.setattr("time.time_ns", lambda: round(gpu.now * 1e9))
        # A flush needs a real buffer on a real GPU; here it is work of a known length.
        monkeypatch.setattr(
            FlushStep, "__init__", lambda self, device: self.__dict__.update(device=device, flush_bytes=2)
        )
        monkeypatch.setattr(FlushStep, "launch", lambda self: gpu.launch(FLUSH_S, 0.0))
        return gpu, FakeStep(gpu)

    return make


def test_a_device_bound_latency_is_the_device_s_own_time(fake):
    _, step = fake(host_s=0.001, device_s=0.010)
    np.testing.assert_allclose(step.latencies(50), 0.010, rtol=1e-6)


def test_a_host_bound_latency_includes_the_wait_for_the_host(fake):
    _, step = fake(host_s=0.005, device_s=0.002)
    np.testing.assert_allclose(step.latencies(50), 0.005, rtol=1e-6)


@pytest.mark.parametrize("times", [(0.001, 0.010), (0.005, 0.002)])
def test_latencies_and_replay_give_the_same_time(fake, times):
    _, step = fake(*times)
    per_iteration = step.replay(1000).seconds / 1000
    assert step.latencies(1000).mean() == pytest.approx(per_iteration, rel=0.005)


def test_a_replay_starts_and_ends_with_an_idle_device(fake):
    gpu, step = fake(host_s=0.001, device_s=0.010)
    gpu.launch(device_s=5.0)  # work from before
    interval = step.replay(10)
    assert interval.seconds == pytest.approx(0.001 + 10 * 0.010)
    assert gpu.device_free <= gpu.now


def test_the_queue_of_a_latency_pass_stays_bounded_and_never_runs_dry(fake):
    gpu, step = fake(host_s=0.0001, device_s=0.010)
    latencies = step.latencies(2000)
    assert gpu.launched == 2001  # one runs ahead, untimed
    assert gpu.most_ahead <= AHEAD + 2
    assert latencies.max() == pytest.approx(0.010, rel=1e-6)


def test_a_cold_latency_leaves_the_flush_out(fake):
    gpu, step = fake(host_s=0.001, device_s=0.010)
    np.testing.assert_allclose(ColdStep(step).latencies(20), 0.010, rtol=1e-6)
    assert gpu.launched == 41  # one ahead, then flush and iteration in turn


def test_a_cold_replay_less_its_flushes_is_the_iterations(fake):
    _, step = fake(host_s=0.001, device_s=0.010)
    cold = ColdStep(step)
    both, flushes = cold.replay(100), cold.flush_only().replay(100)
    assert flushes.seconds == pytest.approx(100 * FLUSH_S, rel=0.01)
    assert (both.seconds - flushes.seconds) / 100 == pytest.approx(0.010, rel=0.01)
    assert (cold.describe()["l2"], cold.mode, cold.flush_only().mode) == ("cold", "eager", "flush")


def test_a_flush_writes_twice_the_l2(monkeypatch):
    made = {}

    def empty(numel, *, dtype, device):
        made["bytes"] = numel * dtype.itemsize
        return SimpleNamespace(fill_=lambda value: made.setdefault("filled", value))

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=50 << 20))
    monkeypatch.setattr(torch, "empty", empty)
    flush = FlushStep(torch.device("cuda", 0))
    flush.launch()
    assert made == {"bytes": 100 << 20, "filled": 1}
    assert flush.flush_bytes == 100 << 20


def test_an_unknown_size_of_the_l2_is_not_possible(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=0))
    with pytest.raises(NotPossibleError, match="--l2 cold: the size of the L2 cache of cuda:0 is unknown"):
        FlushStep(torch.device("cuda", 0))


def test_a_profile_hands_its_cache_to_the_step(monkeypatch):
    """The layers between ``--l2`` and the flush, which only a real GPU runs."""
    made = {}
    monkeypatch.setattr(torch_backend, "torch_device_of", lambda device: "cuda:0")
    monkeypatch.setattr(torch_backend, "make_step", lambda built, device, mode, **how: made.update(mode=mode, **how))
    workload = SimpleNamespace(build=lambda device, options: None)
    torch_backend.prepare(workload, None, ProfileSettings(mode="graph", l2="cold"), WorkloadOptions())
    assert made == {"mode": "graph", "l2": "cold"}


@pytest.mark.parametrize(("l2", "kind"), [("warm", FakeStep), ("cold", ColdStep)])
def test_only_cold_steps_are_flushed(fake, monkeypatch, l2, kind):
    _, step = fake(host_s=0.001, device_s=0.010)
    monkeypatch.setattr(registry, "require_device", torch.device)
    monkeypatch.setattr(registry, "check_tf32", lambda built, device: None)
    monkeypatch.setattr(registry, "trial", lambda built, device: None)
    monkeypatch.setattr(registry, "CudaEagerStep", lambda built, device: step)
    assert type(registry.make_step(None, "cuda:0", "eager", l2=l2)) is kind
