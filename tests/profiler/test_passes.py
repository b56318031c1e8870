"""The passes of a profile, each by itself on a simulated GPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from boards import board_step, recording
from jouletrace.analysis.latency import latencies_s
from jouletrace.execution.steps import Interval
from jouletrace.profiler import ProfileSettings, Progress, passes, prepare
from jouletrace.recording import board_store
from jouletrace.run import POWER, ChannelInfo
from jouletrace.simulator.boards import SimulatedGpu

pytestmark = pytest.mark.thorough


def power(**facts):
    return ChannelInfo("x", POWER, "W", "test", **facts)


@pytest.mark.parametrize(
    ("facts", "options", "seconds"),
    [
        ({"period_s": 0.02}, {}, 0.25),
        ({"period_s": 0.1}, {}, 1.875),  # eight of them in the 15 s that are allowed
        ({"period_s": 0.1}, {"max_time_s": 60.0}, 2.5),
        ({"period_s": 0.1}, {"max_time_s": 2.0}, 1.0),  # never less than ten readings
        ({"period_s": None}, {}, 0.25),
        ({"period_s": 0.1}, {"window_s": 0.3}, 0.3),
    ],
)
def test_windows_are_as_long_as_the_sensor_needs(facts, options, seconds):
    assert passes.window_seconds(ProfileSettings(**options), power(**facts)) == pytest.approx(seconds)


class Counted:
    """A step that remembers what it was asked for."""

    def __init__(self, step):
        self._step = step
        self.replays = []

    def replay(self, n):
        self.replays.append(n)
        return self._step.replay(n)


def energy_pass(spec="sim:h100?noise=1", step=None, **settings):
    device, simulated = board_step(spec)
    counted = Counted(step(simulated) if step else simulated)
    with recording(device) as session:
        iteration_s = counted.replay(2000).seconds / 2000
        counted.replays.clear()
        passes.energy(session, counted, ProfileSettings(**settings), iteration_s, Progress())
    return session.run, counted


def test_eight_windows_of_a_quarter_second_follow_a_ramp():
    run, step = energy_pass(target_ci=0.2)
    assert len(run.windows) == 8
    seconds = (run.windows["end_ns"].to_numpy() - run.windows["start_ns"].to_numpy()) / 1e9
    assert np.all((seconds >= 0.24) & (seconds < 0.3))
    ramp, *pieces = step.replays
    assert len(pieces) == 8 * passes.PIECES
    assert ramp > sum(pieces) / 8
    assert run.windows["order"].to_pylist() == list(range(8))
    assert set(run.windows["variant"].to_pylist()) == {"untouched"}


def test_a_narrower_request_takes_more_windows():
    run, _ = energy_pass(target_ci=0.001)
    assert 8 < len(run.windows) <= 40
    assert [row["name"] for row in run.spans.to_pylist()] == 2 * ["energy", "context idle after"]


def test_windows_stop_at_the_time_allowed():
    run, _ = energy_pass(target_ci=0.0001, max_time_s=6.0)
    assert len(run.windows) == pytest.approx(24, abs=1)


def test_where_time_is_short_three_windows_are_the_least():
    run, _ = energy_pass(max_time_s=0.6)
    assert len(run.windows) == passes.LEAST_WINDOWS


def test_windows_of_one_energy_pass_neighbour_each_other():
    run, _ = energy_pass(target_ci=0.2)
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    assert np.all(start[1:] - end[:-1] < 50_000_000)


def test_a_device_without_power_takes_no_windows():
    device, step = board_step()
    with recording(device) as session:
        session.recorder.channels = [c for c in session.recorder.channels if c.name != POWER]
        passes.energy(session, step, ProfileSettings(), 1e-3, Progress())
        passes.idle(session, "context idle before", ProfileSettings(), Progress())
        passes.deep_idle(session, device, ProfileSettings(), Progress())
    assert len(session.run.windows) == len(session.run.spans) == 0


class Flushed:
    """A step that flushes, as a cold one does."""

    def __init__(self, step):
        self._step = step

    def replay(self, n):
        return self._step.replay(2 * n)

    def flush_only(self):
        return self._step


def test_each_window_of_a_flushed_step_is_followed_by_its_flushes():
    device, step = board_step()
    with recording(device) as session:
        passes.energy(session, Flushed(step), ProfileSettings(target_ci=0.5), 4e-4, Progress())
    rows = session.run.windows.to_pylist()
    assert [row["variant"] for row in rows[:4]] == ["untouched", "flush", "untouched", "flush"]
    assert rows[1]["start_ns"] - rows[0]["end_ns"] < 1_000_000
    assert rows[0]["replays"] == rows[1]["replays"]


def test_latencies_are_one_an_iteration():
    device, step = board_step()
    with recording(device) as session:
        passes.latency(session, step, ProfileSettings(latency_iterations=150), 250e-6)
    seconds = latencies_s(session.run)
    assert len(seconds) == 150
    assert np.median(seconds) == pytest.approx(step.replay(100).seconds / 100, rel=0.15)


@pytest.mark.parametrize(
    ("iteration_s", "limit_s", "expected"),
    [
        (0.05, None, [10, 30]),
        (0.5, None, [2, 10]),
        (3.0, None, [1, 10]),
        (3.0, 8.0, [1, 3]),
        (3.0, 0.001, [1, 1]),
        (0.01, 2.0, [10, 100]),
    ],
)
def test_slow_iterations_are_timed_nevertheless_but_not_beyond_the_limit(iteration_s, limit_s, expected):
    taken = []

    class Slow:
        def latencies(self, n):
            taken.append(n)
            return np.full(n, iteration_s)

    with recording(SimulatedGpu("sim:h100")) as session:
        passes.latency(session, Slow(), ProfileSettings(max_time_s=limit_s), iteration_s)
    assert taken == expected


def test_the_time_limit_counts_from_the_warm_up_on():
    with recording(SimulatedGpu("sim:h100")) as session:
        begun_ns = session.clock.time_ns()
        session.clock.sleep(5.0)
        assert passes.within(session, ProfileSettings(), begun_ns).max_time_s is None
        left_s = passes.within(session, ProfileSettings(max_time_s=15.0), begun_ns).max_time_s
        assert 8.0 < left_s < 10.0
        assert passes.within(session, ProfileSettings(max_time_s=3.0), begun_ns).max_time_s > 0


def test_a_format_that_the_cpu_lacks_is_slow(tmp_path):
    features = tmp_path / "cpuinfo"
    features.write_text("flags : avx512f avx512_bf16\n")
    assert prepare.has_flag(("avx512_bf16", "amx_bf16"), features)
    assert not prepare.has_flag(("avx512_fp16",), features)
    assert prepare.has_flag(("avx512_fp16",), tmp_path / "none")


def test_deep_idle_is_taken_where_no_one_holds_a_context():
    device = SimulatedGpu("sim:h100")
    with recording(device) as session:
        passes.deep_idle(session, device, ProfileSettings(), Progress())
    (row,) = session.run.spans.to_pylist()
    assert row["name"] == "deep idle"
    assert (row["end_ns"] - row["start_ns"]) / 1e9 > 0.7
    assert session.run.stored == {}


@pytest.mark.parametrize("reason", ["context_exists", "other_processes"])
def test_a_deep_idle_that_cannot_be_seen_comes_from_the_store(monkeypatch, reason):
    device = SimulatedGpu("sim:h100")
    level = {"value": 71.0, "low": 70.0, "high": 72.0, "n": 50, "method": "idle", "reason": None, "time_ns": 1}
    board_store.remember(device.info.id, deep_idle=level)
    monkeypatch.setattr(passes, "context_in_this_process", lambda: reason == "context_exists")
    monkeypatch.setattr(device, "processes", lambda: ["somebody"] if reason == "other_processes" else [])
    with recording(device) as session:
        passes.deep_idle(session, device, ProfileSettings(), Progress())
    assert session.run.stored == {"deep_idle_reason": reason, "deep_idle": level}
    assert len(session.run.spans) == 0


def test_idle_lasts_as_long_as_a_slow_sensor_remembers():
    device = SimulatedGpu("sim:h100")
    with recording(device) as session:
        session.recorder.channels = [power(period_s=0.1, window_s=1.0)]
        passes.idle(session, "deep idle", ProfileSettings(idle_s=1.0), Progress())
    (row,) = session.run.spans.to_pylist()
    assert (row["end_ns"] - row["start_ns"]) / 1e9 == pytest.approx(3.4, abs=0.01)


def test_progress_adds_up_to_what_was_announced():
    reported = []

    class Watching:
        def begin(self, phase, seconds):
            reported.append([phase, seconds, 0.0])

        def advance(self, seconds, note=""):
            reported[-1][2] += seconds

    device, step = board_step()
    with recording(device) as session:
        passes.idle(session, "context idle before", ProfileSettings(), Watching())
        passes.energy(session, step, ProfileSettings(target_ci=0.5), 220e-6, Watching())
    assert [phase for phase, _, _ in reported] == ["context idle before", "energy", "context idle after"]
    for _, announced, done in reported:
        assert done == pytest.approx(announced, rel=0.15)


@pytest.mark.parametrize("rate_hz", [1191.2, 1206.6, 1217.9, 1233.3, 1245.9, 1254.0])
@pytest.mark.parametrize(
    ("cycles", "cycle_s"), [(1, 0.79e-3), (1, 0.7985e-3), (1, 0.808e-3), (1, 0.82e-3), (1, 0.838e-3), (3, 0.808e-3)]
)
def test_a_window_meets_all_phases_of_iterations_that_alias_with_the_samples(cycles, cycle_s, rate_hz):
    """Of a swing that a piece shows whole, a window shows less than a quarter, at any rate of the samples."""
    clock = SimpleNamespace(now_s=0.0)

    class Aliased:
        def replay(self, n):
            start = clock.now_s
            clock.now_s += n * cycles * cycle_s
            return Interval(round(start * 1e9), round(clock.now_s * 1e9))

    def sleep(seconds):
        clock.now_s += seconds + 70e-6

    pieces = passes.shifted(Aliased(), 310 // cycles, SimpleNamespace(sleep=sleep))
    at_s = np.arange(0, 0.3, 1 / rate_hz)
    seen = []
    for piece in pieces:
        mine = at_s[(at_s * 1e9 >= piece.start_ns) & (at_s * 1e9 < piece.end_ns)]
        seen.append(np.exp(2j * np.pi * (mine - piece.start_ns / 1e9) / cycle_s))
    assert abs(np.mean(np.concatenate(seen))) < 0.25
    if abs(1 / cycle_s - rate_hz) < 20:
        assert max(abs(np.mean(one)) for one in seen) > 0.8
