"""Recordings of a program: kernels, ranges and GPUs, and what a warning says is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jouletrace
from commands import command, only_run
from jouletrace.devices import CpuHost, Process, registry
from jouletrace.profiler.program import live, recorded
from jouletrace.run import load, recording_of
from jouletrace.tracer import launching
from places import SUPPORT
from row_writer import Writer
from shown import fact_of, failed_of, trust_of

SIMULATED = "sim:h100?realtime=1&load=1:300"


@pytest.fixture
def run(workspace, monkeypatch, capsys):
    """Runs a script; returns its Run, and how the command ended."""
    path = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")]), str(Path(jouletrace.__file__).parents[1])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    def run_(text, *arguments, device=("cpu",), options=()):
        (workspace / "train.py").write_text(text)
        devices = [word for one in device for word in ("-d", one)]
        said = command(capsys, "run", *devices, *options, "-o", "kept", "train.py", *arguments)
        return load(workspace / "kept"), said

    return run_


def warned(found, *codes):
    """Messages of warnings of these codes."""
    return [warning.message for warning in found.warnings if warning.code in codes]


def kernels(found):
    return {unit["name"]: unit["count"] for unit in found.units.to_pylist() if unit["level"] == "kernel"}


RANGES = """
from row_kernels import launch, marked
launch("init")
for _ in range(20):
    with marked("forward"):
        launch("gemm", 2e-3)
        with marked("head.out"):
            launch("softmax", 1e-3)
    launch("adam", 1e-3)
"""


@pytest.mark.thorough
def test_ranges_of_a_program_have_the_time_of_the_kernels_launched_in_them(run):
    found, said = run(RANGES)
    assert said.code == 0, said.err
    assert found.kind == "program"
    assert found.result("iteration_time_s").value > 0.08
    layers = {unit["name"]: unit["id"] for unit in found.units.to_pylist() if unit["level"] == "layer"}
    forward, head = (found.result("time_s", layers[name]).value for name in ("forward", "forward.head\u2024out"))
    assert 0.06 <= forward < found.result("iteration_time_s").value
    assert 0.02 <= head < forward
    assert kernels(found) == {"init": 1, "gemm": 20, "softmax": 20, "adam": 20}
    assert sum(recording_of(found)["idle_by"].values()) == pytest.approx(1)
    assert not warned(found, "not_traced", "child_lost", "child_runs", "no_gpu")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "code"),
    [("import sys; sys.exit(7)", 7), ("import os; os._exit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137)],
    ids=["exits", "leaves at once", "is killed"],
)
def test_kernels_are_kept_however_the_program_ends(run, workspace, text, code):
    found, said = run(f"from row_kernels import launch\nlaunch('one', 0.01)\n{text}\n")
    assert said.code == code
    assert kernels(found) == {"one": 1}
    assert found.complete
    assert warned(found, "program_failed", "program_ended")
    assert [path.name for path in (workspace / "kept").iterdir() if path.is_dir()] == []


@pytest.mark.thorough
def test_a_program_on_two_gpus_is_saved_as_one_run(run):
    text = "from row_kernels import launch\nfor _ in range(10):\n    launch('a', 0.01)\n    launch('b', 0.02, 1)\n"
    saved, _ = run(text, device=[f"{SIMULATED}&seed={seed}" for seed in (1, 2)])
    rows = {row["id"]: row for row in saved.units.to_pylist()}
    found = {rows[row["parent"]]["module"]: row for row in rows.values() if row["level"] == "kernel"}
    ids = [device.id for device in saved.devices]
    assert {id: row["name"] for id, row in found.items()} == dict(zip(ids, "ab", strict=True))
    assert [one["name"] for one in saved.workload["recordings"]] == ["gpu-0", "gpu-1"]
    assert saved.result("time_s", found[ids[1]]["id"]).value >= 0.2
    assert set(saved.activity["device"].to_pylist()) == set(ids)


def test_more_than_1024_files_may_be_open(run):
    """``select`` knows no more."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(limits[1], 4096)), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        _, said = run("")
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert said.code == 0, said.err


@pytest.mark.thorough
def test_kernels_on_a_gpu_that_is_not_recorded_are_named(run):
    text = "from row_kernels import launch, writer\nwriter().fact('device', '0 GPU-other')\nlaunch('one', 0.01)\n"
    found, _ = run(text)
    assert kernels(found) == {}
    (said,) = warned(found, "not_recorded")
    assert said.startswith("kernels ran on GPU-other, too, whose power isn't recorded")


def test_others_on_the_gpu_are_named(run, monkeypatch):
    there = [Process(7, "trainer", 3436 * 2**20), Process(8), Process(9, "nvidia-cuda-mps")]
    monkeypatch.setattr(CpuHost, "processes", lambda self: there)
    found, _ = run("")
    (said,) = warned(found, "other_processes")
    first, mps = "trainer (pid 7, 3.4 GiB)", "an MPS server (pid 9), which hides its clients"
    assert said.startswith(f"others use it, too: {first}, a process whose name can't be read, {mps};")


