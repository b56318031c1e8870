"""The entry point: help, version, and one line with its exit code for whatever is wrong."""

import json
import os
import subprocess
import sys

import pytest

from commands import TOY, command
from jouletrace import __version__
from jouletrace.run import load, save
from make_runs import profile_run

COMMANDS = ("doctor", "profile", "monitor", "calibrate", "show", "export", "demo")


@pytest.fixture(autouse=True)
def place(workspace):
    (workspace / "toy.py").write_text(TOY)
    return workspace


def test_the_help_lists_every_command(capsys):
    said = command(capsys, "--help")
    assert (said.code, said.err) == (0, "")
    for name in COMMANDS:
        assert name in said.out
    assert command(capsys).out == said.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(capsys, name):
    said = command(capsys, name, "--help")
    assert said.code == 0
    assert f"jouletrace {name}" in said.out or "Usage" in said.out
    assert said.out == command(capsys, name, "-h").out


def test_the_version(capsys):
    assert command(capsys, "--version") == (0, f"jouletrace {__version__}\n", "")


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [["--help"], ["profile", "--help"], ["monitor", "--help"]])
def test_help_needs_neither_torch_nor_numpy(arguments):
    heavy = ("torch", "numpy", "pyarrow", "scipy", "transformers", "pynvml")
    code = (
        "import sys; from jouletrace.cli.main import run; code = run(sys.argv[1:]); "
        f"print('heavy:', [name for name in {heavy} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.thorough
def test_figures_need_neither_statistics_nor_optimizers():
    """Imports that would take longer than all others together, in every process that measures or shows."""
    code = (
        "import sys, jouletrace.profiler.profile, jouletrace.report; from jouletrace.devices import open_device; "
        "open_device('sim:h100'); slow = 'stats', 'optimize', 'signal', 'interpolate'; "
        "print([name for name in ('torch', 'pandas', *(f'scipy.{name}' for name in slow)) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.thorough
def test_a_command_that_runs_no_one_elses_code_does_without_slow_imports():
    pytest.importorskip("pandas")
    code = (
        "import sys; from jouletrace.cli import main; sys.argv = ['jouletrace', 'doctor', '-d', 'sim:h100']\n"
        "try: main.main()\nexcept SystemExit as end:\n"
        "    print(end.code, {'pandas', 'prometheus_client', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 set()"


WRONG = [
    (2, ["nope"], "No such command 'nope'"),
    (2, ["profile"], "Missing argument"),
    (2, ["profile", "deit-t", "--nope"], "No such option"),
    (2, ["profile", "deit-t", "--batch", "x"], "--batch x: must be a whole number (Samples per iteration)"),
    (2, ["profile", "deit-t", "--batch", "1.5"], "--batch 1.5: must be a whole number"),
    (2, ["profile", "deit-t", "--batch", ""], "--batch '': must be a whole number"),
    (2, ["profile", "deit-t", "--repeats", "x"], "--repeats x: must be a whole number, at least 1 (Fresh processes"),
    (
        *(2, ["profile", "deit-t", "--task", "train", "--label-smoothing", "x"]),
        "--label-smoothing x: must be a number (Label smoothing of the training loss: at least 0, less than 1)",
    ),
    *(
        (2, ["profile", workload, "--label-smoothing", value], f"--label-smoothing {said}: must be at least 0 and less")
        for workload in ("deit-t", "gemm", "toy.py:toy")
        for value, said in (("1.0", "1"), ("-0.1", "-0.1"), ("nan", "nan"))
    ),
    (2, ["profile", "deit-t", "--max-time", "1h"], "--max-time 1h: must be a number (Time limit from the warm-up"),
    (2, ["monitor", "--interval", "x"], "--interval x: must be a number (Seconds between lines)"),
    (2, ["profile", "deit-t", "--batch", "0"], "--batch 0: must be at least 1"),
    (2, ["profile", "deit-t", "--repeats", "0"], "--repeats 0: must be at least 1"),
    (2, ["profile", "deit-t", "--target-ci", "wide"], "write a percentage such as 1%"),
    (2, ["profile", "deit-t", "--target-ci", "200%"], "must lie between 0 and 100 %"),
    (2, ["profile", "deit-t", "--max-time", "0"], "--max-time 0"),
    (2, ["profile", "deit-t", "--dtype", "fp8"], "--dtype fp8: must be one of fp32"),
    (2, ["profile", "deit-t", "--mode", "jit"], "--mode jit: must be one of eager, graph, compile"),
    (2, ["profile", "deit-t", "--detail", "atom"], "--detail atom"),
    *(
        (
            2,
            [*line, "--detail", "phase", "-d", "sim:h100"],
            "--detail phase: an inference has no phases; --task train (",
        )
        for line in (["profile", "deit-t"], ["profile", "toy.py:toy"])
    ),
    (2, ["profile", "deit-t", "--format", "xml"], "unknown format 'xml': it is one of table"),
    (2, ["profile", "deit-t", "--config", "depth"], "--config 'depth': write KEY=VALUE"),
    (
        2,
        ["profile", "deit-t", "-d", "sim:h100", "--config", "num_hidden_layers=-3"],
        "--config num_hidden_layers=-3: a count",
    ),
    (2, ["profile", "deti-t"], "did you mean 'deit-t'"),
    (2, ["profile", "toy.py:ty"], "toy.py has no 'ty'; did you mean 'toy'?"),
    (2, ["profile", "ty.py:toy"], "ty.py: no such file"),
    (2, ["profile", "nowhere.at_all:toy"], "no module named 'nowhere'"),
    (2, ["profile", "toy.py:wrong", "-d", "cpu"], "returned int, not (model, inputs) or (callable, args)"),
    (
        2,
        ["profile", "toy.py:broken", "-d", "cpu"],
        "toy.py:broken: its call raised ValueError: two lines (toy.py, line",
    ),
    (2, ["profile", "toy.py:broken", "-d", "sim:h100"], "toy.py:broken: its call raised ValueError: two lines (toy.py"),
    (2, ["profile", "toy.py:bad_shape", "-d", "cpu"], "toy.py:bad_shape, batch 16: its forward raised RuntimeError"),
    (2, ["profile", "toy.py:bad_shape", "-d", "sim:h100"], "toy.py:bad_shape, batch 16: its forward raised"),
    (2, ["profile", "toy.py:leaves", "-d", "sim:h100"], "toy.py:leaves: its call raised SystemExit: 0"),
    (3, ["profile", "toy.py:hungry", "-d", "cpu"], "out of memory (asked for 2.00 GiB more, 1.20 GiB free)"),
    (2, ["profile", "toy.py:toy", "-d", "gpu7"], "unknown device 'gpu7': it may be auto, cuda:N"),
    (2, ["profile", "toy.py:toy", "-d", "sim:h300"], "no simulated GPU called 'h300'; there are: h100, a100, "),
    (2, ["profile", "toy.py:toy", "-d", "sim:h100?noise=x"], "bad value 'x' for 'noise'"),
    (2, ["monitor", "-d", "sim:h100?load=1e9:1e30", "--duration", "1"], "each piece lasts 0.001 to 1e+06 s"),
    (2, ["monitor", "-d", "sim:h100?load=1:1e30", "--duration", "1"], "draws more than 0 and at most 2000 W"),
    (2, ["monitor", "-d", "sim:h100?load=2:nan", "--duration", "1"], "bad value '2:nan' for 'load': not a finite"),
    (2, ["monitor", "-d", "sim:h100?noise=1e300", "--duration", "1"], "bad value '1e300' for 'noise': at most 100"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "--mode", "graph"], "--mode graph on cpu"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "--seq-len", "8"], "has no parameter 'seq_len'"),
    (3, ["profile", "toy.py:toy", "-d", "sim:h100", "--batch", "1" + 9 * "0"], "needs at least 476.8 GiB, and"),
    (2, ["profile", "toy.py:toy", "-d", "sim:h100", "--batch", "1" + 20 * "0"], "must be at most 2147483647"),
    (3, ["profile", "deit-t", "-d", "sim:h100", "--batch", "1" + 9 * "0"], "needs at least 5.665e+05 GiB, and"),
    (2, ["profile", "w" * 300, "-d", "sim:h100"], "the name is too long for a file"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py"], "toy.py exists; results are never overwritten"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py/run"], "cannot write toy.py/run"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py/run.zip"], "cannot write toy.py/run.zip"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "/proc/nowhere/run"], "cannot write /proc/nowhere/run"),
    (2, ["profile", ""], "no workload named (built in: deit"),
    (2, ["monitor", "-d", "sim:h100?realtime=1", "--", "./"], "run ./: a folder without a __main__.py"),
    (2, ["monitor", "-d", "sim:h100", "--duration", "1", "-f", "csv", "--json"], "--format csv --json: give only one"),
    (2, ["monitor", "python", "t.py", "--device", "sim:h100"], "monitor --device 'sim:h100' python …"),
    (2, ["run", "toy.py", "--device=sim:h100?load=1:300"], "--device comes before the program: jouletrace run"),
    (2, ["compare", "good", "good", "good"], "joined by commas: compare A1,A2 B1,B2"),
    (2, ["monitor", "-d", "sim:h100?realtime=0"], "give a duration, or write realtime=1"),
    (2, ["monitor", "-d", "sim:h100", "--duration", "0"], "--duration 0: must be more than 0 s"),
    (2, ["monitor", "-d", "sim:h100", "--interval", "nan"], "--interval nan: must be more than 0 s"),
    (2, ["monitor", "-d", "sim:h100?realtime=1", "--", "no-such-program"], "run no-such-program: No such file"),
    (2, ["monitor", "-d", "cpu", "-d", "sim:h100?realtime=0", "--duration", "1"], "can't be recorded together"),
    (2, ["profile", "toy.py:toy", "-d", "sim:h100?realtime=1"], "runs in virtual time; leave out realtime=1"),
    (2, ["ab", "toy.py:toy", "toy.py:toy", "-d", "sim:h100?realtime=1"], "runs in virtual time; leave out realtime=1"),
    (2, ["calibrate", "-d", "sim:h100?realtime=1"], "runs in virtual time; leave out realtime=1"),
    (2, ["profile", "toy.py:toy", "--threads", "1" + 12 * "0"], "--threads 1000000000000: must be at most 1024"),
    (2, ["profile", "toy.py:toy", "--streams", "1" + 9 * "0"], "--streams 1000000000: must be at most 1024"),
    (2, ["profile", "toy.py:toy", "--seed", "-1"], "--seed -1: must lie between 0 and 9223372036854775807"),
    (2, ["profile", "toy.py:toy", "--seed", "1" + 22 * "0"], "--seed 10000000000000000000000: must lie between 0"),
    (2, ["profile", "resnet50", "--task", "train", "-d", "cpu", "--data", ""], "--data: no folder is named"),
    (2, ["calibrate", "-d", "sim:h100", "--seconds", "3"], "--seconds 3: must be between 10 and 600 s"),
    (2, ["show"], "Missing argument"),
    (2, ["profile", "toy.py:toy", "--batch", "1,8"], "jouletrace sweep takes several"),
    (2, ["show", "nowhere"], "no Run at nowhere"),
    (2, ["show", "toy.py"], "neither a folder nor a readable zip file"),
    (2, ["show", "good", "--top", "0"], "top"),
    (2, ["show", "good", "--detail", "atom"], "no level 'atom' here"),
    (2, ["show", "newer"], "upgrade jouletrace"),
    (2, ["show", "torn"], "samples.parquet is damaged"),
    (2, ["export", "good", "--format", "xml"], "unknown format 'xml'"),
    (2, ["export", "good", "--format", "perfetto"], "--format chrome opens at https://ui.perfetto.dev"),
    (2, ["export", "good", "--format", "csv", "-o", "good"], "exists; results are never overwritten"),
    (2, ["export", "good"], "Missing"),
    (2, ["doctor", "-d", "gpu7"], "unknown device 'gpu7'"),
    (2, ["demo", "--with-profile", "--json"], "request them separately"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A good Run, one of a newer format, and one with a truncated table."""
    folder = tmp_path_factory.mktemp("stored")
    run = profile_run()
    run.samples = run.samples.slice(0, 40)
    for name in ("good", "newer", "torn"):
        save(run, folder / name)
    header = json.loads((folder / "newer" / "run.json").read_text())
    (folder / "newer" / "run.json").write_text(json.dumps(header | {"schema_version": "99.0"}))
    samples = folder / "torn" / "samples.parquet"
    samples.write_bytes(samples.read_bytes()[:-100])
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "arguments", "said"), WRONG, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_what_is_wrong_is_reported_in_one_line(capsys, place, stored, code, arguments, said):
    for name in ("good", "newer", "torn"):
        (place / name).symlink_to(stored / name)
    before = sorted(path.name for path in place.rglob("*"))
    found = command(capsys, *arguments)
    assert found.code == code
    assert said in found.complaint
    left = {path.name for path in place.rglob("*") if "__pycache__" not in str(path)} - set(before)
    assert left <= {"runs"}, "nothing was measured, so nothing is left"


@pytest.mark.thorough
def test_a_workload_that_fails_in_the_middle_is_one_line_and_leaves_what_was_recorded(capsys, place):
    said = command(capsys, "profile", "toy.py:tires", "-d", "cpu")
    (run,) = (place / "runs").iterdir()
    kept, complaint = said.err.splitlines()
    assert (said.code, kept) == (2, f"the data recorded so far is in runs/{run.name}")
    assert "toy.py:tires: its call raised ValueError: tired (toy.py, line" in complaint
    assert not load(run).complete


def test_a_bug_keeps_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.loading.load", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command(capsys, "show", "anything")


def test_ctrl_c_is_130(capsys, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("jouletrace.profiler.loading.load", interrupted)
    said = command(capsys, "show", "anything")
    assert (said.code, said.err) == (130, "jouletrace: interrupted\n")


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [["doctor", "-d", "sim:h100"]])
def test_a_reader_that_leaves_is_no_failure(place, arguments):
    line = f"{sys.executable} -m jouletrace {' '.join(arguments)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")


def shell(line, place):
    """A line of bash, in which J is our command."""
    line = line.replace("J", f"{sys.executable} -m jouletrace")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=place, env=environment)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        pytest.param("doctor -d sim:h100 --json", marks=pytest.mark.slow),
        "monitor -d sim:h100 --duration 1 -f csv",
    ],
)
def test_a_full_disk_under_the_output_is_one_line(place, arguments):
    done = shell(f"J {arguments} > /dev/full", place)
    assert done.returncode == 120, "as Python itself ends"
    assert done.stderr.splitlines()[-1] == "jouletrace: cannot write the output: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_a_closed_output_is_refused_before_anything_is_measured(place):
    done = shell("J monitor -d sim:h100 --duration 2 >&-", place)
    assert (done.returncode, done.stderr) == (
        2,
        "jouletrace: standard output is closed: open it, or redirect it to /dev/null\n",
    )
    assert not (place / "runs").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("closed", ["2>/dev/full", pytest.param("2>&-", marks=pytest.mark.slow), "<&- 2>&-"])
def test_a_closed_stderr_keeps_nothing_from_being_measured(place, closed):
    done = shell(f"J monitor -d sim:h100 --duration 1 --json {closed}", place)
    assert done.returncode == 0
    assert json.loads(done.stdout)["simulated"]
    assert len(list((place / "runs").iterdir())) == 1


@pytest.mark.thorough
def test_help_comes_without_what_draws_frames():
    code = (
        "import sys; from jouletrace.cli.main import run; run(['--help']); "
        "print([name for name in sys.modules if 'rich' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
