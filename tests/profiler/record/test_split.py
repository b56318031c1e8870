"""Where the energy of a recorded loop went, with kernels that the loop launches into a fake log."""

import gc
import os
import time
import weakref

import numpy as np
import pytest

import fake_kernels
import jouletrace as jt
from fake_kernels import launch
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.program import tracer
from jouletrace.profiler.program.range_marks import FIRST_RANGE, RangeMarks
from jouletrace.profiler.program.tracer import Tracer
from jouletrace.profiler.record import recording as recordings
from jouletrace.profiler.record import split
from jouletrace.profiler.record.ranks import merge_ranks
from jouletrace.profiler.record.split import summary, totals
from jouletrace.run import DeviceInfo
from jouletrace.run.recording_names import recording_of
from jouletrace.tracer.process_trace import Launched, Owners, ProcessTrace
from places import REPOSITORY
from records import channel, make_run, ns, phases, readings

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


@pytest.mark.thorough
def test_a_recording_is_split_by_range_and_kernel(tmp_path):
    with jt.record("tiny", device=REAL, save_to=tmp_path / "run") as recording:
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
    assert sum(recording_of(found)["idle_by"].values()) == pytest.approx(1)
    lines = str(recording).splitlines()
    assert lines[0].startswith("SIMULATED tiny: ")
    assert len(lines) <= 12


@pytest.mark.thorough
def test_the_largest_parts_are_printed_and_logged():
    found = jt.load(REPOSITORY / "docs" / "results" / "runs" / "resnet50-run-h200.zip")
    lines = summary(found, found).splitlines()
    assert "backward 56 %" in lines[1]
    shares = [int(line.split(" %")[0].split()[-1]) for line in lines[3:]]
    assert len(shares) == 6
    assert shares == sorted(shares, reverse=True)
    logged = totals(found, found)
    assert logged["energy_backward_j"] == pytest.approx(0.56 * 7575, rel=0.02)
    assert logged["energy_idle_j"] == pytest.approx(0.08 * 7575, rel=0.1)


@pytest.mark.thorough
def test_the_split_of_a_zip_lies_beside_it(tmp_path):
    with jt.record(device=REAL, save_to=tmp_path / "run.zip"):
        loop(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.kernels", "run.zip"]
    assert jt.load(tmp_path / "run.kernels").kind == "program"


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"kernels": False}, {"device": "cpu"}])
def test_without_kernels_there_is_no_split(monkeypatch, tmp_path, options):
    monkeypatch.undo()
    monkeypatch.setattr(tracer, "KernelLog", None)  # nothing may ask for it
    with jt.record(**{"device": REAL, "save_to": tmp_path / "run", **options}) as recording, jt.range("work"):
        pass
    assert recording.split is None
    assert not (tmp_path / "run" / "kernels").exists()
    assert not [warning for warning in recording.run.warnings if warning.code == "not_traced"]


@pytest.mark.thorough
def test_what_cannot_be_traced_is_reported(monkeypatch):
    class Refused(fake_kernels.FakeLog):
        def start(self):
            raise NotPossibleError("kernel tracing: no permission to trace")

    monkeypatch.setattr(tracer, "KernelLog", Refused)
    with jt.record(device=REAL) as recording:
        recording.now()
        time.sleep(0.3)
    assert recording.split is None
    (warning,) = [warning for warning in recording.run.warnings if warning.code == "not_traced"]
    assert "no permission" in warning.message
    assert recording.run.complete


@pytest.mark.thorough
def test_a_process_that_is_traced_already_is_not_traced_twice(monkeypatch, tmp_path):
    """Under ``jouletrace run``, whose environment it has."""
    monkeypatch.setenv("JOULETRACE_TRACE", str(tmp_path))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "native.so")
    with jt.record(device=REAL) as recording:
        recording.now()
        time.sleep(0.3)
    (warning,) = [warning for warning in recording.run.warnings if warning.code == "not_traced"]
    assert "traced already" in warning.message


@pytest.mark.thorough
def test_a_fault_of_the_split_does_not_end_the_program(monkeypatch, tmp_path):
    monkeypatch.setattr(split, "gpus_of", lambda *_: 1 / 0)
    with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
        loop(2)
    assert recording.split is None
    run = jt.load(tmp_path / "run")
    assert run.complete
    assert any("ZeroDivisionError" in warning.message for warning in run.warnings)


def test_a_tracer_that_has_ended_takes_no_memory():
    found = Tracer("run")
    found.end()
    gone = weakref.ref(found)
    del found
    fake_kernels.current = None
    gc.collect()
    assert gone() is None


