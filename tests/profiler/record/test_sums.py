"""Energy while a recording goes on: sums as readings come, in bounded memory, and what is printed."""

import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import jouletrace as jt
from commands import wait_for
from jouletrace.errors import BadInputError
from jouletrace.profiler.record import Marks, live_sums
from jouletrace.profiler.record import recording as recordings
from jouletrace.profiler.record.live_sums import LiveSums
from jouletrace.profiler.record.ranges import Opened, Span
from jouletrace.run import tables
from records import START, make_run, ns, readings

REAL = "sim:h100?realtime=1&load=0.5:300"


class Stream:
    """Samples of a record, handed out up to a time."""

    def __init__(self, table):
        self.table = table.sort_by("time_ns")
        self.until = 0
        self.given = 0

    def take(self):
        stamps = self.table["time_ns"].to_numpy()
        end = int(np.searchsorted(stamps, ns(self.until), side="right"))
        fresh = self.table.slice(self.given, end - self.given)
        self.given = max(end, self.given)
        return fresh if len(fresh) else tables.empty("samples")

    def close(self):
        pass


def sums_of(watts, seconds, without=(), **changes):
    run = make_run(readings(watts, seconds, noise=0.0, without=without), kind="record", **changes)
    stream = Stream(run.samples)
    run.samples = tables.empty("samples")
    return LiveSums(run, stream, ns(0.0)), stream


def span(id, name, start, end, path=None, kind="range"):
    return Span(id, None, kind, name, "main", ns(start), ns(end), path or (name,))


def test_a_long_range_has_the_energy_between_its_edges():
    sums, stream = sums_of(lambda t: np.where(t < 5, 100.0, 500.0), 12.0)
    stream.until = 11.0
    sums.update([span(1, "a", 1.0, 3.0), span(2, "b", 6.0, 8.0)], [])
    found = sums.so_far("x")
    assert found.ranges["a"].energy_j == pytest.approx(200, rel=0.01)
    assert found.ranges["b"].energy_j == pytest.approx(1000, rel=0.01)
    assert found.energy_j == pytest.approx(100 * 5 + 500 * (found.time_s - 5), rel=0.02)
    assert 10.8 < found.time_s < 11.1


def test_a_range_waits_until_the_record_has_passed_it():
    sums, stream = sums_of(300.0, 10.0)
    stream.until = 3.0
    sums.update([span(1, "a", 1.0, 4.0)], [])
    assert "a" not in sums.so_far("x").ranges
    stream.until = 5.0
    sums.update([], [])
    assert sums.so_far("x").ranges["a"].energy_j == pytest.approx(900, rel=0.01)


def test_seconds_without_readings_are_counted_from_two_and_a_half_periods_on():
    sums, stream = sums_of(300.0, 10.0, without=[(1.99, 2.01), (3.99, 6.01)])
    stream.until = 3.0
    sums.update([], [])
    assert sums.so_far("x").hole_s == 0, "one reading of 20 ms is missing: no hole"
    stream.until = 9.0
    sums.update([], [])
    found = sums.so_far("x")
    assert found.hole_s == pytest.approx(2.04, abs=1e-6), "from the last reading before to the first one after"
    assert "2.04 s without readings" in str(found).replace("\u00a0", " ")


def test_power_is_that_since_the_reading_before():
    sums, stream = sums_of(lambda t: np.where(t < 5, 100.0, 500.0), 12.0)
    powers = []
    for stream.until in (4.0, 6.5, 11.0):
        sums.update([], [])
        powers.append(sums.so_far("x").power_w)
    assert powers[0] == pytest.approx(100, rel=0.01)
    assert 200 < powers[1] < 450
    assert powers[2] == pytest.approx(500, rel=0.01)


def test_short_steps_in_a_row_have_energy_and_short_ranges_do_not():
    sums, stream = sums_of(300.0, 12.0)
    stream.until = 11.0
    steps = [span(i, "step", 1 + 0.013 * i, 1 + 0.013 * (i + 1), kind="iteration") for i in range(500)]
    blinks = [span(1000 + i, "blink", 1 + 0.013 * i, 1.004 + 0.013 * i) for i in range(500)]
    sums.update([*steps, *blinks], [])
    ranges = sums.so_far("x").ranges
    assert ranges["step"].count == 500
    assert ranges["step"].energy_j == pytest.approx(300 * 0.013, rel=0.01)
    assert ranges["step"].last_energy_j is None, "one of them is shorter than a reading"
    assert ranges["blink"].energy_j is None
    assert ranges["blink"].reason == "sensor_too_slow"


def test_an_epoch_that_is_longer_than_what_is_kept_has_its_energy(monkeypatch):
    monkeypatch.setattr(live_sums, "_CURVE_S", 20.0)
    sums, stream = sums_of(300.0, 130.0)
    epoch = Opened(Marks(time.time_ns), 1, None, "epoch", ns(5.0), ("epoch",), "main")
    for stream.until in range(10, 125):
        sums.update([], [epoch])
    sums.update([span(1, "epoch", 5.0, 120.0), span(2, "never seen open", 6.0, 119.0)], [])
    ranges = sums.so_far("x").ranges
    assert ranges["epoch"].energy_j == pytest.approx(300 * 115, rel=0.01)
    assert ranges["never seen open"].energy_j is None
    assert ranges["never seen open"].reason == "outside_record"


def test_a_device_without_power_makes_no_quiet_sum():
    sums, stream = sums_of(300.0, 5.0, channels=[])
    stream.until = 4.0
    sums.update([span(1, "a", 1.0, 3.0)], [])
    found = sums.so_far("x")
    assert found.energy_j is None
    assert "energy unknown: no power sensor here" in str(found)