def test_those_that_come_later_are_named_but_not_the_program_s_own(run, monkeypatch):
    ours = [Process(os.getpid(), "python")]
    looks = [[*ours, Process(7, "early")], [*ours, Process(8, "late", 2**30)]]
    monkeypatch.setattr(CpuHost, "processes", lambda self: looks.pop(0) if len(looks) > 1 else looks[0])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ours.append(Process(child.pid, "worker"))
    looks[1].append(ours[-1])
    try:
        found, _ = run("")
    finally:
        child.communicate()
    (said,) = warned(found, "other_processes")
    assert said.startswith("others use it, too: early (pid 7), late (pid 8, 1.0 GiB);")


@pytest.mark.thorough
def test_those_that_come_and_go_meanwhile_are_named(run, monkeypatch):
    looks = [[], [Process(7, "guest")], []]
    monkeypatch.setattr(CpuHost, "processes", lambda self: looks.pop(0) if len(looks) > 1 else looks[0])
    found, _ = run("import time; time.sleep(4)")
    (said,) = warned(found, "other_processes")
    assert said.startswith("others use it, too: guest (pid 7);")


@pytest.mark.thorough
def test_a_program_beside_an_idle_simulated_gpu_is_not_trusted(run, workspace):
    for spec, levels in (("sim:h100", ["no"]), (SIMULATED, [])):
        found, _ = run("", device=[spec])
        assert [one["level"] for one in failed_of(found, "simulated_idle")] == levels
        (workspace / "kept").rename(workspace / spec)


def test_a_program_without_a_gpu_has_no_tracing_to_fail(run):
    found, _ = run("pass")
    asked = trust_of(found)
    assert [one for one in asked["failed"] if one["check"] != "power sensor"] == []
    assert "tracing" not in fact_of(found, "Passed")
    assert asked["level"] != "no", "the machine can't measure the energy"


# --- what the tracer can't do ------------------------------------------------------------------------

SEEN = "import os\nprint(*(os.environ.get(name) for name in ('CUDA_INJECTION64_PATH', 'NVTX_INJECTION64_PATH')))\n"


@pytest.fixture
def built(workspace, monkeypatch):
    """A library of the tracer's that does nothing."""
    library = workspace / "native.so"
    library.write_text("")
    monkeypatch.setattr(launching, "__file__", str(workspace / "launching.py"))
    monkeypatch.delenv(launching.CUDA, raising=False)
    monkeypatch.delenv(launching.NVTX, raising=False)
    return library


