"""The clock that the SMs' own counters show: from the step into every energy window."""

import numpy as np
import pytest

from boards import board_step, recording
from jouletrace.execution.steps import Cycles, counted_replay
from jouletrace.execution.steps.base import CountsCycles
from jouletrace.profiler import ProfileSettings, Progress, ab, passes

MHZ = 1652


class Plain:
    """A step whose device's counters can't be read; remembers what it was asked for."""

    def __init__(self, step, asked=None):
        self._step = step
        self.asked = [] if asked is None else asked

    def replay(self, n):
        self.asked.append("replay")
        return self._step.replay(n)

    def latencies(self, n):
        self.asked.append("latencies")
        return self._step.latencies(n)


class Counting(Plain):
    """A step on a device of two SMs that run at ``MHZ``."""

    def __init__(self, step, clock, asked=None):
        super().__init__(step, asked)
        self._clock = clock

    def cycles(self):
        self.asked.append("cycles")
        now = self._clock.time_ns()
        return Cycles(np.arange(2), np.full(2, now * MHZ // 1000), np.full(2, now))


class Flushed(Counting):
    """One that flushes a cache."""

    def flush_only(self):
        return Counting(self._step, self._clock, self.asked)


def counting(kind=Counting):
    device, step = board_step()
    return device, kind(step, device.clock)


def test_counters_are_read_right_before_and_right_after():
    device, step = counting()
    interval, counted_mhz = counted_replay(step, 5000)
    assert step.asked == ["cycles", "replay", "cycles"]
    assert counted_mhz == pytest.approx(MHZ, rel=1e-6)
    assert interval.seconds == pytest.approx(board_step()[1].replay(5000).seconds, rel=0.02)
    assert interval.end_ns <= device.clock.time_ns()


def test_a_step_that_does_not_count_is_only_replayed():
    step = Plain(board_step()[1])
    assert not isinstance(step, CountsCycles)
    assert counted_replay(step, 10)[1] is None
    assert step.asked == ["replay"]


@pytest.mark.parametrize("silent", [{1}, {2}, {1, 2}])
def test_a_device_that_does_not_answer_gives_none(silent):
    device, step = counting()
    answers = step.cycles
    reads = []
    step.cycles = lambda: reads.append(1) or (None if len(reads) in silent else answers())
    assert counted_replay(step, 100)[1] is None
    assert len(reads) == min(silent)
    del device


@pytest.mark.thorough
def test_every_energy_window_has_the_clock_that_was_counted():
    device, step = counting()
    with recording(device) as session:
        passes.energy(session, step, ProfileSettings(target_ci=0.5), 2e-4, Progress())
    assert session.run.windows["counted_mhz"].to_pylist() == pytest.approx([MHZ] * len(session.run.windows), rel=1e-6)
    assert step.asked[0] == "cycles", "what reads them is loaded before the ramp, not between ramp and first window"


@pytest.mark.thorough
def test_flushes_alone_are_counted_too():
    device, step = counting(Flushed)
    with recording(device) as session:
        passes.energy(session, step, ProfileSettings(target_ci=0.5), 2e-4, Progress())
    rows = session.run.windows.to_pylist()
    assert {row["variant"] for row in rows} == {"untouched", "flush"}
    assert [row["counted_mhz"] for row in rows] == pytest.approx([MHZ] * len(rows), rel=1e-6)


def test_windows_of_a_step_that_does_not_count_have_none():
    device, step = board_step()
    with recording(device) as session:
        passes.energy(session, Plain(step), ProfileSettings(target_ci=0.5), 2e-4, Progress())
    assert session.run.windows["counted_mhz"].null_count == len(session.run.windows) > 0


def test_windows_of_both_sides_of_ab_are_counted():
    device, step = counting()
    with recording(device) as session:
        for side in "ab":
            ab._quarter(session, side, step, 2e-4, 0.3, ab.AbSettings(), 0)
    rows = session.run.windows.to_pylist()
    assert [row["variant"] for row in rows] == ["a", "b"]
    assert [row["counted_mhz"] for row in rows] == pytest.approx([MHZ] * 2, rel=1e-6)
    assert [one for one in step.asked if one != "replay"][-3:] == ["cycles", "cycles", "latencies"]