@pytest.mark.thorough
def test_a_fork_traces_and_writes_nothing():
    with jt.record(device=REAL) as recording:
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
    found = Tracer("run")
    found._pause()
    opened = found.marks.begin("within the pause")
    assert not fake_kernels.current._marks
    found._resume()
    found.marks.end(found.marks.begin("after"))
    found.marks.end(opened)
    assert [meaning - FIRST_RANGE for _, meaning in fake_kernels.current._marks] == [0, 2, 3, 1]
    assert [span.name for span in found.marks.take()] == ["after", "within the pause"]
    found.end()


SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


def part_of_rank(place, rank, late_s, since=1.0):
    """The part of a rank: for 2 s products of 5 ms, each with a sum after it that ends once both ranks have come."""
    device = f"GPU-{rank}"
    at = since + 0.02 * np.arange(100)
    gemm, all_reduce = (at, at + 0.005 + late_s), (at + 0.005 + late_s, at + 0.016)
    start, end = (
        np.array([np.vectorize(ns)(one) for one in edges]).T.ravel() for edges in zip(gemm, all_reduce, strict=True)
    )
    numbers = np.arange(200)
    work = Launched(
        ("gemm", SUM), numbers % 2, start.astype(np.int64), end.astype(np.int64), numbers, np.zeros(200, int)
    )
    owners = Owners.none(200)
    run = make_run(
        readings(300.0, 10.0, noise=0.3, device=device),
        kind="record",
        spans=[{**row, "device": device} for row in phases(("monitor", 0.5, 9.5), ("program", 0.5 + 0.1 * rank, 9.5))],
        channels=[channel(device=device)],
    )
    run.devices, run.clock_pairs = [DeviceInfo(device, "GPU by hand")], []
    run.workload = {"name": "x", "rank": rank, "world_size": 2, "restart": 0}
    run.save(str(place / f"rank-{rank}"))
    split.leave(
        [ProcessTrace(100 + rank, "x", rank, [device], work, owners, [(ns(0.5), ns(9.5))])], place / f"rank-{rank}"
    )


@pytest.mark.thorough
def test_the_first_rank_says_how_long_each_waits_for_the_other(tmp_path):
    part_of_rank(tmp_path, 0, 0.0)
    part_of_rank(tmp_path, 1, 0.002)
    run = merge_ranks(tmp_path)
    assert not [warning for warning in run.warnings if warning.code in ("not_attributed", "child_lost")]
    found = jt.load(tmp_path / "kernels")
    ranks = {row["id"]: row["name"].partition(":")[0] for row in found.units.to_pylist() if row["level"] == "device"}
    seconds = {
        (ranks[row["parent"]], row["name"]): found.result("time_s", row["id"]).value
        for row in found.units.to_pylist()
        if row["level"] == "phase"
    }
    assert seconds["rank-0", "waiting for other ranks"] == pytest.approx(100 * 0.002, rel=0.01)
    assert seconds["rank-0", "communication"] == pytest.approx(100 * 0.009, rel=0.01)
    assert ("rank-1", "waiting for other ranks") not in seconds
    assert [(gpu["last"], gpu["collectives"]) for gpu in found.workload["recordings"]] == [(0, 100), (100, 100)]
    assert not list((tmp_path / "kernels").glob("*/")), "one Run holds both"
    lines = summary(run, found).splitlines()
    assert "rank-1 comes last in 100 % of 100 collectives" in "\n".join(lines)
    assert len(lines) <= 12


@pytest.mark.thorough
def test_the_kernels_of_a_rank_that_cannot_be_read_are_named(tmp_path):
    for rank in (0, 1):
        part_of_rank(tmp_path, rank, 0.0)
    (tmp_path / "rank-1" / split.TRACED).write_bytes(b"x")
    run = merge_ranks(tmp_path)
    assert any("what rank-1 ran can't be read" in warning.message for warning in run.warnings)
    assert recording_of(jt.load(tmp_path / "kernels"))["device"] == "GPU-0"


@pytest.mark.thorough
def test_a_rank_leaves_its_kernels_in_its_part(monkeypatch, tmp_path):
    for name, value in (("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    with jt.record(device=REAL, save_to=tmp_path / "run") as recording:
        assert Tracer.tracing is not None, "ranks begin with the same collective"
        loop(2)
    assert recording.split is None
    left = ProcessTrace.load(tmp_path / "run" / "rank-1" / split.TRACED)
    assert (left.rank, len(left.work)) == (1, 6)
