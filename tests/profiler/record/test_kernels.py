"""Kernels of a segment of a program, and what its GPUs say to one another."""

import time

import numpy as np
import pytest

import jouletrace as jt
from jouletrace.analysis import analyse
from jouletrace.analysis.communication import ALONE, BESIDE, OTHERS, states
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.record import kernel_stretch
from jouletrace.profiler.record.kernel_stretch import KernelStretch
from jouletrace.run import tables
from jouletrace.tracing.trace import Trace
from records import DEVICE, make_run, ns, phases, readings

REAL = "sim:h100?realtime=1&load=0.5:300"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def ints(*values):
    return np.array(values, np.int64)


# --- time laid out by what ran ---------------------------------------------------------------------


def test_time_is_laid_out_by_what_ran():
    found = states(ints(1_000_000), ints(4_000_000), ints(0, 2_000_000), ints(500_000, 3_000_000))
    assert list(zip(found.start.tolist(), found.end.tolist(), found.state.tolist(), strict=True)) == [
        (0, 500_000, OTHERS),
        (1_000_000, 2_000_000, ALONE),
        (2_000_000, 3_000_000, BESIDE),
        (3_000_000, 4_000_000, ALONE),
    ]
    assert found.seconds(ALONE) == pytest.approx(2e-3)


def test_kernels_that_follow_closely_are_one_segment():
    found = states(ints(10_000_000), ints(11_000_000), ints(0, 110_000), ints(100_000, 200_000))
    assert found.state.tolist() == [OTHERS, ALONE]
    assert found.end[0] == 200_000


def test_nothing_that_ran_is_nothing():
    empty = ints()
    assert len(states(empty, empty, empty, empty).start) == 0
    assert states(empty, empty, ints(1), ints(2)).state.tolist() == [OTHERS]


# --- the row ---------------------------------------------------------------------------------------


def trained(beside=False, steps=300):
    """Steps of about 23 ms: compute at 600 W, then 6 ms of communication at 250 W, the rest at 100 W."""
    rng = np.random.default_rng(5)
    rows, edges, watts, at = phases(("monitor", 0.1, 9.9), ("tracing", 0.9, 9.0)), [0.0], [100.0], 1.0
    for i in range(steps):
        compute = at + 0.001, at + 0.011
        moving = (at + 0.008 if beside else at + 0.0115), at + 0.0175
        end = moving[1] + 0.004 + rng.uniform(0, 0.003)
        edges += [compute[0], compute[1], moving[1]] if beside else [*compute, *moving]
        watts += [600.0, 250.0, 100.0] if beside else [600.0, 100.0, 250.0, 100.0]
        for kind, name, (a, b) in (
            ("iteration", "step", (at, end)),
            ("kernel", "gemm", compute),
            ("kernel", NCCL, moving),
        ):
            rows.append(
                {
                    "id": 10 * i + len(rows) % 7 + 100_000 * (kind == "kernel") + 7 * len(rows),
                    "kind": kind,
                    "name": name,
                    "device": DEVICE,
                    "lane": "stream 7",
                    "start_ns": ns(a),
                    "end_ns": ns(b),
                }
            )
        at = end
    knots = np.array([*edges, 12.0])
    total = np.concatenate([[0.0], np.cumsum(np.diff(knots) * np.array(watts))])

    def mean(t):
        return (np.interp(t + 0.01, knots, total) - np.interp(np.maximum(t - 0.01, 0), knots, total)) / 0.02

    return analyse(make_run(readings(mean, 10.0, noise=0.3), kind="record", spans=rows))


def row(run, name):
    return next(unit for unit in run.units.to_pylist() if unit["name"] == name)


def test_communication_is_a_row_with_its_time_and_energy():
    run = trained()
    unit = row(run, "communication")
    assert (unit["level"], unit["count"]) == ("range", 300)
    assert run.result("time_s", unit["id"]).value == pytest.approx(0.006, rel=0.01)
    found = run.result("energy_total_j", unit["id"])
    assert found.value == pytest.approx(1.5, rel=0.1)
    assert found.low <= 1.5 <= found.high
    assert "traced" in run.result_flags("energy_total_j", unit["id"])


def test_what_runs_beside_others_is_not_apportioned():
    run = trained(beside=True)
    whole, alone, both = (
        row(run, name)["id"]
        for name in ("communication", "communication, by itself", "communication, beside other kernels")
    )
    assert run.result("time_s", whole).value == pytest.approx(0.0095, rel=0.01)
    assert run.result("time_s", alone).value == pytest.approx(0.0065, rel=0.01)
    assert run.result("time_s", both).value == pytest.approx(0.003, rel=0.02)
    assert run.result("energy_total_j", whole).reason == "ran_beside_others"
    assert run.result("energy_total_j", alone).value == pytest.approx(0.0065 * 250, rel=0.1)


