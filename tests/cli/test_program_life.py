"""``run`` and ``monitor -- PROGRAM``: the program's life is its own, whatever fails of ours."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import PATIENCE_S, children_of, command, only_run, start, wait_for
from jouletrace import load
from jouletrace.run import store

PYTHON = sys.executable
REAL = "sim:h100?realtime=1"
BESIDE = pytest.mark.parametrize(
    "verb", [("run", "-d", REAL), ("monitor", "-d", REAL, "--interval", "0.1")], ids=lambda verb: verb[0]
)


@pytest.fixture(autouse=True)
def place(workspace):
    return workspace


def until(condition):
    """Words of sh that wait for it."""
    return f"while ! {condition}; do sleep 0.05; done"


@pytest.mark.thorough
@BESIDE
def test_a_killed_recorder_ends_no_program(place, verb):
    words = ("sh", "-c", f"echo up; {until('test -e go')}; sleep 0.6; echo done; exit 7")
    process = start(*verb, "-o", "kept", "--", *words, cwd=place)
    assert process.stdout.readline() == "up\n"

    def recorder():
        for child in children_of(process.pid):
            if b"jouletrace.recording.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        return None

    wait_for(recorder)
    wait_for(lambda: "channels" in (place / "kept" / "run.json").read_text())
    os.kill(recorder(), signal.SIGKILL)
    (place / "go").touch()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.startswith("done\n"), err
    assert process.returncode == 7
    assert "killed by signal 9" in err
    assert "Traceback" not in err
    assert not load(place / "kept").complete


@pytest.mark.thorough
@BESIDE
@pytest.mark.parametrize("code", [0, 7])
def test_a_full_disk_at_the_end_changes_no_exit_code(capfd, monkeypatch, verb, code):
    def full(path, data, **options):
        if path.suffix == ".parquet":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, data, **options)

    write_whole = store.write_whole
    monkeypatch.setattr(store, "write_whole", full)
    said = command(capfd, *verb, "-o", "kept", "--", "sh", "-c", f"sleep 0.3; exit {code}")
    assert said.code == code
    assert "jouletrace: cannot write kept: No space left on device\n" in said.err
    assert "the data recorded so far is in kept\n" in said.err


@pytest.mark.thorough
@BESIDE
@pytest.mark.parametrize("instead", ["echo mine > kept", "mkdir kept; echo mine > kept/run.json", "true"])
def test_a_program_may_replace_or_remove_the_folder_of_its_run(place, verb, instead):
    gone = "until [ -e kept/spool ]; do sleep 0.1; done; sleep 1; until rm -rf kept && [ ! -e kept ]; do :; done"
    process = start(*verb, "-o", "kept", "--", "sh", "-c", f"{gone}; {instead}; echo on; exit 7", cwd=place)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.startswith("on\n"), err
    assert process.returncode == 7
    assert "Traceback" not in err
    mine = [file for file in (place / "kept", place / "kept" / "run.json") if file.is_file()]
    assert instead == "true" or [file.read_text() for file in mine] == ["mine\n"]


@pytest.mark.thorough
@BESIDE
@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_a_program_runs_without_a_standard_output(place, verb, closed):
    line = f"exec {sys.executable} -m jouletrace {' '.join(verb)} -- sh -c 'touch ran; exit 7' {closed}"
    done = subprocess.run(
        ["sh", "-c", line.replace("?", "\\?")], cwd=place, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    assert (place / "ran").exists()
    said = {">&-": "standard output is closed: no figures are printed", ">/dev/full": "No space left on device"}
    assert said[closed] in done.stderr
    assert load(only_run(place)).complete


@pytest.mark.thorough
@pytest.mark.parametrize("sink", ["| head -1", "> /dev/full"])
def test_a_stream_that_no_one_takes_ends_no_program(place, sink):
    line = (
        f"{sys.executable} -m jouletrace monitor -d {REAL} -f csv --interval 0.05 -- sh -c 'sleep 1; touch ran; exit 7'"
    )
    line = f"({line}; echo $? > code) {sink}"
    subprocess.run(["sh", "-c", line.replace("?r", "\\?r")], cwd=place, capture_output=True, check=False)
    assert (place / "ran").exists()
    assert (place / "code").read_text() == "7\n"
    assert load(only_run(place)).complete


@pytest.mark.thorough
@BESIDE
def test_a_killed_parent_ends_no_program(place, verb):
    process = start(*verb, "--", "sh", "-c", f"echo up; {until('test -e go')}; touch ran", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.wait(PATIENCE_S)
    (place / "go").touch()
    wait_for((place / "ran").exists)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.thorough
@BESIDE
def test_a_program_ignores_what_it_would_ignore_without_us(place, verb):
    (place / "says.py").write_text(
        "import signal\nprint([int(n) for n in signal.valid_signals() if signal.getsignal(n) == 1], flush=True)\n"
    )
    for line in ("trap '' INT", "trap '' HUP INT", "true"):
        plain, ours = (
            subprocess.run(
                ["sh", "-c", f'{line}; exec "$@"', "sh", *words], cwd=place, capture_output=True, text=True, check=True
            ).stdout
            for words in ((PYTHON, "says.py"), (PYTHON, "-m", "jouletrace", *verb, "--", "says.py"))
        )
        assert ours.startswith(plain)


@BESIDE
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "there", "touch", "ran"], "there exists; results are never overwritten"),
        (["--no-such-option", "touch", "ran"], "No such option: --no-such-option"),
        (["-d", "cuda:none", "touch", "ran"], "cuda:none"),
        (["no-such-program"], "run no-such-program: No such file or directory"),
        (["bad.py"], "run bad.py, line 1: not valid Python"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_use_is_refused_before_a_program_starts(capsys, place, verb, words, said):
    (place / "there").mkdir()
    (place / "there" / "file").touch()
    (place / "bad.py").write_text("b = = 2\n")
    refused = command(capsys, *verb, *words)
    assert refused.code in (2, 3)
    assert said in refused.complaint
    assert not (place / "ran").exists()
