"""``trace``: nsys and ncu driven through stand-ins, their output merged with what was recorded meanwhile."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from commands import command, gone, only_run, wait_for
from import_timelines import GEMM, RELU, ncu_details, nsys
from jouletrace.devices import open_device
from jouletrace.errors import BrokenOffError, NotPossibleError
from jouletrace.run import load
from jouletrace.tracer import Launched, ProcessTrace
from jouletrace.tracer.rows import UNSHAPED
from jouletrace.wings.toolchain import loop, nsight, tools
from jouletrace.wings.toolchain.tools import Ended
from jouletrace.wings.toolchain.trace import what
from jouletrace.wings.toolchain.vendor_run import ToolRecording
from stand_ins import called, install, limit_once_it_hangs

WRITES_CSV = """
import shutil
shutil.copy(here / "recorded.csv", option("--log-file"))
print("==PROF== Connected to process 42")
"""
WRITES_REPORT = """
import shutil
if arguments[0] == "export":
    shutil.copy(here / "recorded.sqlite", option("--output"))
else:
    pathlib.Path(option("--output") + ".nsys-rep").write_text("report")
    if EXPORTS:
        shutil.copy(here / "recorded.sqlite", option("--output") + ".sqlite")
"""


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def stand_in_ncu(tmp_path, monkeypatch, body=WRITES_CSV):
    bin = install(tmp_path, monkeypatch, "ncu", body)
    ncu_details(bin / "recorded.csv", [(GEMM, (8, 1, 1)), (RELU, (16, 1, 1))])
    return bin


@pytest.mark.thorough
def test_a_command_under_ncu_becomes_a_run_with_its_counters(tmp_path, monkeypatch, capsys):
    bin = stand_in_ncu(tmp_path, monkeypatch)
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--launch-count", "5", "--", "sleep", "0.1")
    assert said.code == 0, said.err
    run = load(str(only_run(tmp_path)))
    assert run.complete
    assert run.kind == "import"
    assert [span["name"] for span in run.spans.to_pylist() if span["kind"] == "kernel"] == [GEMM, RELU]
    assert len(run.counters) > 0
    asked = called(bin, "ncu")
    assert asked[-2:] == ["sleep", "0.1"]
    assert [asked[k + 1] for k, one in enumerate(asked) if one == "--section"] == list(nsight.SECTIONS)
    for option, value in (("--clock-control", "none"), ("--print-units", "base"), ("--launch-count", "5")):
        assert asked[asked.index(option) + 1] == value
    assert "--profile-from-start" not in asked


@pytest.mark.thorough
def test_the_exact_command_is_printed_and_stored(tmp_path, monkeypatch, capsys):
    bin = stand_in_ncu(tmp_path, monkeypatch)
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--", "echo", "two words")
    (shown,) = [line.removeprefix("running: ") for line in said.err.splitlines() if line.startswith("running: ")]
    assert shown.endswith("echo 'two words'")
    assert shown.startswith(str(bin / "ncu"))
    assert load(str(only_run(tmp_path))).settings["commands"] == [shown]


@pytest.mark.thorough
def test_the_tools_own_files_stay_in_the_folder_of_the_run(tmp_path, monkeypatch, capsys):
    stand_in_ncu(tmp_path, monkeypatch)
    command(capsys, "trace", "--with", "ncu", "-d", "cpu", "-o", "traced", "--", "true")
    assert (tmp_path / "traced" / "ncu.csv").read_text().startswith("==PROF==")
    assert "Connected to process 42" in (tmp_path / "traced" / "ncu.log").read_text()


@pytest.mark.thorough
def test_ncu_without_permission_is_explained(tmp_path, monkeypatch, capsys):
    body = 'print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"); sys.exit(1)'
    stand_in_ncu(tmp_path, monkeypatch, body)
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--", "true")
    assert said.code == 3
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said.err.splitlines()[-1]
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("written", "kind", "says"),
    [
        ("Profiling failed because a driver resource was unavailable.", NotPossibleError, "another program holds them"),
        ("An error was reported by the driver", BrokenOffError, "An error was reported by the driver"),
    ],
)
def test_a_file_without_counters_says_why(tmp_path, written, kind, says):
    (tmp_path / "ncu.csv").write_text(f"==ERROR== {written}\n")
    with pytest.raises(kind, match=says):
        nsight.ncu_output(Ended(1, "", 0, 1), tmp_path)


@pytest.mark.thorough
def test_an_ncu_that_fails_or_counts_nothing_says_why(tmp_path, monkeypatch, capsys):
    stand_in_ncu(tmp_path, monkeypatch, 'print("==ERROR== Unknown section: Foo"); sys.exit(9)')
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--section", "Foo", "--", "true")
    assert said.code == 2
    assert "ncu ended with exit code 9: ==ERROR== Unknown section: Foo" in said.err
    stand_in_ncu(tmp_path, monkeypatch, 'print("==WARNING== No kernels were profiled.")')
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--", "true")
    assert said.code == 2
    assert "launched no kernel" in said.err
    stand_in_ncu(tmp_path, monkeypatch, "")
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--", "true")
    assert said.code == 2
    assert "wrote no launch" in said.err


@pytest.mark.thorough
def test_a_tool_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch, capsys):
    body = """
