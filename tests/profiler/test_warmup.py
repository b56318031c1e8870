"""Warm-up: it ends when latency and power have settled, and says so if they have not."""

from types import SimpleNamespace

import numpy as np
import pytest

from boards import board_step, recording
from jouletrace.execution.steps import Interval
from jouletrace.profiler import Progress, warm_up
from jouletrace.profiler.passes import _keeps_changing
from jouletrace.profiler.profile import profile
from jouletrace.run import POWER, Run
from thinned import thinned


class Clocked:
    """A session without hardware: its clock is moved by the step, its power is a function of time."""

    def __init__(self, watts=None):
        self.now_ns = 0
        self.run = Run()
        self.clock = SimpleNamespace(time_ns=lambda: self.now_ns)
        self._watts = watts
        channels = [SimpleNamespace(name=POWER, period_s=0.02, window_s=None)] if watts is not None else []
        self.recorder = SimpleNamespace(channels=channels, wait_until=lambda time_ns, timeout_s: False)

    def power(self, since_ns):
        stamps = np.arange(since_ns, self.now_ns, 20_000_000)
        return stamps, np.array([self._watts(stamp / 1e9) for stamp in stamps])


class Taking:
    """A step whose iterations take as long as a function of the time says."""

    def __init__(self, session, seconds):
        self._session, self._seconds = session, seconds
        self.replays = []

    def replay(self, n):
        self.replays.append(n)
        start = self._session.now_ns
        self._session.now_ns += round(n * self._seconds(start / 1e9) * 1e9)
        return Interval(start, self._session.now_ns)


def warmed(seconds, watts=None, limit_s=6.0):
    session = Clocked(watts)
    step = Taking(session, seconds)
    return warm_up(session, step, limit_s, Progress()), session, step


def test_a_steady_step_ends_the_warm_up_early():
    found, session, _ = warmed(lambda t: 0.001, lambda t: 300.0)
    assert found.latency_settled is True
    assert found.power_settled is True
    assert found.seconds == pytest.approx(1.2, abs=0.1)
    assert found.iteration_s == pytest.approx(0.001)
    assert session.run.warnings == []


def test_without_power_only_latency_counts():
    found, session, _ = warmed(lambda t: 0.001)
    assert (found.latency_settled, found.power_settled) == (True, None)
    assert session.run.warnings == []


def test_a_step_that_keeps_slowing_down_is_reported():
    found, session, _ = warmed(lambda t: 0.001 * (1 + 0.1 * t), lambda t: 300.0)
    assert found.latency_settled is False
    assert found.seconds == pytest.approx(6.0, abs=0.5)
    assert [w.message for w in session.run.warnings] == [
        f"latency was still changing after {found.seconds:.1f} s of warm-up"
    ]


def test_power_that_keeps_rising_is_reported():
    found, session, _ = warmed(lambda t: 0.001, lambda t: 300.0 + 20 * t)
    assert (found.latency_settled, found.power_settled) == (True, False)
    assert [w.code for w in session.run.warnings] == ["not_settled"]
    assert "power was still changing" in session.run.warnings[0].message


def test_power_that_settles_late_is_waited_for():
    found, session, _ = warmed(lambda t: 0.001, lambda t: 300.0 + 50 * max(0, 2 - t))
    assert found.power_settled is True
    assert 2.4 < found.seconds < 3.5
    assert session.run.warnings == []


def test_iterations_too_slow_to_judge_are_not_called_unsettled():
    found, session, _ = warmed(lambda t: 2.0)
    assert found.latency_settled is None
    assert "too short to determine whether latency had settled" in session.run.warnings[0].message


def test_a_short_warm_up_is_kept_short():
    found, session, _ = warmed(lambda t: 0.001, lambda t: 300.0, limit_s=0.3)
    assert found.seconds == pytest.approx(0.3, abs=0.1)
    assert {w.message.partition("whether ")[2].split()[0] for w in session.run.warnings} == {"latency", "power"}


def test_the_first_iterations_do_not_count():
    """Ten seconds of compilation leave the limit for the warm-up itself."""
    found, _, step = warmed(lambda t: 10.0 if t == 0 else 0.001)
    assert step.replays[:2] == [1, 1]
    assert found.seconds == pytest.approx(1.2, abs=0.1)


def test_a_simulated_gpu_settles():
    device, step = board_step("sim:h100?noise=1")
    with recording(device) as session:
        found = warm_up(session, step, 20.0, Progress())
    assert found.latency_settled is True
    assert found.power_settled is True


@pytest.mark.parametrize(
    ("levels", "changing"),
    [
        ([1.0, 1.02, 1.04], True),
        ([1.04, 1.02, 1.0], True),
        ([1.0, 1.05, 1.0], False),
        ([1.0, 1.001, 1.03], False),
        ([1.0, 1.03], True),
        ([], True),
    ],
)
def test_what_wanders_without_a_trend_counts_as_settled(levels, changing):
    assert _keeps_changing(levels, 0.01) is changing


@pytest.mark.thorough
@pytest.mark.parametrize("seed", thinned(range(4), 4))
def test_a_simulated_gpu_at_its_cap_warns_of_nothing(seed):
    run = profile("deit-b", device=f"sim:h100?seed={seed}", batch=64, max_time=1, latency_s=0.1)
    assert "not_settled" not in [warning.code for warning in run.warnings]
