"""``jouletrace run``: a program does what it does under plain Python, and what was recorded is kept however it ends."""

import json
import os
import py_compile
import signal
import subprocess
import sys
import zipfile

import pytest

from commands import PATIENCE_S, command, only_run, start
from jouletrace import load

SEEN = """
import sys
main = sys.modules["__main__"]
print(sys.argv, __file__, __name__, sys.path, __spec__ and __spec__.name, __package__, type(__loader__).__name__,
      main.__dict__ is globals(), sys.stdout.errors, flush=True)
"""


@pytest.fixture
def place(workspace, tmp_path, monkeypatch):
    """A folder of programs. pyarrow loads pandas where there is one, which takes as long as all else."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "pandas.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "first"), os.environ.get("PYTHONPATH", "")]))
    with zipfile.ZipFile(workspace / "app.pyz", "w") as app:
        app.writestr("__main__.py", SEEN)
    (workspace / "a folder").mkdir()
    (workspace / "package").mkdir()
    for name in ("seen.py", "a folder/__main__.py", "a folder/s\u00e9en.py", "package/__init__.py", "package/inner.py"):
        (workspace / name).write_text(SEEN)
    py_compile.compile(str(workspace / "seen.py"), cfile=str(workspace / "seen.pyc"))
    return workspace


def ran(place, *arguments):
    """stdout, stderr and exit code under ``jouletrace run -d cpu``."""
    process = start("run", "-d", "cpu", *arguments, cwd=place)
    out, err = process.communicate(timeout=PATIENCE_S)
    return out, err, process.returncode


def plain(place, *arguments):
    """The same under plain Python."""
    process = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, text=True, check=False)
    return process.stdout, process.stderr, process.returncode


def check_same(place, *arguments):
    """All that the program says comes first; the report follows."""
    (out, err, code), (own_out, own_err, own_code) = ran(place, *arguments), plain(place, *arguments)
    assert out.startswith(own_out + "program "), (own_out, out, err)
    assert err.startswith(own_err + "saved runs/"), (own_err, err)
    assert code == own_code
    return load(only_run(place))


@pytest.mark.parametrize(
    "arguments",
    [
        ("./a folder/s\u00e9en.py", "-o", "x", "--", "-m"),
        pytest.param(("seen.pyc",), marks=pytest.mark.slow),
        ("a folder", "--json"),
        ("app.pyz",),
        ("-m", "package.inner", "--json", "--", "-d", "x"),
    ],
    ids=lambda arguments: str(arguments[-1]),
)
def test_a_program_sees_what_python_would_show_it(place, arguments):
    assert check_same(place, *arguments).workload["exit_code"] == 0


ENDS = {
    "threads, then atexit": """
import atexit, pickle, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
class Own: pass
def late():
    time.sleep(0.5)
    print("late", type(pickle.loads(pickle.dumps(Own()))), sys.argv, flush=True)
atexit.register(lambda: print("first registered", sys.argv, flush=True))
atexit.register(lambda: print("last registered", flush=True))
threading.Thread(target=late).start()
ThreadPoolExecutor(1).submit(int)
print("end", flush=True)
""",
    "a fork with atexit": """
import atexit, os
atexit.register(lambda: print("bye", flush=True))
pid = os.fork()
if pid: print(os.waitpid(pid, 0)[1], flush=True)
""",
    "terminated workers": """
import multiprocessing, time
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
child.start()
child.terminate()
child.join()
print(child.exitcode, flush=True)
""",
    "an exception": "def fail():\n    1 / 0\nfail()\n",
    "an excepthook": "import sys\nsys.excepthook = lambda kind, *_: print('hooked', kind, flush=True)\n1 / 0\n",
    "a failing excepthook": "import sys\nsys.excepthook = lambda *_: [][0]\n1 / 0\n",
    "a huge exit code": "import sys\nsys.exit(1 << 70)\n",
    "an alarm": "import signal\nsignal.signal(14, lambda *_: [][0])\nsignal.alarm(1)\nprint('up', flush=True)\n",
    "closed streams": "import sys\nprint('x', flush=True)\nsys.stdout.close()\nsys.stderr.close()\n",
    "closed descriptors": "import os\nprint('x', flush=True)\nos.close(1)\nos.close(2)\nos._exit(3)\n",
    "no streams": "import sys\nprint('x', flush=True)\nsys.stdout = sys.stderr = None\n",
}


SIBLINGS = {"terminated workers", "an excepthook", "a huge exit code", "closed streams", "no streams"}
"""Ends for which others stand in ``make test``: they take the same way out."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SIBLINGS else name for name in ENDS]
)
def test_a_program_ends_as_under_python(place, name):
    (place / "ends.py").write_text(ENDS[name])
    assert check_same(place, "ends.py").complete


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_ends_the_program_where_it_is_and_the_recording_is_kept(place, number):
    text = (
        "try: print('up', flush=True); time.sleep(3600)\nexcept BaseException: print('caught')\nfinally: print('no')\n"
    )
    (place / "long.py").write_text(f"import time\n{text}")
    process = start("run", "-d", "cpu", "-o", "kept.zip", "long.py", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert "caught" not in out
    assert "no\n" not in out
    assert err.splitlines() == ["saved kept.zip", f"long.py ended with exit code {128 + number}"]
    assert load(place / "kept.zip").workload["exit_code"] == 128 + number


def test_ctrl_c_shows_where_the_program_was(place):
    (place / "long.py").write_text("import time; print('up', flush=True); time.sleep(3600)\n")
    process = start("run", "-d", "cpu", "--json", "long.py", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert err.startswith(f'Traceback (most recent call last):\n  File "{place}/long.py", line 1, in <module>\n')
    assert json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "sh", "-c", "true"], "record a command that isn't Python: jouletrace monitor -- sh"),
        ([sys.executable], "record a command that isn't Python: jouletrace monitor --"),
        (["-m"], "run: name a module"),
        (["-m", "package_that_is_missing.inner"], "no module of that name"),
    ],
)
def test_what_is_no_python_program_is_refused_in_one_line(capsys, workspace, arguments, said):
    refused = command(capsys, "run", "-d", "cpu", *arguments)
    assert refused.code == 2
    assert said in refused.complaint
    assert not os.path.exists("runs")
