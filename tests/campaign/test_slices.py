"""Jobs in processes of their own: one a slice, at once, and whatever ends them."""

import io
import json
import os
import signal
import threading
from dataclasses import asdict

import numpy as np
import pytest

from jouletrace.campaign.child import main
from jouletrace.campaign.worker import Worker, listen
from jouletrace.devices import open_device
from jouletrace.devices.base import Samples
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.prepare import options_of
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.wings.mig.activity import Activity
from jouletrace.wings.mig.bench import RealBench
from jouletrace.wings.mig.jobs import Job, JobFailedError, Slice
from jouletrace.wings.mig.point import PointSettings, measure_point
from jouletrace.wings.mig.simulated import profiles

pytest.importorskip("torch")

TOY = """
import os, time

def nap(batch=1):
    return (lambda x: time.sleep(0.01)), (1,)

def visible(batch=1):
    raise RuntimeError("sees " + os.environ["CUDA_VISIBLE_DEVICES"])

def hungry(batch=1):
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

def loud(batch=1):
    print('{"items": 99}')
    return (lambda x: time.sleep(0.01)), (1,)
"""


@pytest.fixture(autouse=True)
def toys(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)


def job(name):
    return Job(name, f"toy.py:{name}")


def answers(*orders):
    sink = io.StringIO()
    main(io.StringIO("".join(json.dumps(order) + "\n" for order in orders)), sink)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def load(name):
    return {"do": "load", "workload": f"toy.py:{name}", "options": {}, "mode": "eager", "device": "cpu"}


def said(worker, order, limit_s=120):
    worker.begin(order)
    listen([worker], limit_s=limit_s)
    return worker.said


def test_a_worker_loads_runs_and_reports_latencies():
    loaded, ran = answers(load("nap"), {"do": "run", "seconds": 0.2, "at_ns": 0})
    assert (loaded["is"], loaded["items"]) == ("done", 1)
    assert all(seconds >= 0.01 for seconds in ran["latency_s"])
    assert sum(ran["latency_s"]) <= (ran["end_ns"] - ran["start_ns"]) / 1e9
    assert ran["end_ns"] - ran["start_ns"] > 0.2e9


def test_a_load_takes_all_options_of_a_profile():
    options = asdict(options_of(ProfileSettings(config={"size": "64"})))
    order = {"do": "load", "workload": "gemm", "options": options, "mode": "eager", "device": "cpu"}
    (found,) = answers(order)
    assert found == {"is": "done", "items": 1}


@pytest.mark.parametrize(("name", "reason"), [("hungry", "out_of_memory"), ("visible", "bad_input")])
def test_a_worker_says_why_a_job_fails_and_goes_on(name, reason, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    failed, loaded = answers(load(name), load("nap"))
    assert failed["reason"] == reason
    assert "\n" not in failed["text"]
    assert loaded["items"] == 1


def test_a_worker_refuses_what_it_does_not_know():
    unknown, early = answers({"do": "dance"}, {"do": "run", "seconds": 1, "at_ns": 0})
    assert "unknown order" in unknown["text"]
    assert "nothing is loaded" in early["text"]


@pytest.fixture
def worker():
    """A process that CUDA shows one slice."""
    worker = Worker("toy", "MIG-12345678")
    yield worker
    worker.close()


@pytest.mark.thorough
def test_a_process_sees_its_slice_alone_and_its_prints_are_no_answers(worker):
    assert "sees MIG-12345678" in said(worker, load("visible"))["text"]
    assert said(worker, load("loud")) == {"is": "done", "items": 1}
    os.kill(worker.pid, signal.SIGKILL)
    killed = said(worker, {"do": "run", "seconds": 1, "at_ns": 0})
    assert (killed["reason"], killed["text"]) == ("vanished", "the process on toy was killed by signal 9")


def test_a_process_that_does_not_answer_is_ended(worker):
    assert said(worker, load("nap"), 0.01)["text"] == "toy: no result after 0.01 s"
    assert not worker.alive


def test_what_lies_in_the_folder_does_not_stand_in_for_our_modules(tmp_path):
    (tmp_path / "jouletrace.py").write_text("raise SystemExit(3)")
    worker = Worker("toy")
    assert "unknown order" in said(worker, {"do": "dance"})["text"]
    worker.close()


class Steady:
    """A source that says what slices do."""

    interval_s = 0.02

    def __init__(self, clock, activity):
        self._clock, self._activity = clock, activity

    def poll(self):
        now = np.array([self._clock.time_ns()])
        return [(uuid, Samples("graphics_active", now, np.array([a]))) for uuid, a in self._activity.items()]


class Gone:
    """A source whose GPU has fallen off the bus."""

    interval_s = 0.02

    def poll(self):
        raise NotPossibleError("the GPU is lost")


def slices():
    table = {one.name: one for one in profiles("a100-80")}
    return [Slice("MIG-a", table["3g.40gb"], 1), Slice("MIG-b", table["2g.20gb"], 2)]


@pytest.mark.slow
def test_two_slices_work_at_once_and_one_that_vanishes_is_reported_to():
    board = open_device("sim:a100-80?realtime=1")
    activity = Activity([Steady(board.clock, {"MIG-a": 0.9, "MIG-b": 0.4}), Gone()])
    bench = RealBench(board, slices(), activity, torch_device="cpu")
    try:
        rows = measure_point(bench, [job("nap")] * 2, PointSettings(1.0, 0.3, 0.1, 0.9))
        assert [row["status"] for row in rows] == ["done", "done"]
        assert [row["graphics_active"] for row in rows] == pytest.approx([0.9, 0.4])
        assert all(0 < row["requests_per_s"] < 100 for row in rows), "a nap takes 10 ms and more"
        assert all(row["fb_used_bytes"] is None for row in rows), "a CPU has none, which is not 0"
        assert rows[0]["power_active_w"] is not None
        assert activity.failures == ["the GPU is lost"], "the other source went on"
        assert rows[0]["flags"] == "modelled,activity_lost"

        first = bench.run([0, 1], 0.5)
        begun, ended = max(one.start_ns for one in first), min(one.end_ns for one in first)
        assert begun < ended, "they run at once"
        killer = threading.Timer(0.3, os.kill, (bench._workers[1].pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(JobFailedError, match="may be gone") as error:
            bench.run([0, 1], 1.0)
        assert error.value.reason == "vanished"
        assert len(bench.run([0], 0.1)) == 1, "the other slice's answer was taken, and it goes on"
    finally:
        bench.close()
    assert not bench._workers
