"""Child processes of a program trace themselves and hand over, however they start and end."""

import os
import signal
import subprocess
import sys
import time

import pytest

from jouletrace.profiler.program import program as recording
from jouletrace.profiler.program.command import Command, program_of
from jouletrace.profiler.program.script import Script
from jouletrace.run.recording_names import recording_of
from places import SUPPORT

LIBRARY = """
# Stands for a library that starts CUDA: tracing begins with its import, into a log that the test's program fills.
from jouletrace.profiler.program import tracer
from fake_kernels import FakeLog, launch
tracer.KernelLog = FakeLog
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kernels(run):
    return {unit["name"]: unit["count"] for unit in run.units.to_pylist() if unit["level"] == "kernel"}


def ran(place, text, child):
    (place / "child.py").write_text(child)
    (place / "main.py").write_text(text)
    return recording.run_program(Script("main.py"), device=["cpu"])


START = "import subprocess, sys\nprocess = subprocess.Popen([sys.executable, 'child.py'])\n"


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("import cupy; cupy.launch('gemm', 0.01)", 0),
        ("import cupy, sys; cupy.launch('gemm', 0.01); sys.exit(3)", 3),
        ("import cupy, os; cupy.launch('gemm', 0.01); os._exit(4)", 4),
        ("import cupy, os, signal, time; cupy.launch('gemm', 0.01); os.kill(os.getpid(), 15); time.sleep(9)", -15),
        ("import cupy, os; cupy.launch('gemm', 0.01)\nif os.fork() == 0: os._exit(0)\nos.wait()", 0),
        ("import cupy, os; cupy.launch('gemm', 0.01)\nos.environ.clear()", 0),
    ],
    ids=["ends", "fails", "leaves at once", "is terminated", "forks", "clears its environment"],
)
def test_a_child_hands_over_its_kernels_however_it_ends(place, child, code):
    wait = f"code = process.wait()\nassert code in ({code}, {128 - code}), code\n"
    found, got = ran(place, START + wait, child)
    assert got == 0
    assert kernels(found) == {"gemm": 1}
    assert not [warning for warning in found.warnings if warning.code in ("not_traced", "child_lost")]


def test_a_child_that_is_killed_is_named(place):
    found, _ = ran(
        place,
        START + "process.wait()\n",
        "import cupy, os, signal; cupy.launch('gemm', 0.01); os.kill(os.getpid(), signal.SIGKILL)",
    )
    lost = [warning.message for warning in found.warnings if warning.code == "child_lost"]
    assert len(lost) == 1
    assert lost[0].startswith("child.py (process ")
    assert lost[0].endswith("was killed before it could hand over its kernels")


def test_a_damaged_file_of_a_child_is_named(place):
    child = "import cupy, os; cupy.launch('gemm', 0.01)"
    cut = "import glob, os\nprocess.wait()\nname, = glob.glob(os.environ['JOULETRACE_CHILDREN'] + '/*.npz')\n"
    found, _ = ran(place, START + cut + "os.truncate(name, 40)\n", child)
    lost = [warning.message for warning in found.warnings if warning.code == "child_lost"]
    assert len(lost) == 1
    assert "handed over a damaged file" in lost[0]


def test_children_of_children_and_spawned_workers_are_traced(place):
    main = """
import multiprocessing, subprocess, sys
def work(name):
    import cupy
    cupy.launch(name, 0.01)
if __name__ == "__main__":
    subprocess.run([sys.executable, "child.py"], check=True)
    worker = multiprocessing.get_context("spawn").Process(target=work, args=("spawned",))
    worker.start()
    worker.join()
"""
    child = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import cupy; cupy.launch(\"inner\", 0.01)'])"
    )
    found, code = ran(place, main, child)
    assert code == 0
    assert kernels(found) == {"inner": 1, "spawned": 1}
    sites = {unit["module"].split(" (")[0] for unit in found.units.to_pylist() if unit["level"] == "site"}
    assert sites <= {"python", "main․py"}


def test_forked_workers_that_start_cuda_themselves_are_traced(place):
    main = """
import multiprocessing
def work(name):
    import cupy
    cupy.launch(name, 0.01)
worker = multiprocessing.get_context("fork").Process(target=work, args=("forked",))
worker.start()
worker.join()
assert worker.exitcode == 0
"""
    found, code = ran(place, main, "")
    assert code == 0
    assert kernels(found) == {"forked": 1}


def test_a_child_sees_what_it_would_see_without_us(place):
    (place / "sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOMISED = True\n")
    child = "import sys, json\nprint(json.dumps([sys.path, sys.argv, CUSTOMISED, sorted(sys.modules)]))"
    (place / "child.py").write_text(child)
    (place / "main.py").write_text(
        "import subprocess, sys\n"
        "text = subprocess.run([sys.executable, 'child.py'], capture_output=True, text=True, check=True).stdout\n"
        "open('seen.json', 'w').write(text)"
    )
    recording.run_program(Script("main.py"), device=["cpu"])
    plain = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True, check=True).stdout
    seen, own = (eval(text.replace("true", "True")) for text in ((place / "seen.json").read_text(), plain))
    assert seen[:3] == own[:3]
    assert not {name for name in set(seen[3]) - set(own[3]) if name.startswith(("numpy", "torch", "pyarrow"))}
    assert "JOULETRACE_CHILDREN" not in os.environ


def test_a_command_runs_as_it_would_and_its_python_is_traced(place):
    (place / "child.py").write_text("import cupy, sys; cupy.launch('gemm', 0.01); sys.exit(5)")
    found, code = recording.run_program(program_of(["sh", "-c", f"{sys.executable} child.py"], False), device=["cpu"])
    assert code == 5
    assert kernels(found) == {"gemm": 1}
    assert recording.run_program(Command("/bin/sh", ("-c", "kill -9 $$")), device=["cpu"])[1] == 137


def test_an_interrupt_reaches_a_command_that_has_just_started(monkeypatch, tmp_path):
    up = tmp_path / "up"

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            while not up.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    text = f"trap 'exit 7' INT; touch {up}; while :; do sleep 0.1; done"
    assert Command("/bin/sh", ("-c", text)).run() == 7


def test_scripts_of_python_run_here_and_all_else_is_a_command(place):
    for name, text in (("tool", f"#!{sys.executable}\n"), ("job.sh", "#!/bin/sh\n"), ("plain.py", "")):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    assert program_of(["./tool", "a"], False) == Script("./tool", ("a",))
    assert program_of(["./job.sh", "a"], False) == Command(str(place / "job.sh"), ("a",))
    assert isinstance(program_of(["plain.py"], False), Script)
    assert isinstance(program_of([sys.executable, "x.py"], False), Command)
    assert program_of([sys.executable, "x.py"], False).name == "x.py"
    (place / "sh").mkdir()
    assert isinstance(program_of(["sh", "-c", "true"], False), Command)


def test_processes_on_one_gpu_keep_their_ranges_apart(place):
    child = "import cupy, sys; cupy.launch('gemm', 0.01)"
    found, _ = ran(place, START + "import cupy; cupy.launch('gemm', 0.01); process.wait()\n", child)
    assert kernels(found) == {"gemm": 2}
    assert len({unit["module"] for unit in found.units.to_pylist() if unit["level"] == "site"}) == 2
    assert recording_of(found)["kernels"] == 2
