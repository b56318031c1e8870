"""The user's own loop recorded: its ranges and steps, nested, kept through whatever ends it, or refused."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

import jouletrace as jt
from commands import wait_for
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError, NotPossibleError, RecorderDiedError
from jouletrace.profiler.record import Recording
from jouletrace.profiler.record import ranges as marks
from jouletrace.profiler.record import recording as recordings
from jouletrace.recording import ProcessRecorder
from live_runs import REAL, energy, spans_of, unit
from pace import worked


@pytest.mark.thorough
def test_a_loop_has_its_steps_and_ranges_with_their_energy(tmp_path):
    for attempt in range(3):  # a recorder that a busy machine delays leaves a hole, and a short loop has no energy then
        place = tmp_path / f"run{attempt}"
        with jt.record("training", device=REAL, save_to=place) as recording:
            for _ in range(2):
                with jt.range("epoch"):
                    for _ in range(4):
                        with jt.range("forward"):
                            time.sleep(0.06)
                        jt.step()
                time.sleep(0.1)
        if energy(recording.run, "epoch/step").value is not None:
            break
    run = recording.run
    assert run.complete
    assert [len(spans_of(run, kind)) for kind in ("range", "iteration")] == [10, 8]
    epochs = [row for row in spans_of(run, "range") if row["name"] == "epoch"]
    for row in spans_of(run, "iteration") + [r for r in spans_of(run, "range") if r["name"] == "forward"]:
        (parent,) = [epoch for epoch in epochs if epoch["id"] == row["parent"]]
        within = parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]
        assert within, "the pause between epochs is in no step"
    assert unit(run, "epoch/step")["count"] == 8
    time_s = run.result("time_mean_s", unit(run, "epoch/step")["id"]).value
    assert time_s > 0.06
    assert energy(run, "epoch/step").value == pytest.approx(300 * time_s, rel=0.1)
    assert energy(run, "epoch").value == pytest.approx(1200 * time_s, rel=0.1)
    saved = jt.load(place)
    assert str(recording).rpartition("\nsaved ")[0] == str(saved), "with the table of its ranges"
    assert "epoch/forward" in str(recording)
    assert recording.summary().endswith(f"\nsaved {place} · more: jouletrace show {place}")
    assert saved.spans.equals(run.spans)
    assert analyse(saved).results.equals(run.results)
    assert not (place / "spool").exists()


def test_processes_that_come_while_a_loop_is_recorded_are_named(monkeypatch):
    from jouletrace.devices import CpuHost, Process

    looks = [[], [Process(7, "late", 2**30), Process(os.getpid(), "python")]]
    monkeypatch.setattr(CpuHost, "processes", lambda self: looks.pop(0))
    with jt.record("loop", device="cpu") as recording:
        time.sleep(0.1)
    (warning,) = [warning for warning in recording.run.warnings if warning.code == "other_processes"]
    assert warning.message.startswith("others use it, too: late (pid 7, 1.0 GiB);")


def test_marks_outside_of_a_recording_do_nothing():
    with jt.range("nothing"):
        jt.step()


@pytest.mark.thorough
def test_a_function_can_be_decorated_and_call_itself():
    @jt.range("half")
    def halve(n):
        return n if n < 2 else halve(n // 2)

    assert halve.__name__ == "halve"
    with jt.record(device=REAL) as recording:
        assert halve(8) == 1
    rows = sorted(spans_of(recording.run, "range"), key=lambda row: row["id"])
    assert len(rows) == 4
    assert [row["parent"] for row in rows] == [None, *(row["id"] for row in rows[:-1])]


@pytest.mark.thorough
def test_a_loop_that_fails_keeps_what_it_had(tmp_path):
    def loop():
        with jt.record(device=REAL, save_to=tmp_path / "run"):
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
    assert Recording.active is None


@pytest.mark.thorough
def test_an_empty_block_has_its_own_time_and_an_energy_only_where_the_sensor_resolves_it():
    with jt.record("nothing", device=REAL) as recording:
        pass
    seconds, energy = recording.run.result("time_s").value, recording.run.result("energy_total_j")
    assert seconds < 0.2
    assert energy.reason == ("sensor_too_slow" if seconds < 0.02 else None)


@pytest.mark.thorough
def test_what_close_ended_names_an_exception_only_while_one_is_handled(monkeypatch):
    monkeypatch.setattr(sys, "last_value", KeyboardInterrupt(), raising=False)
    for raised, said in ((None, "close()"), (ValueError("mine"), "ValueError: mine")):
        recording = jt.record("closed", device=REAL, kernels=False)
        recording.__enter__()
        try:
            if raised is not None:
                raise raised
            recording.close()
        except ValueError:
            recording.close()
        (warning,) = [one for one in recording.run.warnings if one.code == "interrupted"]
        assert warning.message == f"ended early by {said}; what was recorded until then is kept"


@pytest.mark.thorough
def test_ranges_that_cross_and_ranges_that_never_end_are_reported():
    with jt.record(device=REAL) as recording:
        a, b, c = (jt.range(name) for name in "abc")
        a.__enter__()
        b.__enter__()
        a.__exit__(None, None, None)
        b.__exit__(None, None, None)
        c.__enter__()
    c.__exit__(None, None, None)
    said = {warning.code: warning.message for warning in recording.run.warnings}
    assert "'a' and 'b' (once)" in said["ranges_crossed"]
    assert said["ranges_not_ended"] == "left out, since open when the recording ended: 'c'"
    assert {row["name"] for row in spans_of(recording.run, "range")} == {"a", "b"}


def test_of_many_pairs_of_ranges_that_cross_some_are_named_and_the_rest_counted():
    found = marks.Marks(time.time_ns)
    for i in range(5):
        for _ in range(2):
            outer, inner = found.begin(f"outer {i}"), found.begin("inner")
            found.end(outer)
            found.end(inner)
    ((_, message),) = found.warnings()
    assert "'outer 0' and 'inner' (2 times)" in message
    assert "'outer 3'" not in message
    assert "and 4 more" in message


@pytest.mark.thorough
def test_what_is_too_much_is_counted(monkeypatch):
    monkeypatch.setattr(marks, "MOST_SPANS", 5)
    with jt.record(device=REAL) as recording:
        for _ in range(8):
            jt.step()
    with pytest.warns(RuntimeWarning, match="has ended and records nothing now"), recording:
        jt.step()
    assert Recording.active is None
    assert len(spans_of(recording.run, "iteration")) == 5
    assert ["3 spans after" in w.message for w in recording.run.warnings if w.code == "spans_left_out"] == [True]


@pytest.mark.thorough
def test_spans_reach_the_disk_while_it_runs_and_leave_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "_FLUSH_S", 0.05)
    from jouletrace.run import SPOOL, read_spool

    with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
        for _ in range(100):
            jt.step()
        wait_for(lambda: len(read_spool(tmp_path / "run" / SPOOL, "spans")) == 100)
        assert len(recording.marks._ended) == 0
    assert len(spans_of(recording.run, "iteration")) == 100


@pytest.mark.thorough
def test_a_mark_costs_little():
    """At a thousand ranges a second, half a percent is 5 µs, or 170 additions; ten times that is given."""
    with jt.record(device=REAL), worked() as work:
        for _ in range(2000):
            with jt.range("x"):
                pass
    assert work.loops < 2000 * 1700e-6


@pytest.mark.thorough
def test_a_recording_within_another_is_a_range_of_it_and_is_warned_of_once(tmp_path):
    def epochs():
        for _ in range(3):
            with jt.record("second", device=REAL, save_to=tmp_path / "run") as inner, jt.range("forward"):
                inner.step()
                assert inner.now().label == "first"
            assert inner.run is None

    with jt.record("first", device=REAL, save_to=tmp_path / "run") as outer:
        with pytest.warns(RuntimeWarning, match="'second' is within the active 'first'.*nothing is saved to") as said:
            epochs()
        assert Recording.active is outer
    assert len(said) == 1
    assert said[0].filename == __file__
    assert [w.code for w in jt.load(tmp_path / "run").warnings].count("record_within") == 1
    names = [row["name"] for row in outer.run.units.to_pylist() if row["level"] == "range"]
    assert names == ["second", "second/forward", "second/forward/step"]
    assert unit(outer.run, "second")["count"] == 3


@pytest.mark.thorough
def test_a_recording_entered_again_while_it_is_on_is_a_range_of_itself():
    with jt.record("mine", device=REAL) as recording:
        with pytest.warns(RuntimeWarning, match="'mine' is within the active 'mine'"), recording:
            jt.step()
        jt.step()
    assert {row["name"] for row in spans_of(recording.run, "range")} == {"mine"}
    assert len(spans_of(recording.run, "iteration")) == 2


@pytest.mark.thorough
def test_a_recording_within_another_may_outlast_it():
    outer, inner = jt.record("outer", device=REAL), jt.record("inner", device=REAL)
    outer.__enter__()
    with pytest.warns(RuntimeWarning, match="'inner' is within the active 'outer'"):
        inner.__enter__()
    outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert {w.code for w in outer.run.warnings} >= {"record_within", "ranges_not_ended"}
    assert Recording.active is None


@pytest.mark.thorough
def test_a_recording_that_was_within_another_reports_what_that_one_has_measured():
    inner = jt.record("inner", device=REAL)
    with jt.record("outer", device=REAL) as outer:
        with pytest.raises(BadInputError, match="'inner' has not begun"):
            inner.now()
        labels = []
        with pytest.warns(RuntimeWarning, match="'inner' is within the active 'outer'"), inner:
            labels.append(inner.now().label)
        labels.append(inner.now().label)  # it has begun, and is over
        with inner, jt.record("third", device=REAL) as third:
            labels += [inner.now().label, third.now().label]
        labels.append(third.now().label)
        assert labels == 5 * ["outer"]
        assert inner.recent(1.0).workload["name"] == "outer"
        inner.step()
    assert inner.now().label == "outer", "as of any recording that is over"
    assert (inner.run, len(spans_of(outer.run, "iteration"))) == (None, 1)
    with inner:
        assert inner.now().label == "inner"
    assert inner.run.workload["name"] == inner.now().label == "inner"


@pytest.mark.thorough
def test_a_recording_that_ends_while_another_begins_within_it_has_its_range_and_its_warning(monkeypatch):
    class EndsOuter:
        """Whoever waits for the lock gets it as soon as it is free: here it is the end of the outer recording."""

        def __init__(self, lock):
            self.lock, self.armed = lock, True

        def __enter__(self):
            self.lock.acquire()

        def __exit__(self, *error):
            self.lock.release()
            if self.armed:
                self.armed = False
                outer.__exit__(None, None, None)

    with jt.record("outer", device=REAL) as outer:
        monkeypatch.setattr(Recording, "_changing", EndsOuter(Recording._changing))
        with (
            pytest.warns(RuntimeWarning, match="'inner' is within the active 'outer'"),
            jt.record("inner", device=REAL) as inner,
        ):
            assert outer.run is not None
    assert inner.run is None
    assert {w.code for w in outer.run.warnings} >= {"record_within", "ranges_not_ended"}


@pytest.mark.thorough
def test_where_warnings_are_errors_a_recording_within_another_leaves_nothing_open():
    gc.collect()  # what recordings that failed before have left open would warn here
    with jt.record("outer", device=REAL) as outer:
        for _ in range(2):
            with (
                warnings.catch_warnings(action="error"),
                pytest.raises(RuntimeWarning, match="'inner' is within the active 'outer'"),
                jt.record("inner", device=REAL),
            ):
                pytest.fail("it has begun")
        with jt.range("after"):
            pass
    assert {row["name"] for row in spans_of(outer.run, "range")} == {"after"}
    assert not {w.code for w in outer.run.warnings} & {"record_within", "ranges_not_ended"}


@pytest.mark.thorough
def test_a_range_that_ends_twice_is_warned_of_once_and_the_loop_goes_on():
    def loop(load):
        for _ in range(3):
            load.__enter__()
            load.__exit__(None, None, None)
            load.__exit__(None, None, None)
        jt.step()

    with (
        jt.record(device=REAL) as recording,
        pytest.warns(RuntimeWarning, match="'load' ends without having begun, or twice") as said,
    ):
        loop(jt.range("load"))
    assert len(said) == 1
    assert unit(recording.run, "load")["count"] == 3
    (message,) = [w.message for w in recording.run.warnings if w.code == "ranges_not_begun"]
    assert "'load' (3 times)" in message


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"device": []}, NotPossibleError, "no device was named"),
        ({"device": "sim:h100?realtime=0"}, BadInputError, "leave out realtime=0"),
        ({"device": "sim:none"}, BadInputError, "none"),
    ],
)
def test_what_cannot_be_recorded_is_refused(options, error, said):
    with pytest.raises(error, match=said), jt.record(**options):
        pass
    assert Recording.active is None


def test_a_place_that_is_taken_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(BadInputError):
        jt.record(device=REAL, save_to=tmp_path)


@pytest.mark.thorough
def test_a_zip_is_one_file(tmp_path):
    with jt.record(device=REAL, save_to=tmp_path / "run.zip"):
        time.sleep(0.1)
    assert jt.load(tmp_path / "run.zip").complete
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


@pytest.mark.thorough
def test_after_the_end_the_figures_so_far_are_those_of_the_run():
    with jt.record(device=REAL) as recording:
        for _ in range(2):
            with jt.range("x"):
                time.sleep(0.3)
    found, run = recording.now(), recording.run
    assert [found.time_s, found.energy_j, found.power_w] == [
        run.result(name).value for name in ("time_s", "energy_total_j", "power_w")
    ]
    assert (found.ranges["x"].count, recording.now()) == (2, found)


@pytest.mark.thorough
def test_a_dead_recorder_is_reported_at_the_end(tmp_path):
    def loop():
        with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
            jt.step()
            recording.now()  # waits for the recorder
            os.kill(recording._session.recorder.pid, signal.SIGKILL)
            time.sleep(0.1)
            jt.step()

    with pytest.raises(RecorderDiedError, match="killed by signal 9"):
        loop()
    run = jt.load(tmp_path / "run")
    assert not run.complete
    assert len(spans_of(run, "iteration")) == 2


@pytest.mark.thorough
def test_a_gpu_that_keeps_no_past_says_from_when_on_it_was_recorded():
    """And one that keeps it, as most simulated ones, has its record from the start on."""
    found = {}
    for name in ("a100-80", "h100-80"):
        with jt.record(device=f"sim:{name}?realtime=1&load=0.5:300") as recording:
            recording.now()
            time.sleep(0.5)
        phase = next(row for row in recording.run.spans.to_pylist() if row["name"] == "monitor")
        late = [warning for warning in recording.run.warnings if warning.code == "recorded_late"]
        found[name] = (phase["start_ns"] > recording._start_ns, len(late))
        assert recording.run.result("energy_total_j", 1).value > 0
    assert found == {"a100-80": (True, 1), "h100-80": (False, 0)}


@pytest.mark.thorough
def test_a_recorder_that_cannot_start_leaves_the_loop_alone_and_is_reported_at_the_end(tmp_path, monkeypatch):
    def start(self):
        raise RecorderDiedError("the recorder can't start: no process left")

    monkeypatch.setattr(ProcessRecorder, "start", start)

    def loop():
        with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
            jt.step()
            assert "no process left" in str(recording.now())
            with pytest.raises(RecorderDiedError, match="no process left"):
                recording.recent(1)

    with pytest.raises(RecorderDiedError, match="no process left"):
        loop()
    run = jt.load(tmp_path / "run")
    assert not run.complete
    assert any("no process left" in warning.message for warning in run.warnings)
    assert len(spans_of(run, "iteration")) == 1


@pytest.mark.thorough
def test_a_program_that_exits_inside_keeps_its_recording(tmp_path):
    body = (
        "import sys, time, jouletrace as jt\n"
        f"jt.record(device={REAL!r}, save_to={str(tmp_path / 'run')!r}).__enter__()\n"
        "for _ in range(3): time.sleep(0.05); jt.step()\n"
        "sys.exit(3)"
    )
    found = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert found.returncode == 3, found.stderr
    assert "Traceback" not in found.stderr
    run = jt.load(tmp_path / "run")
    assert len(spans_of(run, "iteration")) == 3


@pytest.mark.thorough
def test_names_that_are_no_strings_go_by_how_they_print():
    with jt.record(7, device=REAL) as recording:
        for name in (3, None, ("a", 1), b"x"):
            with jt.range(name):
                pass
    assert recording.run.workload["name"] == "7"
    assert [row["name"] for row in spans_of(recording.run, "range")] == ["3", "None", "('a', 1)", "b'x'"]


def test_a_recording_that_has_not_begun_says_so():
    recording = jt.record(device=REAL)
    for use in (recording.step, recording.skip, recording.now, recording.recent, lambda: recording.marks):
        with pytest.raises(BadInputError, match="has not begun"):
            use()
    with pytest.raises(BadInputError, match="has not begun"):
        recording.__exit__(None, None, None)
    with pytest.warns(RuntimeWarning, match="without having begun"):
        jt.range("a").__exit__(None, None, None)


@pytest.mark.parametrize(
    "options",
    [{"device": 3}, {"device": [None]}, {"update_s": None}, {"on_update": 3}, {"save_to": 3}],
)
def test_arguments_of_the_wrong_kind_are_named(options):
    with pytest.raises(BadInputError, match=next(iter(options))):
        jt.record(**{"device": REAL, **options})


def test_functions_whose_body_runs_later_are_not_decorated():
    def generator():
        yield

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(BadInputError, match="inside it"):
            jt.range("late")(function)


def test_a_line_of_figures_so_far_shows_control_characters():
    assert "\x1b" not in str(jt.SoFar("a\x1b[31m\nb", 1.0, 2.0, 3.0))


@pytest.mark.thorough
def test_recent_needs_a_time():
    with jt.record(device=REAL) as recording:
        for seconds in (0, -1, float("nan"), "3", None):
            with pytest.raises(BadInputError, match="recent"):
                recording.recent(seconds)
