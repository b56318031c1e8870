"""Programs run unchanged in this process, with kernels that they launch into a fake log."""

import os
import sys

import pytest

import fake_kernels
from jouletrace.devices.base import Process
from jouletrace.devices.rapl import CpuHost
from jouletrace.errors import BadInputError
from jouletrace.profiler.program import program as recording
from jouletrace.profiler.program import tracer
from jouletrace.profiler.program.command import program_of
from jouletrace.profiler.program.script import Script
from jouletrace.run import load
from jouletrace.run.recording_names import recording_of
from shown import fact_of, failed_of, trust_of


@pytest.fixture(autouse=True)
def fake_log(monkeypatch):
    monkeypatch.setattr(tracer, "KernelLog", fake_kernels.FakeLog)
    monkeypatch.setattr(tracer, "cuda_runs", lambda: True)


def ran(tmp_path, text, *arguments, name="train.py", folder=None):
    """The Run and the exit code of a script."""
    path = tmp_path / name
    path.write_text(text)
    return recording.run_program(Script(str(path), arguments), device=["cpu"], folder=folder)


RANGES = """
import sys
from torch.autograd.profiler import record_function
from fake_kernels import launch
assert __name__ == "__main__" and sys.argv[1:] == ["--epochs", "1"]
launch("init")
for _ in range(20):
    with record_function("forward"):
        launch("gemm", 2e-3)
        with record_function("head.out"):
            launch("softmax", 1e-3)
    launch("adam", 1e-3)
"""


def test_ranges_of_a_program_have_the_time_of_the_kernels_launched_in_them(tmp_path):
    import torch.autograd.profiler  # noqa: F401 (imported before: its ranges are picked up at once)

    found, code = ran(tmp_path, RANGES, "--epochs", "1")
    assert code == 0
    assert found.kind == "program"
    assert found.result("iteration_time_s").value > 0.08
    layers = {unit["name"]: unit["id"] for unit in found.units.to_pylist() if unit["level"] == "layer"}
    forward, head = (found.result("time_s", layers[name]).value for name in ("forward", "forward.head\u2024out"))
    assert 0.06 <= forward < found.result("iteration_time_s").value
    assert 0.02 <= head < forward
    kernels = {unit["name"]: unit["count"] for unit in found.units.to_pylist() if unit["level"] == "kernel"}
    assert kernels == {"init": 1, "gemm": 20, "softmax": 20, "adam": 20}
    assert sum(recording_of(found)["idle_by"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "code"),
    [("raise SystemExit", 0), ("import sys; sys.exit(7)", 7), ("1 / 0", 1), ("raise KeyboardInterrupt", 130)],
)
def test_exit_codes_are_those_of_the_program_and_what_was_recorded_is_kept(tmp_path, capsys, text, code):
    found, got = ran(tmp_path, f"from fake_kernels import launch\nlaunch('one', 0.01)\n{text}\n")
    assert got == code
    assert len(found.activity) == 1
    warned = {warning.code for warning in found.warnings} & {"program_failed", "program_ended"}
    assert warned == ({"program_ended"} if code == 130 else {"program_failed"} if code else set())
    if text == "1 / 0":
        said = capsys.readouterr().err
        assert "ZeroDivisionError" in said
        assert "runpy" not in said


def test_a_program_that_leaves_by_os_exit_loses_nothing(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text("import os\nfrom fake_kernels import launch\nlaunch('one', 0.01)\nos._exit(5)\n")
    place, child = tmp_path / "left", os.fork()
    if child == 0:
        recording.run_program(Script(str(script)), device=["cpu"], folder=place)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert len(load(place).activity) == 1


def test_a_fork_of_the_program_ends_with_its_own_code_and_writes_no_second_run(tmp_path):
    fork = "import os\npid = os.fork()\nif pid:\n    assert os.waitpid(pid, 0)[1] == 0\n"
    text = fork + "from fake_kernels import launch\nlaunch('one', 0.01)\n"
    found, code = ran(tmp_path, text)
    assert code == 0
    assert len(found.activity) == 1


def test_the_state_of_the_interpreter_is_as_before(tmp_path):
    argv, path, leave = sys.argv[:], sys.path[:], os._exit
    ran(tmp_path, "import sys\nsys.argv.append('x')\nsys.path.append('y')\n")
    assert (sys.argv, sys.path, os._exit) == (argv, path, leave)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script("missing.py"), "run missing.py: No such file"),
        (Script("no_such_module_here", module=True), "no module of that name"),
    ],
)
def test_what_python_could_not_run_is_refused_in_one_line(script, said):
    with pytest.raises(BadInputError, match=said):
        script.check()


@pytest.mark.thorough
def test_a_program_on_two_gpus_is_saved_as_one_run(tmp_path):
    script, place = tmp_path / "train.py", tmp_path / "run"
    script.write_text(
        "from fake_kernels import launch\nfor _ in range(10):\n    launch('a', 0.01)\n    launch('b', 0.02, 1)\n"
    )
    devices = [f"sim:h100?realtime=1&load=1:300&seed={seed}" for seed in (1, 2)]
    found, _ = recording.run_program(Script(str(script)), device=devices, folder=place)
    saved = load(place)
    assert saved.units.equals(found.units)
    assert [path.parent for path in tmp_path.rglob("run.json")] == [place]
    rows = {row["id"]: row for row in saved.units.to_pylist()}
    kernels = {rows[row["parent"]]["module"]: row for row in rows.values() if row["level"] == "kernel"}
    ids = [device.id for device in saved.devices]
    assert {id: row["name"] for id, row in kernels.items()} == dict(zip(ids, "ab", strict=True))
    assert [one["name"] for one in saved.workload["recordings"]] == ["gpu-0", "gpu-1"]
    assert saved.result("time_s", kernels[ids[1]]["id"]).value >= 0.2
    assert set(saved.activity["device"].to_pylist()) == set(ids)


def test_others_on_the_gpu_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(CpuHost, "processes", lambda self: [Process(7, "trainer"), Process(8)])
    found, _ = ran(tmp_path, "from fake_kernels import launch\nlaunch('one', 0.01)\n")
    said = [warning.message for warning in found.warnings if warning.code == "other_processes"]
    assert len(said) == 1
    assert said[0].startswith("others use the GPU, too: trainer (pid 7), process (pid 8);")


def test_a_syntax_error_names_its_line(tmp_path):
    (tmp_path / "bad.py").write_text("a = 1\nb = = 2\n")
    with pytest.raises(BadInputError, match=r"bad.py, line 2: not valid Python"):
        Script(str(tmp_path / "bad.py")).check()


def test_a_command_line_without_a_program_is_refused():
    with pytest.raises(BadInputError, match="name a script"):
        program_of([], False)


def test_a_program_beside_an_idle_simulated_gpu_is_not_trusted(tmp_path):
    path = tmp_path / "quick.py"
    path.write_text("pass")
    for spec, levels in (("sim:h100", ["no"]), ("sim:h100?load=1:300", [])):
        found, _ = recording.run_program(Script(str(path), []), device=[spec])
        assert [one["level"] for one in failed_of(found, "simulated_idle")] == levels


def test_a_program_without_a_gpu_has_no_tracing_to_fail(tmp_path):
    path = tmp_path / "quick.py"
    path.write_text("pass")
    found, _ = recording.run_program(Script(str(path), []), device=["cpu"])
    asked = trust_of(found)
    assert [one for one in asked["failed"] if one["check"] != "power sensor"] == []
    assert "tracing" not in fact_of(found, "Passed")
    assert asked["level"] != "no", "the machine can't measure the energy"