@pytest.mark.thorough
def test_the_program_and_all_that_it_starts_load_the_tracer(run, built, workspace):
    text = "import os\nos.system('env > seen')\n"
    found, _ = run(text, device=[SIMULATED], options=["--no-operators", "--duty", "5/60"])
    seen = dict(line.split("=", 1) for line in (workspace / "seen").read_text().splitlines() if "=" in line)
    assert {seen[name] for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")} == {str(built)}
    assert (seen["JOULETRACE_OPERATORS"], seen["JOULETRACE_DUTY"]) == ("0", "30 1500000 5 60 4000000")
    assert Path(seen["JOULETRACE_TRACE"]).is_absolute()
    assert not Path(seen["JOULETRACE_TRACE"]).exists(), "it has been read"
    (said,) = warned(found, "not_traced")
    assert said == (
        "kernels: none were traced: a program runs none on a simulated GPU, so its ranges are not kept, "
        "which are those of kernels: jt.record keeps them"
    )


def test_the_rows_of_a_program_are_its_user_s_alone(run):
    text = "import os\nprint(oct(os.stat(os.environ['JOULETRACE_TRACE']).st_mode), flush=True)\nos._exit(0)\n"
    run(f"import os, sys\nos.dup2(os.open('out', os.O_CREAT | os.O_WRONLY), 1)\n{text}")
    assert Path("out").read_text() == "0o40700\n"


def test_without_a_gpu_a_line_says_so_before_the_program_runs(run, monkeypatch):
    monkeypatch.setattr(registry, "_visible", lambda: ([], "no driver"))
    found, said = run("pass", device=["visible"])
    assert said.err.startswith("jouletrace: no GPU can be measured here: no driver\n")
    assert warned(found, "no_gpu") == ["there is no GPU here, and no kernels were traced"]


def test_the_cpu_alone_is_no_proof_that_there_is_no_gpu(run):
    found, said = run("pass")
    assert "no GPU" not in said.err
    assert warned(found, "no_gpu") == ["no GPU is recorded, and no kernels were traced"]


@pytest.mark.thorough
def test_without_a_built_library_there_is_power_and_a_line_says_so(run, built):
    built.unlink()
    found, said = run("pass", device=[SIMULATED])
    assert said.code == 0
    assert len(found.samples) > 0
    (line,) = warned(found, "not_traced")
    assert "the tracer isn't built here" in line


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"])
def test_another_library_of_the_user_s_stays_and_a_warning_says_what_is_missing(
    run, built, workspace, monkeypatch, name
):
    monkeypatch.setenv(name, "/opt/theirs.so")
    found, _ = run(f"import os\nopen('seen', 'w').write(os.environ[{name!r}])\n", device=[SIMULATED])
    assert (workspace / "seen").read_text() == "/opt/theirs.so"
    assert any(f"{name} is set to /opt/theirs.so" in line for line in warned(found, "not_traced"))


@pytest.mark.thorough
def test_what_the_tracer_says_is_missing_is_a_warning(run):
    text = "from row_kernels import launch, writer\nlaunch('one', 0.01)\nwriter().warn('profiler_inside', 'a gap')\n"
    found, _ = run(text)
    assert warned(found, "profiler_inside") == ["a gap"]


WHY_NONE = {
    "written too late": ("import os\nos.kill(os.getpid(), 9)\n", ["not_traced"], "ended before one was written"),
    "no space": (
        "one.dropped = 3\none._state()\n",
        ["records_dropped"],
        "3 of 3 launches have no kernel: the tracer dropped",
    ),
    "damaged": ("one.close()\nopen(one.folder / 'rows', 'wb')\n", ["child_lost"], "damaged file"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("why", WHY_NONE)
def test_a_program_without_kernels_says_why_once(run, why):
    text, codes, message = WHY_NONE[why]
    found, _ = run(f"from row_kernels import writer\none = writer()\n{text}", device=[SIMULATED])
    said = [one for one in found.warnings if one.code in ("not_traced", "records_dropped", "child_lost")]
    assert [one.code for one in said] == codes
    assert message in said[0].message


@pytest.mark.thorough
def test_a_process_that_outlives_the_program_is_named_before_its_first_kernel(run):
    text = (
        "import os, time\nready, there = os.pipe()\nif os.fork():\n    os.read(ready, 1)\n    time.sleep(0.2)\n"
        "else:\n    import row_kernels\n    row_kernels.writer()\n    os.write(there, b'.')\n"
    )
    found, _ = run(f"{text}    time.sleep(6)\n    os._exit(0)\n", device=[SIMULATED])
    assert [line for line in warned(found, "child_runs") if "still runs: its later kernels are missing" in line]


@pytest.mark.thorough
def test_a_process_whose_files_are_damaged_has_one_warning_while_it_runs(run):
    text = "import os\nplace = os.path.join(os.environ['JOULETRACE_TRACE'], f'{os.getppid()}-1')\nos.mkdir(place)\n"
    found, _ = run(text + "open(os.path.join(place, 'rows'), 'w').close()\n", device=[SIMULATED])
    (said,) = warned(found, "child_lost")
    assert "damaged file" in said


@pytest.mark.thorough
def test_what_cannot_be_analysed_stays_where_it_is(run, workspace, monkeypatch):
    def fail(*_):
        raise OSError("no memory")

    monkeypatch.setattr(recorded, "gpus_of", fail)
    _, said = run("from row_kernels import launch\nlaunch('one', 0.01)\nraise SystemExit(7)\n")
    assert said.code == 7
    assert "no memory" in said.err
    assert len(list(workspace.glob("kept/rows-*/*/rows"))) == 1
    assert not load(workspace / "kept").complete


def test_a_program_that_cannot_be_started_leaves_nothing(workspace, capsys):
    (workspace / "odd").write_text("#!/no/such/interpreter\n")
    (workspace / "odd").chmod(0o755)
    assert "run odd: No such file" in command(capsys, "run", "-d", "cpu", "./odd").complaint.replace("./", "")
    assert not list(workspace.glob("runs/*"))


# --- while it runs -----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_live_lines_say_what_is_drawn_and_what_ran_last(run):
    text = (
        "from row_kernels import launch\nfor _ in range(250):\n    launch('gemm', 8e-3)\n    launch('softmax', 2e-3)\n"
    )
    _, said = run(text, device=[SIMULATED], options=["--live"])
    line = next(line for line in said.err.splitlines() if line.startswith("jouletrace: 2 s"))
    assert "W, GPU busy " in line
    assert line.index("gemm") < line.index("softmax")


def test_what_ran_last_is_of_the_last_second_of_all_gpus(tmp_path):
    now = 1_700_000_000_000_000_000
    for pid, device in ((7, 0), (8, 1)):
        with Writer(tmp_path, pid) as writer:
            for start, end, name in ((-5000, -2000, "old"), (-400, -100, "_Z4gemmPf"), (-100, 0, "softmax")):
                writer.row(now + start * 10**6, now + end * 10**6, name, device=device)
            writer.row(now - 10**8, now, "memcpy HtoD", device=device, kind=1)
    (tmp_path / "9-1").mkdir()
    assert live.ran_last(tmp_path, now + 10**9) == pytest.approx({"gemm(float*)": 0.3, "softmax": 0.1})
    assert live.ran_last(tmp_path, now + 10**10) == {}


def test_a_command_has_its_name(workspace, capsys):
    command(capsys, "run", "-d", "cpu", sys.executable, "-c", "pass", "x.py")
    assert load(only_run(workspace)).workload["name"] == "x.py"
