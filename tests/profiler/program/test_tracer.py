"""When a recorded process is traced: duty, torch's own profiler, ranges that are open before CUDA runs."""

import time

import pytest

import fake_kernels
from jouletrace.profiler.program import tracer
from jouletrace.profiler.program.duty import Cycle
from jouletrace.profiler.program.tracer import Tracer
from jouletrace.tracer.launching import Duty


class Log(fake_kernels.FakeLog):
    """Remembers when it was paused."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def pause(self):
        self.calls.append("pause")

    def resume(self):
        self.calls.append("resume")


@pytest.fixture
def traced(monkeypatch):
    """Makes a tracer of this process, whose CUDA runs from the start."""
    monkeypatch.setattr(tracer, "KernelLog", Log)
    monkeypatch.setattr(tracer, "cuda_runs", lambda: True)
    monkeypatch.setattr(tracer, "LOOK_S", 0.01)
    made = []

    def make(**options):
        made.append(Tracer("train.py", **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


def wait_for(log, calls):
    until = time.monotonic() + 30
    while log.calls[: len(calls)] != calls and time.monotonic() < until:
        time.sleep(0.01)
    assert log.calls[: len(calls)] == calls


def test_a_part_of_every_period_is_traced_after_the_beginning(traced):
    one = traced(duty=Duty(first_s=0.1, traced_s=0.05, every_s=0.1))
    wait_for(fake_kernels.current, ["pause", "resume", "pause", "resume"])
    fake_kernels.launch("gemm")
    found = one.end()
    lengths = [(end - begin) / 1e9 for begin, end in found.segments]
    assert lengths[0] >= 0.1
    assert len(lengths) >= 3
    assert all(later[0] > before[1] for before, later in zip(found.segments, found.segments[1:], strict=False))


def test_many_kernels_end_the_beginning_and_lengthen_the_period():
    cycle = Cycle(Duty(first_kernels=10, traced_s=5.0, every_s=60.0, most_kernels=100), now=0.0)
    assert not cycle.due(100.0, kernels=9)
    assert cycle.due(100.0, kernels=10)
    kernels = 10
    for now, more, period in ((100.0, 0, 60.0), (160.0, 50, 60.0), (220.0, 60, 120.0), (340.0, 80, 120.0)):
        kernels += more
        cycle.count(kernels)
        assert cycle.every_s == period
        cycle.changed(now, paused=True)
        assert not cycle.due(now + period - 5.1, kernels)
        assert cycle.due(now + period - 4.9, kernels)
        cycle.changed(now + period - 5.0, paused=False)
        assert not cycle.due(now + period - 0.1, kernels)
        assert cycle.due(now + period, kernels)


def test_torchs_profiler_gets_cupti_while_the_program_uses_it(traced):
    from torch import ones, profiler

    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]):
        pass  # what it imports and compiles takes seconds on a busy machine
    one = traced()
    log = fake_kernels.current
    fake_kernels.launch("before")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]):
        assert log.calls == ["pause"]
        ones(3) + 1
    assert log.calls == ["pause", "resume"]
    fake_kernels.launch("after")
    found = one.end()
    assert len(found.segments) == 2
    assert [code for code, _ in found.notes] == ["profiler_inside"]
    assert found.weights().min() > 1


def test_the_beginning_goes_on_after_torchs_profiler_and_a_pause_stays_one(traced):
    from torch import profiler

    one = traced(duty=Duty(first_s=60.0, traced_s=0.01, every_s=0.02))
    log = fake_kernels.current
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]):
        pass
    time.sleep(0.1)
    assert log.calls == ["pause", "resume"]
    one._cycle = Cycle(Duty(first_s=0.0, traced_s=0.01, every_s=3600.0), time.monotonic())
    wait_for(log, ["pause", "resume", "pause"])
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]):
        pass
    assert log.calls == ["pause", "resume", "pause"]


def test_what_ends_while_tracing_is_paused_is_like_what_was_traced_before(traced):
    one = traced(duty=Duty(first_s=0.3, traced_s=1.0, every_s=3600.0))
    fake_kernels.launch("gemm", 0.01)
    wait_for(fake_kernels.current, ["pause"])
    time.sleep(0.3)
    found = one.end()
    (begin, end), (last, until) = found.segments
    assert last == pytest.approx(until, abs=1e7)
    assert found.weights()[0] == pytest.approx(1 + (last - end) / (end - begin), rel=0.05)


def test_a_range_that_is_open_when_cuda_starts_has_the_kernels_within(traced, monkeypatch):
    one = traced()
    log = fake_kernels.current
    monkeypatch.setattr(log, "mark", lambda meaning: False)  # no context yet
    outer = one.marks.begin("epoch")
    gone = one.marks.begin("set-up")
    one.marks.end(gone)
    monkeypatch.undo()
    inner = one.marks.begin("forward")
    fake_kernels.launch("gemm")
    one.marks.end(inner)
    one.marks.end(outer)
    found = one.end()
    assert [found.owners.paths[path] for path in found.owners.path] == [("epoch", "forward")]