child = subprocess.Popen(["sleep", "infinity"])
(here / "child").write_text(str(child.pid))
print("waiting for something", flush=True)
hang()
"""
    bin = stand_in_ncu(tmp_path, monkeypatch, body)
    limit_once_it_hangs(monkeypatch, tmp_path)
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "--time-limit", "0.5", "--", "true")
    assert said.code == 3
    assert "did not end within 0.5 s" in said.err
    assert "waiting for something" in said.err
    wait_for(lambda: gone(int((bin / "child").read_text())))


@pytest.mark.thorough
@pytest.mark.parametrize("exports", [True, False])
def test_a_command_under_nsys_becomes_a_timeline(tmp_path, monkeypatch, capsys, exports):
    bin = install(tmp_path, monkeypatch, "nsys", WRITES_REPORT.replace("EXPORTS", str(exports)))
    nsys(bin / "recorded.sqlite")
    said = command(capsys, "trace", "--with", "nsys", "-d", "cpu", "-o", "traced", "--", "true")
    assert said.code == 0, said.err
    run = load(str(tmp_path / "traced"))
    assert sum(span["kind"] == "kernel" for span in run.spans.to_pylist()) == 6
    assert (tmp_path / "traced" / "nsys.nsys-rep").exists()
    assert len(run.settings["commands"]) == (1 if exports else 2)
    first = run.settings["commands"][0]
    assert "--trace=cuda,cudnn,cublas,osrt,nvtx" in first
    assert "--cuda-graph-trace=node" in first


@pytest.mark.thorough
def test_an_nsys_that_writes_nothing_says_so(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, "nsys", 'print("unrecognised option --foo")')
    said = command(capsys, "trace", "--with", "nsys", "-d", "cpu", "--", "true")
    assert said.code == 2
    assert "nsys wrote no report" in said.err
    assert "--foo" in said.err


@pytest.mark.thorough
def test_a_workload_runs_in_a_process_of_its_own_under_nsys(tmp_path, monkeypatch, capsys):
    body = """
ended = subprocess.run(arguments[arguments.index("--force-overwrite=true") + 1:])
import shutil
shutil.copy(here / "recorded.sqlite", option("--output") + ".sqlite")
sys.exit(ended.returncode)
"""
    bin = install(tmp_path, monkeypatch, "nsys", body)
    nsys(bin / "recorded.sqlite")
    (tmp_path / "toy.py").write_text(
        "import pathlib\ndef toy():\n    return (lambda x: pathlib.Path('ran').open('a').write('x')), (1,)\n"
    )
    said = command(capsys, "trace", "--with", "nsys", "-d", "cpu", "--iterations", "4", "toy.py:toy")
    assert said.code == 0, said.err
    trial, warm_up, marked = 1, 3, 4
    assert len((tmp_path / "ran").read_text()) == trial + warm_up + marked


def test_what_is_not_installed_is_named_with_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for known, hint in ((nsight.NSYS, "nsight-systems"), (nsight.NCU, "nsight-compute")):
        with pytest.raises(NotPossibleError, match=f"{known.name} is not installed here.*{hint}"):
            replace(known, places=()).find()


def test_a_program_beside_the_path_is_detected_the_newest_first(tmp_path, monkeypatch):
    for version in ("2024.1", "2025.3"):
        place = tmp_path / "opt" / version / "ncu-nowhere"
        place.parent.mkdir(parents=True)
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    found = tools.Tool("ncu-nowhere", (str(tmp_path / "opt" / "*" / "ncu-nowhere"),), "").find()
    assert "2025.3" in found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--with", "perf", "--", "true"], "--with perf: must be one of nsys, ncu"),
        (["--with", "nsys", "--section", "Occupancy", "--", "true"], "apply to ncu"),
        (["--with", "ncu", "--iterations", "0", "deit-t"], "--iterations 0"),
        (["--with", "ncu", "--time-limit", "0", "deit-t"], "--time-limit 0"),
        (["--with", "nsys", "deit-q"], "unknown workload 'deit-q'"),
        (["--with", "nsys", "--", "no-such-program", "-x"], "no such program"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(capsys, tmp_path, arguments, says):
    said = command(capsys, "trace", *arguments)
    assert said.code == 2
    assert says in said.complaint
    assert not (tmp_path / "runs").exists()


def test_a_simulated_gpu_runs_no_programs(tmp_path, monkeypatch, capsys):
    stand_in_ncu(tmp_path, monkeypatch)
    said = command(capsys, "trace", "--with", "ncu", "-d", "sim:h100", "--", "true")
    assert said.code == 2
    assert "real device" in said.complaint


@pytest.mark.thorough
def test_ncu_needs_a_gpu_for_a_workload(tmp_path, monkeypatch, capsys):
    stand_in_ncu(tmp_path, monkeypatch)
    said = command(capsys, "trace", "--with", "ncu", "-d", "cpu", "deit-t")
    assert said.code == 3
    assert "ncu measures kernels of NVIDIA GPUs" in said.complaint


class Step:
    """Counts how often it is run."""

    def __init__(self):
        self.ran, self.replayed = 0, lambda n: None

    def replay(self, n):
        self.ran += n
        self.replayed(n)


class Tracer:
    """Records each iteration's kernels, also those of its settling, with the range that is open."""

    def __init__(self, step, kernels):
        self.step, self.kernels, self.open, self.paths = step, kernels, (), []
        step.replayed = lambda n: self.paths.extend([self.open] * (n * len(kernels)))

    def push(self, name):
        self.open = (name,)

    def pop(self):
        self.open = ()

    def traced(self):
        paths = [(), *dict.fromkeys(self.paths)]
        count = len(self.paths)
        start = time.time_ns() - 1000 * np.arange(count, 0, -1)
        name = np.arange(count) % max(len(self.kernels), 1)
        shapes = [UNSHAPED, *((grid, 1, 1, 128, 1, 1, 32, 0, 0) for _, grid in self.kernels)]
        known = {"paths": paths, "path": np.array([paths.index(one) for one in self.paths], int), "shapes": shapes}
        names = [one for one, _ in self.kernels]
        work = Launched.from_columns(names, name, start, start + 500, extra=name + 1, **known)
        return ProcessTrace(1, "step", None, ["GPU-0"], work, [])


