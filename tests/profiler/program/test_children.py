"""Processes of a program are traced in any language, however they start and end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jouletrace
from commands import command, gone, wait_for
from jouletrace.run import load, recording_of
from places import SUPPORT


@pytest.fixture
def run(workspace, monkeypatch, capsys):
    """Runs a script with a child; returns its Run."""
    path = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")]), str(Path(jouletrace.__file__).parents[1])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    def run_(text, child="", *, device=("cpu",), code=0):
        (workspace / "child.py").write_text(child)
        (workspace / "main.py").write_text(text)
        devices = [word for one in device for word in ("-d", one)]
        said = command(capsys, "run", *devices, "-o", "kept", "main.py")
        assert said.code == code, said.err
        return load(workspace / "kept")

    return run_


def kernels(run):
    return {unit["name"]: unit["count"] for unit in run.units.to_pylist() if unit["level"] == "kernel"}


def lost(run):
    return [warning.message for warning in run.warnings if warning.code in ("not_traced", "child_lost", "child_runs")]


START = "import subprocess, sys\nprocess = subprocess.Popen([sys.executable, 'child.py'])\n"
LAUNCH = "from row_kernels import launch; launch('gemm', 0.01)\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("import os; os._exit(4)", 4),
        ("import os, time; os.kill(os.getpid(), 15); time.sleep(9)", -15),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import ctypes; ctypes.string_at(0)", -11),
        ("import os; os.environ.clear()", 0),
        ("import os; os.execv('/bin/true', ['true'])", 0),
    ],
    ids=[
        "ends",
        "fails",
        "leaves",
        "is terminated",
        "is killed",
        "segfaults",
        "clears its environment",
        "becomes other",
    ],
)
def test_a_child_has_its_kernels_however_it_ends(run, child, code):
    found = run(START + f"code = process.wait()\nassert code == {code}, code\n", LAUNCH + child)
    assert kernels(found) == {"gemm": 1}
    assert lost(found) == []


@pytest.mark.thorough
def test_a_damaged_file_of_a_child_is_named(run):
    cut = "import glob, os\nprocess.wait()\nname, = glob.glob(os.environ['JOULETRACE_TRACE'] + '/*/rows')\n"
    found = run(START + cut + "os.truncate(name, 40)\n", LAUNCH)
    (said,) = lost(found)
    assert "a damaged file" in said


@pytest.mark.thorough
def test_children_of_children_and_workers_are_traced(run):
    main = """
import multiprocessing, os, subprocess, sys
def work(name):
    from row_kernels import launch
    launch(name, 0.01)
if __name__ == "__main__":
    subprocess.run([sys.executable, "child.py"], check=True)
    for method in ("spawn", "fork"):
        worker = multiprocessing.get_context(method).Process(target=work, args=(method,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
"""
    inner = 'from row_kernels import launch; launch("inner", 0.01)'
    found = run(main, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '{inner}'])")
    assert kernels(found) == {"inner": 1, "spawn": 1, "fork": 1}


@pytest.mark.thorough
def test_processes_on_one_gpu_keep_their_ranges_apart(run):
    found = run(START + LAUNCH + "process.wait()\n", LAUNCH)
    assert kernels(found) == {"gemm": 2}
    assert len({unit["module"] for unit in found.units.to_pylist() if unit["level"] == "site"}) == 2
    assert recording_of(found)["kernels"] == 2


@pytest.mark.thorough
def test_a_program_that_becomes_another_keeps_the_kernels_of_both(run):
    found = run(LAUNCH + "import os, sys\nos.execv(sys.executable, [sys.executable, 'child.py'])\n", LAUNCH, code=0)
    assert kernels(found) == {"gemm": 2}


def test_a_child_that_outlives_the_program_is_left_alone_and_named(run, workspace):
    waits = "while not os.path.exists('end'): time.sleep(0.02)\n"
    child = f"{LAUNCH}import os, time\nopen('up', 'w').write(str(os.getpid()))\n{waits}"
    leaves = "import os, time\nwhile not (os.path.exists('up') and open('up').read()): time.sleep(0.02)\n"
    start = START.replace("'child.py']", "'child.py'], start_new_session=True, stdout=-3, stderr=-3")
    found = run(start + leaves + "os._exit(0)\n", child)
    pid = int((workspace / "up").read_text())
    try:
        assert not gone(pid)
        assert kernels(found) == {"gemm": 1}
        (said,) = lost(found)
        assert said.startswith(f"child.py (process {pid}) still runs")
    finally:
        (workspace / "end").write_text("")
    wait_for(lambda: gone(pid))


@pytest.mark.thorough
def test_ranks_of_a_launcher_are_one_run(run):
    launcher = """
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, "child.py"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
    for rank in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
    child = (
        "import os\nfrom row_kernels import launch\nfor _ in range(5): launch('gemm', 0.01, int(os.environ['RANK']))\n"
    )
    devices = [f"sim:h100?realtime=1&load=1:300&seed={seed}" for seed in (1, 2)]
    found = run(launcher, child, device=devices)
    assert [(one["name"], one["rank"]) for one in found.workload["recordings"]] == [("rank-0", 0), ("rank-1", 1)]


@pytest.mark.thorough
def test_a_command_of_another_language_is_traced_with_all_that_it_starts(workspace, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), *sys.path]))
    (workspace / "child.py").write_text(LAUNCH + "import sys; sys.exit(5)")
    said = command(capsys, "run", "-d", "cpu", "-o", "kept", "sh", "-c", f"{sys.executable} child.py")
    assert said.code == 5
    assert kernels(load(workspace / "kept")) == {"gemm": 1}


def test_a_child_sees_what_it_would_see_without_us(run, workspace):
    (workspace / "sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOMISED = True\n")
    child = "import sys\nopen('seen', 'w').write(repr([sys.path, sys.argv, CUSTOMISED, sorted(sys.modules)]))"
    run(f"import os\nos.environ['PYTHONPATH'] = '.'\n{START}process.wait()\n", child)
    seen = (workspace / "seen").read_text()
    subprocess.run([sys.executable, "child.py"], check=True, env={**os.environ, "PYTHONPATH": "."})
    assert seen == (workspace / "seen").read_text()
