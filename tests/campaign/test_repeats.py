"""The same profile in fresh processes, and several Runs as one."""

import json
from textwrap import dedent

import numpy as np
import pytest

from jouletrace import BadInputError, NotPossibleError, load
from jouletrace.analysis import analyse
from jouletrace.campaign import merge, repeats, worker
from jouletrace.campaign.repeats import numbered, profile_repeats
from jouletrace.campaign.worker import profile_in_child
from jouletrace.errors import BrokenOffError, RecorderDiedError
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.run import DeviceInfo, save
from records import DEVICE, START, iterations, make_run, phases, readings, windows

pytestmark = pytest.mark.thorough

QUICK = ProfileSettings(device="sim:h100?run=3", warmup_s=2.6, idle_s=1.0, latency_s=0.2, target_ci=0.5)
TOY = """
import torch

def toy():
    return torch.nn.Linear(1024, 1024).half(), torch.randn(1024, 1024).half()
"""


def one_run(watts, *, simulated=False):
    """A profile of 4 s on a load of so many watts."""
    spans = phases(("energy", 1.0, 3.0)) + iterations(10, 0.01)
    run = make_run(readings(watts, 4, noise=0.3), spans=spans, window_rows=windows([(1.0, 2.0), (2.0, 3.0)]))
    run.devices = [DeviceInfo(DEVICE, "GPU by hand", simulated=simulated)]
    run.clock_pairs = [
        {"time_ns": START, "monotonic_ns": 0},
        {"time_ns": START + 4_000_000_000, "monotonic_ns": 4 * 10**9},
    ]
    return run


