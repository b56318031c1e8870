"""The user's own loop: ranges and steps, nested, from several threads, and what they took."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import jouletrace as jt
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError, NotPossibleError, RecorderDiedError
from jouletrace.profiler.programs import current, marks
from jouletrace.profiler.programs import recording as recordings
from records import DEVICE, make_run, ns, phases, readings

REAL = "sim:h100?realtime=1&load=0.5:300"


# --- the figures -----------------------------------------------------------------------------------


def marked(spans, watts, seconds, **changes):
    """A recording with these spans: (kind, name, start, end[, parent id[, lane]])."""
    rows = phases(("monitor", 0.1, seconds - 0.1))
    for i, (kind, name, start, end, *rest) in enumerate(spans, start=1):
        parent, lane = [*rest, None, "main"][:2] if len(rest) < 2 else rest
        facts = {"id": i, "parent": parent, "kind": kind, "name": name, "device": DEVICE, "lane": lane}
        rows.append({**facts, "start_ns": ns(start), "end_ns": ns(end)})
    return analyse(make_run(readings(watts, seconds, noise=0.3), kind="record", spans=rows, **changes))


def unit(run, name):
    return next(row for row in run.units.to_pylist() if row["level"] == "range" and row["name"] == name)


def energy(run, name):
    return run.result("energy_total_j", unit(run, name)["id"])


def test_a_long_range_is_a_window_and_several_are_a_mean():
    def watts(t):
        return np.where((t % 2) < 1, 100.0, 500.0)

    run = marked([("range", "busy", 1.0 + 2 * i, 2.0 + 2 * i) for i in range(10)], watts, 24.0)
    found = energy(run, "busy")
    assert found.value == pytest.approx(500.0, rel=2e-3)
    assert found.low <= 500.0 <= found.high
    assert found.half_width < 5.0
    assert found.n == 10
    assert unit(run, "busy")["count"] == 10
    single = energy(marked([("range", "busy", 1.0, 2.0)], watts, 6.0), "busy")
    assert single.value == pytest.approx(500.0, rel=1e-2)
    assert single.low <= 500.0 <= single.high


def short_steps(n=1500):
    """Steps of about 13 ms: 5 ms forward, 5 ms backward, the rest between; not in tune with the sensor."""
    rng = np.random.default_rng(3)
    spans, at = [], 1.0
    for _ in range(n):
        a = at + 0.001
        b, c = a + 0.005, a + 0.0055
        end = c + 0.005 + 0.0015 + rng.uniform(0, 0.001)
        spans += [("range", "forward", a, b), ("range", "backward", c, c + 0.005), ("iteration", "step", at, end)]
        at = end
    return spans, at


def power_of(spans, levels, seconds):
    """20 ms means of levels by name of range, 100 W elsewhere, as ``readings`` asks for them: at mid-period."""
    edges, watts = [0.0], [100.0]
    for _, name, start, end in sorted((s for s in spans if s[0] == "range"), key=lambda s: s[2]):
        edges += [start, end]
        watts += [levels[name], 100.0]
    edges, watts = np.array(edges), np.array(watts)
    total = np.concatenate([[0.0], np.cumsum(np.diff(np.append(edges, seconds + 1)) * watts)])
    knots = np.append(edges, seconds + 1)

    def mean(t):
        return (np.interp(t + 0.01, knots, total) - np.interp(np.maximum(t - 0.01, 0), knots, total)) / 0.02

    return mean


def test_short_ranges_that_repeat_are_told_apart():
    spans, end = short_steps()
    run = marked(spans, power_of(spans, {"forward": 600.0, "backward": 300.0}, end + 2), round(end + 1.5, 1))
    for name, joules in (("forward", 3.0), ("backward", 1.5)):
        found = energy(run, name)
        assert found.method == "repeated"
        assert found.value == pytest.approx(joules, rel=0.1)
        assert found.low <= joules <= found.high
        assert run.result("time_s", unit(run, name)["id"]).value == pytest.approx(0.005, rel=0.01)


def test_of_very_many_ranges_the_middle_is_enough(monkeypatch):
    """Also for one that came before it."""
    monkeypatch.setattr("jouletrace.analysis.ranges.MOST_REPEATED", 2000)
    spans, end = short_steps()
    renamed = [("range", "save", *s[2:]) if s[1] == "forward" and i < 300 else s for i, s in enumerate(spans)]
    levels = {"forward": 600.0, "backward": 300.0, "save": 600.0}
    run = marked(renamed, power_of(renamed, levels, end + 2), round(end + 1.5, 1))
    for name, joules, n in (("forward", 3.0, 1000), ("backward", 1.5, 1000), ("save", 3.0, 100)):
        found = energy(run, name)
        assert found.n == n
        assert found.value == pytest.approx(joules, rel=0.1), name
        assert found.low <= joules <= found.high


def test_what_runs_in_a_pause_of_the_loop_is_not_taken_for_its_rest():
    """Half a second at 650 W between two epochs, and before and after, while between ranges it is 100 W."""
    spans, end = short_steps(1000)
    middle = spans[1500][2]
    parted = [s if i < 1500 else (s[0], s[1], s[2] + 0.5, s[3] + 0.5) for i, s in enumerate(spans)]
    others = [("range", "other", 0.2, 0.9), ("range", "other", middle + 0.01, middle + 0.49)]
    others.append(("range", "other", end + 0.51, end + 1.2))
    levels = {"forward": 600.0, "backward": 300.0, "other": 650.0}
    run = marked(parted, power_of(parted + others, levels, end + 3), round(end + 2.5, 1))
    for name, joules in (("forward", 3.0), ("backward", 1.5)):
        found = energy(run, name)
        assert found.value == pytest.approx(joules, rel=0.005), name
        assert abs(found.value - joules) < 2 * found.half_width


def test_ranges_of_microseconds_have_no_energy():
    run = marked([("range", "blink", 1 + 0.0137 * i, 1.00003 + 0.0137 * i) for i in range(200)], 300.0, 5.0)
    assert energy(run, "blink").reason == "sensor_too_slow"


def test_steps_in_a_row_are_blocks():
    spans, end = short_steps()
    run = marked(spans, power_of(spans, {"forward": 600.0, "backward": 300.0}, end + 2), round(end + 1.5, 1))
    seconds = (end - 1.0) / 1500
    joules = 100 * seconds + 500 * 0.005 + 200 * 0.005
    found = energy(run, "step")
    assert found.value == pytest.approx(joules, rel=5e-3)
    assert found.low <= joules <= found.high
    assert found.half_width < 0.02 * joules
    assert 20 <= found.n <= 41


def test_steps_of_two_epochs_leave_out_what_lies_between():
    """300 W in the steps, 100 W in between: the pause is in no step."""

    def watts(t):
        return np.where((t >= 4.0) & (t < 6.0), 100.0, 300.0)

    steps = [("iteration", "step", at, at + 0.1) for at in (*np.arange(2.0, 3.95, 0.1), *np.arange(6.0, 7.95, 0.1))]
    found = energy(marked(steps, watts, 10.0), "step")
    assert found.value == pytest.approx(30.0, rel=5e-3)


def test_a_short_range_that_came_once_is_null_and_says_why():
    run = marked([("range", "blink", 2.0, 2.005)], 300.0, 5.0)
    assert energy(run, "blink").reason == "sensor_too_slow"
    assert run.result("time_s", unit(run, "blink")["id"]).value == pytest.approx(0.005)


def test_short_ranges_of_threads_that_overlap_are_null():
    spans = [("range", "a", 1 + 0.0137 * i, 1.008 + 0.0137 * i, None, "one") for i in range(40)]
    spans += [("range", "a", 1.004 + 0.0137 * i, 1.012 + 0.0137 * i, None, "two") for i in range(40)]
    assert energy(marked(spans, 300.0, 5.0), "a").reason == "ranges_overlap"


def test_ranges_of_one_name_in_different_ranges_are_different():
    spans = [("range", "train", 1.0, 4.0), ("range", "load", 1.0, 2.0, 1)]
    spans += [("range", "test", 5.0, 8.0), ("range", "load", 5.0, 7.0, 3)]
    run = marked(spans, 300.0, 10.0)
    assert [row["name"] for row in run.units.to_pylist() if row["level"] == "range"] == [
        "train",
        "train/load",
        "test",
        "test/load",
    ]
    assert unit(run, "test/load")["parent"] == unit(run, "test")["id"]
    assert energy(run, "test/load").value == pytest.approx(600.0, rel=5e-3)


def test_ranges_without_a_power_sensor_have_time_only():
    run = marked([("range", "a", 1.0, 3.0)], 300.0, 5.0, channels=[])
    assert energy(run, "a").reason == "no_power_sensor"
    assert run.result("time_s", unit(run, "a")["id"]).value == pytest.approx(2.0)


def test_a_range_that_did_not_wait_for_the_gpu_says_so():
    run = marked([("range", "a", 1.0, 3.0)], 300.0, 5.0, settings={"not_synchronised": ["a"]})
    assert run.result_flags("energy_total_j", unit(run, "a")["id"])[0] == "host_time"


# --- marking ---------------------------------------------------------------------------------------


def spans_of(run, kind):
    return [row for row in run.spans.to_pylist() if row["kind"] == kind]


def test_a_loop_has_its_steps_and_ranges_with_their_energy(tmp_path):
    with jt.record("training", devices=REAL, save_to=tmp_path / "run") as recording:
        for _ in range(2):
            with jt.range("epoch"):
                for _ in range(4):
                    with jt.range("forward"):
                        time.sleep(0.06)
                    jt.step()
            time.sleep(0.1)
    run = recording.run
    assert run.complete
    assert [len(spans_of(run, kind)) for kind in ("range", "iteration")] == [10, 8]
    epochs = [row for row in spans_of(run, "range") if row["name"] == "epoch"]
    for row in spans_of(run, "iteration") + [r for r in spans_of(run, "range") if r["name"] == "forward"]:
        (parent,) = [epoch for epoch in epochs if epoch["id"] == row["parent"]]
        assert parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]
    assert unit(run, "epoch/step")["count"] == 8
    time_s = run.result("time_s", unit(run, "epoch/step")["id"]).value
    assert 0.06 < time_s < 0.16, "the pause between epochs is in no step"
    assert energy(run, "epoch/step").value == pytest.approx(300 * time_s, rel=0.1)
    assert energy(run, "epoch").value == pytest.approx(1200 * time_s, rel=0.1)
    saved = jt.load(tmp_path / "run")
    assert saved.spans.equals(run.spans)
    assert analyse(saved).results.equals(run.results)
    assert not (tmp_path / "run" / "spool").exists()


def test_marks_outside_of_a_recording_do_nothing():
    with jt.range("nothing"):
        jt.step()


def test_a_function_can_be_decorated_and_call_itself():
    @jt.range("half")
    def halve(n):
        return n if n < 2 else halve(n // 2)

    assert halve.__name__ == "halve"
    with jt.record(devices=REAL) as recording:
        assert halve(8) == 1
    rows = sorted(spans_of(recording.run, "range"), key=lambda row: row["id"])
    assert len(rows) == 4
    assert [row["parent"] for row in rows] == [None, *(row["id"] for row in rows[:-1])]


def test_threads_have_ranges_and_steps_of_their_own():
    def work(name):
        for _ in range(3):
            with jt.range(name):
                time.sleep(0.01)
            jt.step()

    with jt.record(devices=REAL) as recording:
        threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in ("one", "two"):
        lanes = {row["lane"] for row in spans_of(recording.run, "range") if row["name"] == name}
        assert len(lanes) == 1
        assert lanes.pop().startswith(name)
    assert all(row["parent"] is None for row in spans_of(recording.run, "range"))
    # The first mark of another thread only says where its second step begins.
    assert len(spans_of(recording.run, "iteration")) == 4


def test_a_loop_that_fails_keeps_what_it_had(tmp_path):
    def loop():
        with jt.record(devices=REAL, save_to=tmp_path / "run"):
            with jt.range("load"):
                time.sleep(0.05)
            with jt.range("fail"):
                raise ValueError("out of data")

    with pytest.raises(ValueError, match="out of data"):
        loop()
    run = jt.load(tmp_path / "run")
    assert not run.complete
    assert {row["name"] for row in spans_of(run, "range")} == {"load", "fail"}
    assert any("out of data" in warning.message for warning in run.warnings)
    assert current.current is None


def test_ranges_that_cross_and_ranges_that_never_end_are_said():
    with jt.record(devices=REAL) as recording:
        a, b, c = (jt.range(name) for name in "abc")
        a.__enter__()
        b.__enter__()
        a.__exit__(None, None, None)
        b.__exit__(None, None, None)
        c.__enter__()
    c.__exit__(None, None, None)
    codes = [warning.code for warning in recording.run.warnings]
    assert "ranges_crossed" in codes
    assert "ranges_not_ended" in codes
    assert {row["name"] for row in spans_of(recording.run, "range")} == {"a", "b"}


def test_what_is_too_much_is_counted(monkeypatch):
    monkeypatch.setattr(marks, "MOST_SPANS", 5)
    with jt.record(devices=REAL) as recording:
        for _ in range(8):
            jt.step()
    with pytest.raises(BadInputError, match="has ended"):
        recording.__enter__()
    assert len(spans_of(recording.run, "iteration")) == 5
    assert ["3 spans came after" in w.message for w in recording.run.warnings if w.code == "spans_left_out"] == [True]


def test_spans_reach_the_disk_while_it_runs_and_leave_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "_FLUSH_S", 0.05)
    from jouletrace.run.spool import read_spool
    from jouletrace.run.store import SPOOL

    with jt.record(devices=REAL, save_to=tmp_path / "run") as recording:
        for _ in range(100):
            jt.step()
        time.sleep(0.5)
        assert len(recording.marks._ended) == 0
        assert len(read_spool(tmp_path / "run" / SPOOL, "spans")) == 100
    assert len(spans_of(recording.run, "iteration")) == 100


def test_a_mark_costs_little():
    """At a thousand ranges a second, half a percent is 5 µs; a busy machine is given ten times that."""
    with jt.record(devices=REAL):
        began = time.perf_counter()
        for _ in range(2000):
            with jt.range("x"):
                pass
        each = (time.perf_counter() - began) / 2000
    assert each < 50e-6


def test_one_recording_at_a_time():
    with (
        jt.record("first", devices=REAL),
        pytest.raises(BadInputError, match="a recording is on already \\('first'\\)"),
        jt.record("second", devices=REAL),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"devices": []}, NotPossibleError, "no device was named"),
        ({"devices": "sim:h100"}, BadInputError, "write sim:h100\\?realtime=1"),
        ({"devices": "sim:none"}, BadInputError, "none"),
    ],
)
def test_what_cannot_be_recorded_is_refused(options, error, said):
    with pytest.raises(error, match=said), jt.record(**options):
        pass
    assert current.current is None


def test_a_place_that_is_taken_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(BadInputError):
        jt.record(devices=REAL, save_to=tmp_path)


def test_a_zip_is_one_file(tmp_path):
    with jt.record(devices=REAL, save_to=tmp_path / "run.zip"):
        time.sleep(0.1)
    assert jt.load(tmp_path / "run.zip").complete
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


def test_a_dead_recorder_is_said_at_the_end(tmp_path):
    def loop():
        with jt.record(devices=REAL, save_to=tmp_path / "run") as recording:
            jt.step()
            os.kill(recording._session.recorder.pid, signal.SIGKILL)
            time.sleep(0.1)
            jt.step()

    with pytest.raises(RecorderDiedError, match="killed by signal 9"):
        loop()
    run = jt.load(tmp_path / "run")
    assert not run.complete
    assert len(spans_of(run, "iteration")) == 2


def test_a_program_that_exits_inside_keeps_its_recording(tmp_path):
    body = (
        "import sys, time, jouletrace as jt\n"
        f"jt.record(devices={REAL!r}, save_to={str(tmp_path / 'run')!r}).__enter__()\n"
        "for _ in range(3): time.sleep(0.05); jt.step()\n"
        "sys.exit(3)"
    )
    found = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert found.returncode == 3, found.stderr
    assert "Traceback" not in found.stderr
    run = jt.load(tmp_path / "run")
    assert len(spans_of(run, "iteration")) == 3


# --- strange use -----------------------------------------------------------------------------------


def test_steps_of_threads_that_overlap_are_null():
    spans = [
        ("iteration", "step", 1 + 0.1 * i + lane, 1.1 + 0.1 * i + lane, None, f"t{lane}")
        for i in range(20)
        for lane in (0, 0.03)
    ]
    assert energy(marked(spans, 300.0, 5.0), "step").reason == "ranges_overlap"


def test_of_very_many_names_those_with_the_most_time_have_energy(monkeypatch):
    monkeypatch.setattr("jouletrace.analysis.ranges._MOST_NAMES", 3)
    lengths = [0.3, 0.9, 0.25, 0.8, 0.7]
    starts = np.cumsum([1.0, *lengths[:-1]])
    run = marked(
        [("range", f"batch {i}", a, a + d) for i, (a, d) in enumerate(zip(starts, lengths, strict=True))], 300.0, 6.0
    )
    reasons = [energy(run, f"batch {i}").reason for i in range(5)]
    assert reasons == ["too_many_names", None, "too_many_names", None, None]
    assert run.result("time_s", unit(run, "batch 0")["id"]).value == pytest.approx(0.3)


def test_short_ranges_of_ten_thousand_names_are_no_reason_to_wait():
    spans = [("range", f"batch {i}", 1 + 1e-3 * i, 1.0005 + 1e-3 * i) for i in range(2000)]
    began = time.monotonic()
    run = marked(spans, 300.0, 5.0)
    assert time.monotonic() - began < 10
    assert energy(run, "batch 0").reason == "sensor_too_slow"


def test_names_that_are_no_strings_go_by_how_they_print():
    with jt.record(7, devices=REAL) as recording:
        for name in (3, None, ("a", 1), b"x"):
            with jt.range(name):
                pass
    assert recording.run.workload["name"] == "7"
    assert [row["name"] for row in spans_of(recording.run, "range")] == ["3", "None", "('a', 1)", "b'x'"]


def test_a_recording_that_has_not_begun_says_so():
    recording = jt.record(devices=REAL)
    for use in (recording.step, recording.skip, recording.now, recording.recent, lambda: recording.marks):
        with pytest.raises(BadInputError, match="has not begun"):
            use()
    with pytest.raises(BadInputError, match="has not begun"):
        recording.__exit__(None, None, None)
    with pytest.raises(BadInputError, match="without having begun"):
        jt.range("a").__exit__(None, None, None)


@pytest.mark.parametrize(
    "options",
    [{"devices": 3}, {"devices": [None]}, {"trace_s": "3"}, {"update_s": None}, {"on_update": 3}, {"save_to": 3}],
)
def test_arguments_of_the_wrong_kind_are_named(options):
    with pytest.raises(BadInputError, match=next(iter(options))):
        jt.record(**{"devices": REAL, **options})


def test_functions_whose_body_runs_later_are_not_decorated():
    def generator():
        yield

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(BadInputError, match="inside of it"):
            jt.range("late")(function)


def test_marks_of_other_threads_while_a_recording_begins_do_nothing():
    failed, over = [], threading.Event()

    def work():
        while not over.is_set():
            try:
                with jt.range("early"):
                    jt.step()
            except Exception as error:
                failed.append(error)
                return

    thread = threading.Thread(target=work)
    thread.start()
    with jt.record(devices=REAL):
        pass
    over.set()
    thread.join()
    assert not failed


@pytest.mark.parametrize("wrong", [SystemExit, KeyboardInterrupt])
def test_an_update_that_asks_to_exit_does_not_end_the_recording(wrong):
    def update(_):
        raise wrong

    with jt.record(devices=REAL, on_update=update, update_s=0.1) as recording:
        time.sleep(1.3)
        assert recording._flusher.is_alive()
    assert any(warning.code == "update_failed" for warning in recording.run.warnings)


def test_an_update_cannot_end_the_recording_and_one_that_hangs_does_not_hold_it(monkeypatch):
    monkeypatch.setattr(recordings, "_PATIENCE_S", 0.2)
    over = threading.Event()
    asked = []

    def update(_):
        with pytest.raises(BadInputError, match="can't be ended by on_update"):
            recording.__exit__(None, None, None)
        asked.append(True)
        over.wait(20)

    recording = jt.record(devices=REAL, on_update=update, update_s=0.1)
    with recording:
        time.sleep(1.5)
    assert asked
    assert not over.is_set()
    over.set()
    assert any("had not come back" in warning.message for warning in recording.run.warnings)


def test_several_threads_may_end_a_recording():
    recording = jt.record(devices=REAL).__enter__()
    failed = []

    def end():
        try:
            recording.__exit__(None, None, None)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=end) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert recording.run is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_does_not_write_into_its_parents_recording():
    with jt.record(devices=REAL) as recording:
        child = os.fork()
        if child == 0:
            try:
                recording.now()
            except BadInputError as error:
                os._exit(0 if "recording of process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_line_of_figures_so_far_shows_control_characters():
    assert "\x1b" not in str(jt.SoFar("a\x1b[31m\nb", 1.0, 2.0, 3.0))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "3", None])
def test_recent_needs_a_time(seconds):
    with jt.record(devices=REAL) as recording, pytest.raises(BadInputError, match="recent"):
        recording.recent(seconds)
