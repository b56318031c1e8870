"""Jobs in processes of their own, and whatever ends them."""

import io
import json
import os
import signal
from dataclasses import asdict

import pytest

from jouletrace.campaign import Worker, listen, main
from jouletrace.profiler import ProfileSettings
from jouletrace.profiler.prepare import options_of

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