def tracing(step, kernels=((GEMM, 8), (RELU, 16))):
    def trace(call):
        tracer = Tracer(step, kernels)
        call(tracer)
        return tracer.traced()

    return trace


@pytest.mark.thorough
def test_counters_of_ncu_stand_on_the_kernels_that_were_traced_here(tmp_path, monkeypatch):
    iterations = 3
    step = Step()
    monkeypatch.setattr(loop, "trace", tracing(step))
    device = open_device("cpu")
    with ToolRecording(device, tmp_path / "run") as recording:
        found = loop.add_timeline(recording.session, step, iterations)
        place = ncu_details(tmp_path / "ncu.csv", [(GEMM, (8, 1, 1)), (RELU, (16, 1, 1))] * iterations)
        run = recording.finish({place: "ncu"})
    assert found == 2 * iterations
    assert step.ran == 3 + 2 + iterations
    assert run.settings["imported"][1]["match"]["rate"] == 1.0
    kernels = [span for span in run.spans.to_pylist() if span["kind"] == "kernel"]
    assert len(kernels) == 2 * iterations
    assert set(run.counters["span"].to_pylist()) == {span["id"] for span in kernels}
    assert all(span["start_ns"] for span in kernels)
    assert load(str(tmp_path / "run")).complete


@pytest.mark.thorough
def test_launches_that_the_timeline_does_not_have_are_reported(tmp_path, monkeypatch):
    step = Step()
    monkeypatch.setattr(loop, "trace", tracing(step))
    device = open_device("cpu")
    with ToolRecording(device, tmp_path / "run") as recording:
        loop.add_timeline(recording.session, step, 1)
        place = ncu_details(tmp_path / "ncu.csv", [(GEMM, (8, 1, 1)), (RELU, (99, 1, 1))])
        run = recording.finish({place: "ncu"})
    assert run.settings["imported"][1]["match"]["matched"] == 1
    assert any(warning.code == "counters_unmatched" for warning in run.warnings)


@pytest.mark.thorough
def test_a_workload_that_runs_nothing_on_the_gpu_has_no_timeline(tmp_path, monkeypatch):
    step = Step()
    monkeypatch.setattr(loop, "trace", tracing(step, kernels=()))
    with (
        pytest.raises(NotPossibleError, match="ran nothing on the GPU"),
        ToolRecording(open_device("cpu"), tmp_path / "run") as recording,
    ):
        loop.add_timeline(recording.session, step, 1)


def test_one_argument_is_a_workload_and_several_are_a_command():
    assert what(["deit-t"]).name == "deit-tiny"
    assert what(["true"]) == ["true"]
    assert what([sys.executable, "-c", "1"]) == [sys.executable, "-c", "1"]


def test_a_failure_is_reported_by_its_informative_line():
    ended = Ended(1, "starting\nError: no such option\nbye\n", 0, 1)
    assert ended.last_complaint() == "Error: no such option"
    assert Ended(-9, "", 0, 1).how() == "signal 9"
    assert Ended(1, "", 0, 1).last_complaint() == ""