def test_names_without_number_are_summed_together(monkeypatch):
    monkeypatch.setattr(live_sums, "_MOST_PATHS", 3)
    sums, stream = sums_of(300.0, 10.0)
    stream.until = 9.0
    sums.update([span(i, f"batch {i}", 1 + 0.5 * i, 1.5 + 0.5 * i) for i in range(10)], [])
    ranges = sums.so_far("x").ranges
    assert len(ranges) == 4
    assert ranges[live_sums.OTHERS].count == 7


@pytest.mark.thorough
def test_what_is_recent_is_a_run_with_figures_and_intervals():
    sums, stream = sums_of(300.0, 60.0)
    stream.until = 58.0
    sums.update([span(i + 1, "a", 1.0 + i, 1.5 + i) for i in range(57)], [])
    run = sums.recent(20)
    (unit,) = [row for row in run.units.to_pylist() if row["level"] == "range"]
    found = run.result("energy_each_j", unit["id"])
    assert 15 <= unit["count"] <= 20
    assert found.low <= 150 <= found.high
    assert not run.complete


def test_a_line_says_simulated_and_names_what_took_most():
    sums, stream = sums_of(300.0, 10.0)
    stream.until = 9.0
    sums.update([span(1, "small", 1.0, 1.5), span(2, "big", 2.0, 6.0)], [])
    line = str(sums.so_far("mine"))
    assert line.startswith("mine: ")
    assert line.index("big") < line.index("small")
    assert "\n" not in line
    run = make_run(readings(300.0, 5.0), kind="record")
    run.devices[0].simulated = True
    assert str(LiveSums(run, Stream(run.samples), START).so_far("mine")).startswith("SIMULATED ")


def test_without_a_power_sensor_the_line_says_time_and_ranges():
    run = make_run([], kind="record", channels=[])
    sums = LiveSums(run, Stream(run.samples), ns(0.0))
    sums.update([span(1, "small", 0.0, 0.5), span(2, "big", 1.0, 3.0), span(3, "big", 3.0, 5.0)], [])
    found = sums.so_far("mine")
    assert found.energy_j is None
    assert found.time_s == pytest.approx(5.0)
    assert (
        str(found).replace("\u00a0", " ")
        == "mine: 5 s, energy unknown: no power sensor here, big 2 s × 2, small 500 ms × 1"
    )


# --- in a recording --------------------------------------------------------------------------------


@pytest.mark.thorough
def test_it_can_be_asked_while_it_runs(monkeypatch):
    monkeypatch.setattr(recordings, "_FLUSH_S", 0.1)
    with pytest.raises(BadInputError, match="has not begun"):
        jt.record(device=REAL).now()
    lines, called_s = [], []

    def update(found):
        lines.append(found)
        called_s.append(time.monotonic())

    with jt.record("loop", device=REAL, on_update=update, update_s=0.5) as recording:
        for _ in range(2):
            with jt.range("epoch"):
                for _ in range(12):
                    time.sleep(0.1)
                    jt.step()
        wait_for(lambda: len(lines) >= 3 and recording.now().ranges["epoch"].count == 2)
        found = recording.now()
        recent = recording.recent()
    assert found.simulated
    assert found.ranges["epoch"].count == 2
    assert found.ranges["epoch"].energy_j == pytest.approx(300 * found.ranges["epoch"].time_s, rel=0.03)
    assert found.ranges["epoch/step"].energy_j == pytest.approx(300 * found.ranges["epoch/step"].time_s, rel=0.03)
    assert recent.result("energy_total_j", 1).value == pytest.approx(300 * recent.result("time_s", 1).value, rel=0.01)
    assert [line.time_s for line in lines] == sorted(line.time_s for line in lines)
    assert np.diff(called_s).min() >= 0.49, "the recorder's start, which takes longer, is made up for by no second line"
    assert recording.now().ranges["epoch"].count == 2, "it can be asked when it is over, too"


@pytest.mark.thorough
def test_a_callback_that_fails_is_called_no_more_and_said(monkeypatch):
    monkeypatch.setattr(recordings, "_FLUSH_S", 0.05)
    calls = []

    def fail(found):
        calls.append(found)
        raise ValueError("no such dashboard")

    with jt.record(device=REAL, on_update=fail, update_s=0.1) as recording:
        wait_for(lambda: calls)
        time.sleep(0.5)
    assert len(calls) == 1
    assert any("no such dashboard" in warning.message for warning in recording.run.warnings)
    assert recording.run.complete


@pytest.mark.parametrize("options", [{"update_s": 0}, {"update_s": float("nan")}])
def test_seconds_that_make_no_sense_are_refused(options):
    with pytest.raises(BadInputError, match=next(iter(options))):
        jt.record(device=REAL, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_very_many_steps_leave_memory_as_it_was(steps, tmp_path, monkeypatch):
    """Spans go to disk, sums are sums: what grows is bounded by what comes between two flushes."""
    monkeypatch.setattr(recordings, "_FLUSH_S", 1e9)  # by hand, so that it does not depend on this machine's pace
    held = []

    def some(recording, n):
        for _ in range(n // 5_000):
            for _ in range(5_000):
                jt.step()
            recording.now()

    def measured(recording, n):
        tracemalloc.start()
        some(recording, n)
        held.append((tracemalloc.get_traced_memory()[0], pa.total_allocated_bytes()))
        tracemalloc.stop()

    with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
        some(recording, 50_000)  # as many as are kept for what is recent
        measured(recording, 10_000)
        some(recording, steps - 70_000)
        measured(recording, 10_000)
        assert len(recording.marks._ended) == 0
    (before, arrow), (after, arrow_after) = held
    assert after < 2 * before + 1_000_000
    assert arrow_after < arrow + 5_000_000
    assert sum(row["kind"] == "iteration" for row in recording.run.spans.select(["kind"]).to_pylist()) == steps
