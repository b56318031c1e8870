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
from jouletrace.profiler.program.command import Command, program_of
from jouletrace.profiler.program.script import Script

SEEN = """
import sys
main = sys.modules["__main__"]
print(sys.argv, __file__, __name__, sys.path, __spec__ and __spec__.name, __package__, type(__loader__).__name__,
      main.__dict__ is globals(), sys.stdout.errors, {"pandas", "scipy"} & set(sys.modules), flush=True)
"""


@pytest.fixture
def place(workspace):
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
        ("./seen.py", "-o", "x", "--", "-m"),
        ("a folder/s\u00e9en.py",),
        ("seen.pyc",),
        ("a folder", "--json"),
        ("app.pyz",),
        ("-m", "package.inner", "--json", "--", "-d", "x"),
    ],
    ids=lambda arguments: arguments[-1],
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


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_a_program_ends_as_under_python(place, text):
    (place / "ends.py").write_text(text)
    assert check_same(place, "ends.py").complete


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_where_it_is_and_the_recording_is_kept(place, number):
    text = (
        "try: print('up', flush=True); time.sleep(3600)\nexcept BaseException: print('caught')\nfinally: print('no')\n"
    )
    (place / "long.py").write_text(f"import time\n{text}")
    process = start("run", "-d", "cpu", "-o", "kept.zip", "long.py", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -number
    assert "caught" not in out
    assert "no\n" not in out
    assert err.splitlines() == [
        "saved kept.zip · more: jouletrace show kept.zip -v",
        f"long.py ended with exit code {128 + number}",
    ]
    assert load(place / "kept.zip").workload["exit_code"] == 128 + number


def test_a_signal_ends_a_program_that_is_in_a_long_call(place):
    (place / "stuck.py").write_text(STUCK)
    process = start("run", "-d", "cpu", "-o", "kept", "stuck.py", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM
    assert load(place / "kept").complete


STUCK = """
import ctypes
lock, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
library.pthread_mutex_lock(lock)
print("up", flush=True)
library.pthread_mutex_lock(lock)
"""


def test_the_exit_code_is_that_of_the_program_when_the_figures_cannot_be_printed(place):
    (place / "fails.py").write_text("raise SystemExit(5)")
    with open("/dev/full", "w") as full:
        process = start("run", "-d", "cpu", "fails.py", cwd=place, stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    assert "cannot write the output" in err


def test_modules_of_the_program_do_not_replace_those_that_print_the_figures(place):
    for name in ("rich", "jinja2", "scipy"):
        (place / "package" / f"{name}.py").write_text("")
    (place / "package" / "user.py").write_text("import rich, jinja2, scipy\nprint(rich.__file__)\n")
    out, err, code = ran(place, "package/user.py")
    assert out.startswith(f"{place}/package/rich.py\nprogram "), err
    assert code == 0, err


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
        (["--", "no_such_command"], "run no_such_command: No such file"),
        (["sen.py"], "run sen.py: No such file or directory; did you mean seen.py?"),
        (["-m"], "run: name a module"),
        (["-m", "package_that_is_missing.inner"], "no module of that name"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(place, capsys, arguments, said):
    refused = command(capsys, "run", "-d", "cpu", *arguments)
    assert refused.code == 2
    assert said in refused.complaint
    assert not os.path.exists("runs")


def test_a_command_has_its_own_output_and_exit_code(place):
    out, err, code = ran(place, "--", "sh", "-c", "echo said; exit 4")
    assert out.startswith("said\nprogram ")
    assert err.endswith("ended with exit code 4\n")
    assert code == 4


def test_a_command_gets_an_interrupt_that_no_terminal_sends(place):
    text = "trap 'echo got; exit 7' INT; echo up; while :; do sleep 0.1; done"
    process = start("run", "-d", "cpu", "sh", "-c", text, cwd=place, start_new_session=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out.startswith("got\n")
    assert process.returncode == 7


def test_a_script_of_another_python_is_a_command(place):
    for name, first in (("ours", sys.executable), ("options", f"{sys.executable} -I"), ("another", "/opt/python3")):
        path = place / name
        path.write_text(f"#!{first}\n")
        path.chmod(0o755)
        assert isinstance(program_of([str(path)], False), Script if name == "ours" else Command)


def test_a_command_ends_by_the_signal_that_we_get(place):
    process = start("run", "-d", "cpu", "sh", "-c", "echo up; exec sleep 60", cwd=place)
    assert process.stdout.readline() == "up\n"
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert "energy unknown" in out


def test_a_line_states_what_is_recorded_while_torch_is_imported(place, monkeypatch):
    """The import takes up to ten seconds, in which nothing else was printed."""
    monkeypatch.setenv("JOULETRACE_PROGRESS", "1")
    (place / "torch.py").write_text("import time\ntime.sleep(3)\n")
    (place / "slow.py").write_text("import torch, sys\nprint('out')\nprint('err', file=sys.stderr)\n")
    (place / "fast.py").write_text("import sys, time\ntime.sleep(1)\nprint('out')\nprint('err', file=sys.stderr)\n")
    out, err, code = ran(place, "--no-operators", "slow.py")
    assert code == 0
    assert err.startswith("jouletrace: recording ")
    assert err.splitlines()[0].endswith("; the program imports torch")
    assert err.splitlines()[1] == "err", "once, and in a line of its own"
    assert out.startswith("out\n"), "stdout is the program's"
    assert ran(place, "--no-operators", "fast.py")[1].startswith("err\nsaved "), "no line where nothing is slow"
