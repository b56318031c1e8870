"""Where the energy of a recorded loop went, with kernels that the loop launches into a fake log."""

import os
import time

import pytest

import fake_kernels
import jouletrace as jt
from fake_kernels import launch
from jouletrace.analysis.recording import PHASE
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.program import tracer
from jouletrace.profiler.program.tracer import FIRST_RANGE, RangeMarks, Tracer
from jouletrace.profiler.record import recording as recordings
from jouletrace.profiler.record import split

REAL = "sim:h100?realtime=1&load=0.5:300"


@pytest.fixture(autouse=True)
def fake_log(monkeypatch):
    monkeypatch.setattr(tracer, "KernelLog", fake_kernels.FakeLog)
    monkeypatch.setattr(tracer, "cuda_runs", lambda: True)
    monkeypatch.setattr(recordings, "has_kernels", lambda devices: True)


def traces():
    """Wait until the kernels of a recording are traced, which begins beside the loop."""
    until = time.monotonic() + 60
    while Tracer.tracing is None and time.monotonic() < until:
        time.sleep(0.001)


def loop(steps=20):
    traces()
    for _ in range(steps):
        with jt.range("forward"):
            launch("gemm", 2e-3)
            with jt.range("head"):
                launch("softmax", 1e-3)
        launch("adam", 1e-3)
        jt.step()


def units(run, level):
    return {unit["name"]: unit for unit in run.units.to_pylist() if unit["level"] == level}


def test_a_recording_is_split_by_range_and_kernel(tmp_path):
    with jt.record("tiny", devices=REAL, save_to=tmp_path / "run") as recording:
        loop()
    found = recording.split
    assert (found.kind, found.workload["name"]) == ("program", "tiny")
    assert {name: unit["count"] for name, unit in units(found, "kernel").items()} == {
        "gemm": 20,
        "softmax": 20,
        "adam": 20,
    }
    forward, head = (units(found, "layer")[name]["id"] for name in ("forward", "forward.head"))
    assert found.result("time_s", forward).value >= 0.06
    assert found.result("time_s", head).value >= 0.02
    saved = jt.load(tmp_path / "run" / "kernels")
    assert saved.results.equals(found.results)
    run = jt.load(tmp_path / "run")
    assert run.complete
    assert not run.warnings
    counts = {unit["name"]: unit["count"] for unit in run.units.to_pylist() if unit["level"] == "range"}
    assert counts == {"forward": 20, "forward/head": 20, "step": 20}, "spans are kept beside the marks"
    total, whole = found.result("energy_total_j").value, run.result("energy_total_j", 1).value
    assert total == pytest.approx(whole, rel=0.2), "of nearly the same time"
    assert sum(found.workload[PHASE]["idle_by"].values()) == pytest.approx(1)


def test_the_split_of_a_zip_lies_beside_it(tmp_path):
    with jt.record(devices=REAL, save_to=tmp_path / "run.zip"):
        loop(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.kernels", "run.zip"]
    assert jt.load(tmp_path / "run.kernels").kind == "program"


@pytest.mark.parametrize("options", [{"kernels": False}, {"devices": "cpu"}])
def test_without_kernels_there_is_no_split(monkeypatch, tmp_path, options):
    monkeypatch.undo()
    monkeypatch.setattr(tracer, "KernelLog", None)  # nothing may ask for it
    with jt.record(**{"devices": REAL, "save_to": tmp_path / "run", **options}) as recording, jt.range("work"):
        pass
    assert recording.split is None
    assert not (tmp_path / "run" / "kernels").exists()
    assert not [warning for warning in recording.run.warnings if warning.code == "not_traced"]


def test_what_cannot_be_traced_is_said(monkeypatch):
    class Refused(fake_kernels.FakeLog):
        def start(self):
            raise NotPossibleError("kernel tracing: no permission to trace")

    monkeypatch.setattr(tracer, "KernelLog", Refused)
    with jt.record(devices=REAL) as recording:
        recording.now()
        time.sleep(0.3)
    assert recording.split is None
    (warning,) = [warning for warning in recording.run.warnings if warning.code == "not_traced"]
    assert "no permission" in warning.message
    assert recording.run.complete


def test_a_process_that_is_traced_already_is_not_traced_twice():
    outer = Tracer("run")
    try:
        with jt.record(devices=REAL) as recording:
            launch("gemm")
            recording.now()
            time.sleep(0.3)
    finally:
        assert len(outer.end().work) == 1
    (warning,) = [warning for warning in recording.run.warnings if warning.code == "not_traced"]
    assert "traced already" in warning.message


def test_a_fault_of_the_split_does_not_end_the_program(monkeypatch, tmp_path):
    monkeypatch.setattr(split, "gpus_of", lambda *_: 1 / 0)
    with jt.record(devices=REAL, save_to=tmp_path / "run") as recording:
        loop(2)
    assert recording.split is None
    run = jt.load(tmp_path / "run")
    assert run.complete
    assert any("ZeroDivisionError" in warning.message for warning in run.warnings)


def test_a_fork_traces_and_writes_nothing():
    with jt.record(devices=REAL) as recording:
        loop(2)
        child = os.fork()
        if child == 0:
            with jt.range("forked"):
                os._exit(0 if recording._tracer._over and recording._tracer._state.acquire(timeout=5) else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert set(units(recording.split, "layer")) >= {"forward"}


def test_ranges_that_change_while_nothing_is_traced_are_marked_afterwards():
    on, marked = [True], []
    marks = RangeMarks(lambda meaning: on[0] and not marked.append(meaning - FIRST_RANGE))
    outer = marks.begin("outer")
    on[0] = False
    for _ in range(100):
        marks.end(marks.begin("untraced"))
    marks.end(outer)
    inner = marks.begin("inner")
    on[0] = True
    marks.end(marks.begin("traced"))
    marks.end(inner)
    assert marks.paths == [("outer",), ("inner",), ("inner", "traced")], "untraced ranges need no memory"
    assert marked == [0, 1, 2, 4, 5, 3]


def test_a_paused_tracer_marks_nothing():
    found = Tracer("run", keep=True)
    found._pause()
    opened = found.marks.begin("within the pause")
    assert not fake_kernels.current._marks
    found._resume()
    found.marks.end(found.marks.begin("after"))
    found.marks.end(opened)
    assert [meaning - FIRST_RANGE for _, meaning in fake_kernels.current._marks] == [0, 2, 3, 1]
    assert [span.name for span in found.marks.take()] == ["after", "within the pause"]
    found.end()