def test_without_steps_the_row_is_of_the_whole_segment():
    run = trained()
    kept = [span for span in run.spans.to_pylist() if span["kind"] != "iteration"]
    run.spans = tables.from_rows(kept, "spans")
    unit = row(analyse(run), "communication")
    assert run.result("time_s", unit["id"]).value == pytest.approx(1.8, rel=0.01)
    assert "whole_stretch" in run.result_flags("time_s", unit["id"])


def test_each_rank_has_its_own_row():
    run = trained()
    run.settings["ranks"] = [{"rank": 0, "name": "rank 0", "devices": [DEVICE]}]
    assert row(analyse(run), "rank 0/communication, by itself")["count"] == 300


def test_without_communication_there_is_no_row():
    rows = [
        {"id": 5, "kind": "kernel", "name": "gemm", "device": DEVICE, "lane": "x", "start_ns": ns(1), "end_ns": ns(2)}
    ]
    run = analyse(make_run(readings(300.0, 5.0), kind="record", spans=rows))
    assert all(unit["name"] != "communication" for unit in run.units.to_pylist())


# --- tracing a segment -----------------------------------------------------------------------------


class Tracer:
    """Hands out one kernel in the middle of the segment."""

    def __init__(self, fails=""):
        self.fails = fails
        self.calls = []

    def start(self):
        self.calls.append("start")
        if self.fails == "start":
            raise NotPossibleError("another profiler holds the GPU")

    def stop(self):
        self.calls.append("stop")

    def trace(self, before_ns, after_ns):
        if self.fails == "trace":
            raise NotPossibleError("records make no sense")
        middle = (before_ns + after_ns) // 2
        return Trace.of([NCCL], "cupti", name=[0], kind=[0], start_ns=[middle], end_ns=[middle + 1000], stream=[7])


def recorded(monkeypatch, tracer, trace_s=0.05, steps=40):
    monkeypatch.setattr(kernel_stretch, "CuptiKernels", lambda: tracer)
    with jt.record(devices=REAL, trace_s=trace_s) as recording:
        for _ in range(steps):
            time.sleep(0.01)
            jt.step()
    return recording.run


@pytest.mark.thorough
def test_a_segment_begins_when_the_loop_has_settled_and_its_kernels_are_in_the_run(monkeypatch):
    tracer = Tracer()
    run = recorded(monkeypatch, tracer)
    assert tracer.calls == ["start", "stop"]
    spans = run.spans.to_pylist()
    (kernel,) = [span for span in spans if span["kind"] == "kernel"]
    (stretch,) = [span for span in spans if span["name"] == "tracing"]
    steps = sorted((span for span in spans if span["kind"] == "iteration"), key=lambda span: span["start_ns"])
    assert kernel["name"] == NCCL
    assert stretch["start_ns"] <= kernel["start_ns"] <= stretch["end_ns"]
    long_enough = stretch["start_ns"] + 50_000_000
    assert stretch["end_ns"] >= long_enough
    assert sum(long_enough <= step["end_ns"] < stretch["end_ns"] for step in steps) <= 1, "the next step ends it"
    assert steps[kernel_stretch.SETTLED_STEPS - 1]["end_ns"] <= stretch["start_ns"]
    counted = row(run, "step")["count"]
    assert counted < 40, "steps that were traced are in no figure"
    assert row(run, "communication")


@pytest.mark.thorough
@pytest.mark.parametrize(("fails", "said"), [("start", "another profiler"), ("trace", "no sense")])
def test_where_it_cannot_be_done_the_loop_goes_on_and_it_is_reported(monkeypatch, fails, said):
    run = recorded(monkeypatch, Tracer(fails), steps=30)
    (warning,) = [warning for warning in run.warnings if warning.code == "not_traced"]
    assert said in warning.message
    assert row(run, "step")["count"] == 30 or fails == "trace"
    assert run.complete


@pytest.mark.thorough
def test_a_loop_that_is_too_short_says_so_and_one_that_ends_inside_keeps_what_it_has(monkeypatch):
    assert any("before its first step" in w.message for w in recorded(monkeypatch, Tracer(), steps=3).warnings)
    run = recorded(monkeypatch, Tracer(), trace_s=1000, steps=25)
    assert any(span["kind"] == "kernel" for span in run.spans.to_pylist())


def test_other_threads_begin_no_segment():
    import threading

    stretch = KernelStretch(1.0, time.time_ns, Tracer())
    thread = threading.Thread(target=lambda: [stretch.step() for _ in range(50)])
    thread.start()
    thread.join()
    assert stretch.start_ns is None
