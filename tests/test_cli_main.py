"""The entry point: help, version, and one line with its exit code for whatever is wrong."""

import json
import subprocess
import sys

import pytest

from commands import TOY, command
from jouletrace import __version__
from jouletrace.run import save
from make_runs import profile_run

COMMANDS = ("doctor", "profile", "monitor", "calibrate", "show", "export", "demo")


@pytest.fixture(autouse=True)
def place(workplace):
    (workplace / "toy.py").write_text(TOY)
    return workplace


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


@pytest.mark.parametrize("arguments", [["--help"], ["profile", "--help"], ["monitor", "--help"]])
def test_help_needs_neither_torch_nor_numpy(arguments):
    heavy = ("torch", "numpy", "pyarrow", "scipy", "transformers", "pynvml")
    code = (
        "import sys; from jouletrace.cli.main import run; code = run(sys.argv[1:]); "
        f"print('heavy:', [name for name in {heavy} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


WRONG = [
    (2, ["nope"], "No such command 'nope'"),
    (2, ["profile"], "Missing argument"),
    (2, ["profile", "deit-t", "--nope"], "No such option"),
    (2, ["profile", "deit-t", "--batch", "x"], "'--batch'"),
    (2, ["profile", "deit-t", "--batch", "0"], "--batch 0: must be at least 1"),
    (2, ["profile", "deit-t", "--repeats", "0"], "repeats"),
    (2, ["profile", "deit-t", "--target-ci", "wide"], "write a percentage such as 1%"),
    (2, ["profile", "deit-t", "--target-ci", "200%"], "must lie between 0 and 100 %"),
    (2, ["profile", "deit-t", "--max-time", "0"], "--max-time 0"),
    (2, ["profile", "deit-t", "--dtype", "fp8"], "--dtype fp8: must be one of fp32"),
    (2, ["profile", "deit-t", "--mode", "jit"], "--mode jit: must be one of eager, graph, compile"),
    (2, ["profile", "deit-t", "--detail", "layer"], "--detail layer"),
    (2, ["profile", "deit-t", "--format", "xml"], "--format xml: must be one of table"),
    (2, ["profile", "deit-t", "--config", "depth"], "--config 'depth': write KEY=VALUE"),
    (2, ["profile", "deti-t"], "did you mean 'deit-t'"),
    (2, ["profile", "toy.py:ty"], "toy.py has no 'ty'; did you mean 'toy'?"),
    (2, ["profile", "ty.py:toy"], "ty.py: no such file"),
    (2, ["profile", "nowhere.at_all:toy"], "no module named 'nowhere'"),
    (2, ["profile", "toy.py:wrong", "-d", "cpu"], "returned int, not (model, inputs) or (callable, args)"),
    (2, ["profile", "toy.py:broken", "-d", "cpu"], "raised ValueError: two lines"),
    (3, ["profile", "toy.py:hungry", "-d", "cpu"], "out of memory (asked for 2.00 GiB more, 1.20 GiB free)"),
    (2, ["profile", "toy.py:toy", "-d", "gpu7"], "unknown device 'gpu7': it may be auto, cuda:N"),
    (2, ["profile", "toy.py:toy", "-d", "sim:h300"], "no simulated board called 'h300'"),
    (2, ["profile", "toy.py:toy", "-d", "sim:h100?noise=x"], "bad value 'x' for 'noise'"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "--mode", "graph"], "--mode graph on cpu"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "--seq-len", "8"], "has no parameter 'seq_len'"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py"], "toy.py exists; results never go over older ones"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py/run"], "cannot write toy.py/run"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "toy.py/run.zip"], "cannot write toy.py/run.zip"),
    (2, ["profile", "toy.py:toy", "-d", "cpu", "-o", "/proc/nowhere/run"], "cannot write /proc/nowhere/run"),
    (2, ["monitor", "-d", "sim:h100"], "give a duration, or write sim:h100?realtime=1"),
    (2, ["monitor", "-d", "sim:h100", "--duration", "0"], "--duration 0: must be more than 0 s"),
    (2, ["monitor", "-d", "sim:h100", "--interval", "nan"], "--interval nan: must be more than 0 s"),
    (2, ["monitor", "-d", "sim:h100?realtime=1", "--", "no-such-program"], "cannot run 'no-such-program'"),
    (2, ["monitor", "-d", "cpu", "-d", "sim:h100", "--duration", "1"], "can't be recorded together"),
    (2, ["calibrate", "-d", "sim:h100", "--seconds", "3"], "--seconds 3: between 10 and 600 s"),
    (2, ["show"], "Missing argument"),
    (2, ["show", "nowhere"], "no Run at nowhere"),
    (2, ["show", "toy.py"], "neither a folder nor a readable zip file"),
    (2, ["show", "good", "--top", "0"], "top"),
    (2, ["show", "good", "--detail", "atom"], "unknown detail 'atom'"),
    (2, ["show", "newer"], "upgrade jouletrace"),
    (2, ["show", "torn"], "samples.parquet is damaged"),
    (2, ["export", "good", "--format", "xml"], "unknown format 'xml'"),
    (2, ["export", "good", "--format", "csv", "-o", "good"], "exists; results never go over older ones"),
    (2, ["export", "good"], "Missing"),
    (2, ["doctor", "-d", "gpu7"], "unknown device 'gpu7'"),
    (2, ["demo", "--with-profile", "--json"], "ask for one at a time"),
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
    (folder / "newer" / "run.json").write_text(json.dumps(header | {"schema_version": "2.0"}))
    samples = folder / "torn" / "samples.parquet"
    samples.write_bytes(samples.read_bytes()[:-100])
    return folder


@pytest.mark.parametrize(
    ("code", "arguments", "said"), WRONG, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_what_is_wrong_is_said_in_one_line(capsys, place, stored, code, arguments, said):
    for name in ("good", "newer", "torn"):
        (place / name).symlink_to(stored / name)
    before = sorted(path.name for path in place.rglob("*"))
    found = command(capsys, *arguments)
    assert found.code == code
    assert said in found.complaint
    left = {path.name for path in place.rglob("*") if "__pycache__" not in str(path)} - set(before)
    assert left <= {"runs"}, "nothing was measured, so nothing is left"


def test_a_bug_keeps_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr("jouletrace.run.load", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command(capsys, "show", "anything")


def test_ctrl_c_is_130(capsys, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("jouletrace.run.load", interrupted)
    said = command(capsys, "show", "anything")
    assert (said.code, said.err) == (130, "jouletrace: interrupted\n")


@pytest.mark.parametrize("arguments", [["doctor", "-d", "sim:h100"], ["show", "good", "--json"]])
def test_a_reader_that_leaves_is_no_failure(place, stored, arguments):
    (place / "good").symlink_to(stored / "good")
    line = f"{sys.executable} -m jouletrace {' '.join(arguments)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