def test_runs_in_virtual_time_are_put_one_after_the_other():
    runs = [one_run(watts, simulated=True) for watts in (300.0, 310.0, 320.0)]
    merged = analyse(merge(runs))
    assert merged.windows["block"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert merged.windows["energy_j"].to_pylist() == pytest.approx([300, 300, 310, 310, 320, 320], rel=1e-3)
    assert np.all(np.diff(merged.windows["start_ns"].to_numpy()) > 0)
    assert merged.result("energy_total_j").value == pytest.approx(31.0, rel=1e-3)
    assert merged.result("energy_total_j").n == 3
    assert merged.result("energy_total_spread_between_pct").value == pytest.approx(100 * 10 / 310, rel=1e-2)
    assert merged.warnings == []
    assert len(merged.clock_pairs) == 6


def test_the_first_run_keeps_its_times_and_spans_stay_unique():
    merged = merge([one_run(300.0, simulated=True), one_run(310.0, simulated=True)])
    assert merged.spans["start_ns"].to_pylist()[0] == one_run(300.0).spans["start_ns"].to_pylist()[0]
    ids = merged.spans["id"].to_pylist()
    assert len(set(ids)) == len(ids) == 22


def test_real_runs_never_overlap():
    with pytest.raises(BadInputError, match="overlap in time"):
        merge([one_run(300.0), one_run(310.0)])


def test_a_run_without_anything_recorded_takes_part():
    empty = make_run([], channels=[])
    assert len(merge([empty, one_run(300.0)]).windows) == 2


def test_warnings_of_all_runs_are_kept_each_once():
    runs = [one_run(300.0, simulated=True), one_run(310.0, simulated=True)]
    for run in runs:
        run.warn("not_settled", "latency was still changing")
    runs[1].warn("other", "only here")
    assert [warning.code for warning in merge(runs).warnings] == ["not_settled", "other"]


@pytest.mark.parametrize(
    ("device", "number", "expected"),
    [
        ("sim:h100", 1, "sim:h100?run=0"),
        ("sim:h100?noise=0", 2, "sim:h100?noise=0&run=1"),
        ("sim:h100?run=5&seed=2", 3, "sim:h100?seed=2&run=7"),
        ("cuda:0", 4, "cuda:0"),
        ("sim:h100?run=x", 2, "sim:h100?run=x"),
    ],
)
def test_simulated_runs_are_numbered(device, number, expected):
    assert numbered(ProfileSettings(device=device), number).device == expected


@pytest.fixture
def toy(workspace):
    (workspace / "toy.py").write_text(TOY)
    return workspace


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_repeats_are_fresh_processes_whose_spread_is_shown(toy, monkeypatch, fresh):
    """In this process, too, where importing torch again takes most of the time."""
    pytest.importorskip("torch")
    if not fresh:
        here = lambda workload, settings, folder, *_: profile_workload(workload, settings, folder=folder)  # noqa: E731
        monkeypatch.setattr(repeats, "profile_in_child", here)
    run, _ = profile_repeats("toy.py:toy", QUICK, 2, folder=toy / "run", command="typed")
    assert run.complete
    assert (run.command, run.settings["repeats"]) == ("typed", 2)
    assert run.result("energy_total_j").method == "runs"
    assert run.result("energy_total_spread_within_pct").value > 0
    assert run.result("energy_total_spread_between_pct").value > 0
    parts = [load(toy / "run" / "repeats" / str(n)) for n in (1, 2)]
    assert [part.devices[0].details["run"] for part in parts] == [3, 4]
    means = [part.result("energy_total_j").value for part in parts]
    assert means[0] != means[1]
    assert run.result("energy_total_j").value == pytest.approx(np.mean(means), rel=1e-3)
    assert load(toy / "run").results.equals(run.results)


def failed(reason, text, code, trace=""):
    said = json.dumps({"is": "failed", "reason": reason, "text": text, "code": code, "trace": trace})
    return f"print({said!r}, flush=True)"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (failed("bad_input", "no such thing", 2), BadInputError, "^no such thing$"),
        (failed("not_possible", "no GPU", 3), NotPossibleError, "^no GPU$"),
        ("import os; os.kill(os.getpid(), 9)", RecorderDiedError, "killed by signal 9"),
        (
            failed("failed", "ValueError: bug", 1, "Traceback\nValueError: bug"),
            RuntimeError,
            "Traceback\nValueError: bug",
        ),
        (failed("interrupted", "interrupted", 130), KeyboardInterrupt, "interrupted"),
        ("raise SystemExit(130)", BrokenOffError, "^x ended its process with exit code 130 before it was measured$"),
        ("print('noise')", BrokenOffError, "^x ended its process with exit code 0 before it was measured$"),
    ],
)
def test_how_a_process_failed_is_passed_on(monkeypatch, tmp_path, code, kind, text):
    (tmp_path / "its_child.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker, "MODULE", "its_child")
    with pytest.raises(kind, match=text):
        profile_repeats("x", QUICK, 2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_interruption_keeps_the_runs_that_there_are_and_the_same_command_goes_on(monkeypatch, tmp_path):
    """The first run is done when Ctrl-C comes in the second, which has saved its record."""
    ran = []

    def here(workload, settings, folder):
        ran.append(folder.name)
        run = analyse(one_run(300.0 + int(folder.name), simulated=True))
        run.complete = len(ran) != 2
        save(run, folder)
        if len(ran) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(repeats, "profile_in_child", here)
    _, tally = profile_repeats("x", QUICK, 3, folder=tmp_path / "run")
    assert isinstance(tally.ended_by, KeyboardInterrupt)
    run = load(tmp_path / "run")
    assert not run.complete
    assert "2 of 3 runs" in next(warning.message for warning in run.warnings if warning.code == "interrupted")
    assert run.result("energy_total_j").value == pytest.approx(30.15, rel=1e-3)
    with pytest.raises(
        BadInputError, match=r"holds a repeated profile with other settings .workload: \"x\", not \"y\""
    ):
        profile_repeats("y", QUICK, 3, folder=tmp_path / "run")
    whole, tally = profile_repeats("x", QUICK, 3, folder=tmp_path / "run")
    assert ran == ["1", "2", "2", "3"]
    assert (tally.ended_by, tally.before, tally.missing) == (None, 1, [])
    assert load(tmp_path / "run").complete
    assert whole.warnings == []
    assert whole.result("energy_total_j").value == pytest.approx(30.2, rel=1e-3)
    assert whole.result("energy_total_j").method == "runs"


def test_a_run_that_has_no_figures_yet_is_measured_again(monkeypatch, tmp_path):
    """It was interrupted after its record was complete, before figures were made of that."""
    ran = []

    def here(workload, settings, folder):
        ran.append(folder.name)
        run = one_run(300.0, simulated=True)
        save(run if len(ran) == 2 else analyse(run), folder)
        if len(ran) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(repeats, "profile_in_child", here)
    _, tally = profile_repeats("x", QUICK, 2, folder=tmp_path / "run")
    assert isinstance(tally.ended_by, KeyboardInterrupt)
    _, tally = profile_repeats("x", QUICK, 2, folder=tmp_path / "run")
    assert (ran, tally.ended_by, tally.before) == (["1", "2", "2"], None, 1)


def test_an_interrupted_process_is_interrupted_and_waited_for(monkeypatch, tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        try:
            print('{"is": "phase"}', flush=True)
            time.sleep(3600)
        except KeyboardInterrupt:
            time.sleep(0.2)
            Path("saved").touch()
    """
    (tmp_path / "its_child.py").write_text(dedent(code))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker, "MODULE", "its_child")

    def interrupted(workers, **_):
        workers[0].hear()
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile_in_child("x", QUICK, tmp_path / "run")
    assert (tmp_path / "saved").exists()


def test_a_workload_that_ends_its_process_is_no_finished_run(workspace, capfd):
    (workspace / "ends.py").write_text("import os\n\ndef make():\n    print('noise', flush=True)\n    os._exit(0)\n")
    with pytest.raises(BadInputError, match=r"os._exit\(0\) ends the process before it is measured"):
        profile_in_child("ends.py:make", ProfileSettings(device="cpu"), workspace / "run")
    assert capfd.readouterr().out == ""
