"""``jouletrace run``: a program does what the shell would have it do, and what was recorded is kept however it ends."""

import os
import pty
import py_compile
import select
import signal
import subprocess
import sys
import zipfile

import pytest

from commands import PATIENCE_S, command, only_run, start
from jouletrace import load
from jouletrace.devices import CpuHost
from thinned import thinned

SEEN = """
import os, resource, signal, sys
main = sys.modules["__main__"]
print(sys.argv, sys.orig_argv, __file__, __name__, sys.path, sys.flags, __spec__ and __spec__.name, __package__)
print(type(__loader__).__name__, main.__dict__ is globals(), sys.stdout.errors, sorted(sys.modules))
print({k: v for k, v in os.environ.items() if "JOULETRACE" not in k and "INJECTION64" not in k})
print(sorted(os.listdir("/proc/self/fd")), os.getcwd(), os.umask(0), os.nice(0), sys.stdin.read())
print([(n, signal.getsignal(n)) for n in signal.valid_signals()], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT")], flush=True)
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
    """stdout, stderr and exit code under ``jouletrace run``, with something to read on stdin."""
    process = start("run", "-d", "cpu", *arguments, cwd=place, stdin=subprocess.PIPE)
    out, err = process.communicate("from the shell", timeout=PATIENCE_S)
    return out, err, process.returncode


def check_same(place, *arguments, plain=(sys.executable,)):
    """All that the program says is as without us and comes first; the report follows."""
    own = subprocess.run(
        [*plain, *arguments], cwd=place, capture_output=True, text=True, check=False, input="from the shell"
    )
    out, err, code = ran(place, *arguments)
    assert f"\n{out}".partition("\nprogram ")[0] == f"\n{own.stdout}".removesuffix("\n"), err
    assert err.startswith(own.stderr + "saved runs/")
    assert code == (own.returncode if own.returncode >= 0 else 128 - own.returncode)
    found = load(only_run(place))
    assert found.complete
    assert found.workload["exit_code"] == code
    return found


@pytest.mark.thorough
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
    check_same(place, *arguments)


ENDS = {
    "threads, then atexit": """
import atexit, sys, threading, time
atexit.register(lambda: print("last", sys.argv, flush=True))
threading.Thread(target=lambda: (time.sleep(0.5), print("late", flush=True))).start()
print("end", flush=True)
""",
    "a fork": "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1], flush=True)\n",
    "all its children": """
import os
try:
    while True: os.wait()
except ChildProcessError: print("none", flush=True)
""",
    "an exception": "def fail():\n    1 / 0\nfail()\n",
    "a failing excepthook": "import sys\nsys.excepthook = lambda *_: [][0]\n1 / 0\n",
    "a huge exit code": "import sys\nsys.exit(1 << 70)\n",
    "an exit with words": "import sys\nsys.exit('no data')\n",
    "at once": "import os\nos._exit(4)\n",
    "a segfault": "import ctypes\nctypes.string_at(0)\n",
    "abort": "import os\nos.abort()\n",
    "a kill": "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "a stopped alarm": "import signal\nprint('up', flush=True)\nsignal.alarm(1)\nsignal.pause()\n",
    "another program": "import os\nos.execvp('sh', ['sh', '-c', 'echo other; exit 9'])\n",
    "closed streams": "import sys\nprint('x', flush=True)\nsys.stdout.close()\nsys.stderr.close()\n",
    "closed descriptors": "import os\nprint('x', flush=True)\nos.closerange(0, 1000)\nos._exit(3)\n",
    "open descriptors that don't wait": "import os\nos.set_blocking(1, False)\nprint('x', flush=True)\n",
    "its folder": "import os, shutil\nshutil.copy('gone.py', '..')\nos.chdir('..')\nprint(os.getcwd(), flush=True)\n",
    "limits": """
import resource
for name in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
    resource.setrlimit(name, (0, 0))
print("limited", flush=True)
""",
    "its own handlers": """
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: print(number, flush=True))
    os.kill(os.getpid(), number)
""",
    "a warning of the compiler": "print('x' is 'y', flush=True)\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("text", thinned([pytest.param(text, id=name) for name, text in ENDS.items()], 2))
def test_a_program_ends_as_without_us(place, text):
    (place / "gone.py").write_text(text)
    check_same(place, "gone.py")


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_of_multiprocessing_live_and_die_as_without_us(place, method):
    (place / "workers.py").write_text(
        "import multiprocessing, time\n"
        "def work(x): return x * x\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    with context.Pool(2) as pool: print(pool.map(work, range(4)), flush=True)\n"
        "    ended = context.Process(target=time.sleep, args=(3600,))\n"
        "    ended.start(); ended.terminate(); ended.join()\n"
        "    print(ended.exitcode, flush=True)\n"
    )
    check_same(place, "workers.py")


@pytest.mark.thorough
def test_a_program_that_becomes_another_user_runs_on(place):
    if os.geteuid():
        pytest.skip("only root can become another user")
    (place / "other.py").write_text("import os\nos.setgid(65534)\nos.setuid(65534)\nprint(os.getuid(), flush=True)\n")
    check_same(place, "other.py")


@pytest.mark.thorough
def test_modules_of_the_program_are_not_those_that_print_the_figures(place):
    for name in ("rich", "jinja2", "scipy", "queue", "json"):
        (place / "package" / f"{name}.py").write_text("")
    (place / "package" / "user.py").write_text(
        "import rich, jinja2, scipy, queue, json\nprint(rich.__file__, queue.__file__, json.__file__, flush=True)\n"
    )
    check_same(place, "package/user.py")


@pytest.mark.thorough
def test_a_program_sees_no_process_of_ours_below_it_and_may_end_all_that_it_does(place):
    (place / "kills.py").write_text(
        "import os, signal\n"
        "from pathlib import Path\n"
        "def parent(pid):\n"
        "    try: return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])\n"
        "    except OSError: return 0  # it has ended since\n"
        "print([p for p in os.listdir('/proc') if p.isdigit() and parent(p) == os.getpid()], flush=True)\n"
    )
    check_same(place, "kills.py")


@pytest.mark.thorough
def test_the_recorder_is_in_another_session_than_the_program(place):
    (place / "sessions.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "def read(p, name):\n"
        "    try: return Path(f'/proc/{p}/{name}').read_text()\n"
        "    except OSError: return '0) 0 0 0 0'  # it has ended since\n"
        "def stat(p): return read(p, 'stat').rpartition(')')[2].split()\n"
        "def command(p): return read(p, 'cmdline')\n"
        "others = []\n"
        "while not others:  # a child that has not run its own command yet has no session of its own either\n"
        "    beside = [p for p in os.listdir('/proc') if p.isdigit() and stat(p)[1] == str(os.getppid())]\n"
        "    others = [stat(p) for p in beside if int(p) != os.getpid() and command(p) != command(os.getppid())]\n"
        "print(len(others), any(int(one[3]) == os.getsid(0) or int(one[2]) == os.getpgrp() for one in others))\n"
    )
    process = start("run", "-d", "sim:h100?realtime=1", "sessions.py", cwd=place)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.startswith("1 False\n"), (out, err)


SEES_THE_START = """
import sys
def seen(event, arguments):
    if event == "subprocess.Popen" and "echo" in arguments[1]:
        print(sorted({"numpy", "pyarrow", "scipy", "torch"} & set(sys.modules)), file=sys.stderr, flush=True)
sys.addaudithook(seen)
"""


@pytest.mark.thorough
def test_a_program_starts_before_what_only_its_run_needs_is_imported(place):
    (place / "sitecustomize.py").write_text(SEES_THE_START)
    paths = os.pathsep.join([str(place), *sys.path])
    process = start("run", "-d", "sim:h100?realtime=1", "echo", cwd=place, env={**os.environ, "PYTHONPATH": paths})
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err.splitlines()[0] == "['numpy']", err


# --- what is started ---------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_command_is_started_by_its_own_name(place):
    (place / "job").write_text('#!/bin/sh\necho "$0" "$@"; exit 4\n')
    (place / "job").chmod(0o755)
    assert check_same(place, "./job", "a", plain=()).workload["name"] == "job"


@pytest.mark.thorough
def test_a_command_of_path_is_started_though_a_folder_has_its_name(place):
    (place / "sh").mkdir()
    check_same(place, "sh", "-c", "echo $0 said; exit 4", plain=())


@pytest.mark.thorough
def test_a_script_that_names_its_python_has_that_one(place):
    for name, first in (("ours", sys.executable), ("options", f"{sys.executable} -I"), ("shell", "/bin/sh")):
        (place / name).write_text(
            f"#!{first}\n" + ("import sys\nprint(sys.flags)\n" if name != "shell" else "echo x\n")
        )
        (place / name).chmod(0o755)
        out, _, code = ran(place, name)
        own = subprocess.run([f"./{name}"], cwd=place, capture_output=True, text=True, check=True).stdout
        assert (out[: len(own)], code) == (own, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("./job", "a b"), ("sub/job", "-x"), ("env", "./job"), ("empty",)], ids=" ".join)
def test_a_script_without_an_interpreter_is_run_by_a_shell(place, words, monkeypatch):
    (place / "sub").mkdir()
    for name in ("job", "sub/job", "sub/empty"):
        (place / name).write_text('echo "$0" "$@"; exit 9\n' if "job" in name else "")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'sub'}:{os.environ['PATH']}")
    check_same(place, *words, plain=("/usr/bin/env",))


SHADOWED = ("json", "enum", "signal", "typing", "threading", "subprocess", "numpy", "rich", "typer", "pyarrow")


@pytest.mark.thorough
@pytest.mark.parametrize("started", ["console script", "-m"])
def test_the_user_s_modules_are_the_program_s_alone(place, started):
    """Ours come first by whatever name, and the program finds its own."""
    (place / "lib").mkdir()
    for name in SHADOWED:
        (place / "lib" / f"{name}.py").write_text("V = 5\n")
    (place / "json.py").write_text("V = 6\n")  # -m looks here
    (place / "says.py").write_text("import rich\nprint(rich.V, __import__('os').environ['PYTHONPATH'], flush=True)\n")
    first = ["-m", "jouletrace"] if started == "-m" else ["-P", "-c", "from jouletrace.cli.main import main; main()"]
    for verb, said in (("run", "5 lib\n"), ("monitor", "5 lib\n"), ("doctor", "")):
        words = [verb, "-d", "sim:h100?realtime=1", *(["says.py"] if said else [])]
        done = subprocess.run(
            [sys.executable, *first, *words],
            cwd=place,
            env={**os.environ, "PYTHONPATH": "lib"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(said)


@pytest.mark.thorough
def test_a_model_finds_the_modules_of_pythonpath(place):
    (place / "lib").mkdir()
    (place / "lib" / "json.py").write_text("V = 5\n")
    (place / "lib" / "rich.py").write_text("V = 5\n")
    (place / "lib" / "helper.py").write_text("def call(x):\n    import later\n    return x\n")
    (place / "lib" / "later.py").write_text("")
    (place / "mine.py").write_text("import helper\ndef build():\n    return helper.call, (1,)\n")
    for device in ("cpu", "sim:h100"):
        process = start("profile", "mine:build", "-d", device, cwd=place, env={**os.environ, "PYTHONPATH": "lib"})
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in err
        assert process.returncode == 0 if device == "cpu" else "calls no operator that a GPU would run" in err, err


@pytest.mark.thorough
def test_a_script_that_can_be_read_once_is_read_by_python_alone(place):
    line = f"{sys.executable} -m jouletrace run -d cpu <(echo 'import sys; print(len(sys.argv))') a b"
    done = subprocess.run(["bash", "-c", line], cwd=place, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("3\nprogram "), done.stderr


@pytest.mark.thorough
def test_descriptors_of_the_shell_reach_the_program_closed_and_open_ones(place):
    (place / "three.py").write_text(
        "import os\n"
        "for number in (0, 2, 7):\n"
        "    try: os.fstat(number); print(number, 'open')\n"
        "    except OSError: print(number, 'closed')\n"
        "print(os.read(7, 9), flush=True)\n"
    )
    for name, first in (("", sys.executable), ("ours", f"{sys.executable} -m jouletrace run -d cpu")):
        line = f"exec {first} three.py <&- 2>&- 7<<<word >out{name}"
        assert subprocess.run(["bash", "-c", line], cwd=place, check=False).returncode == 0
    plain = (place / "out").read_text()
    assert plain == "0 closed\n2 closed\n7 open\nb'word\\n'\n"
    assert (place / "outours").read_text().startswith(plain + "program ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "no_such_command"], "run no_such_command: No such file"),
        (["sen.py"], "run sen.py: No such file or directory; did you mean seen.py?"),
        (["-m"], "run: name a module"),
        ([], "run: name a script"),
        (["-m", "package_that_is_missing.inner"], "no module of that name"),
        (["bad.py"], "run bad.py, line 2: not valid Python"),
        (["empty"], "run empty: a folder without a __main__.py"),
        (["no_format"], "run no_format: Exec format error"),
        (["sh", "a\0b"], "run sh: embedded null byte"),
        (["shell"], "; to run it by /bin/sh, make it executable: chmod +x shell, or write: run /bin/sh shell"),
        (
            ["s.sh"],
            "run s.sh: not executable; to run it by sh, make it executable: chmod +x s.sh, or write: run sh s.sh",
        ),
        (
            ["./b.bash"],
            "not executable; to run it by bash, make it executable: chmod +x ./b.bash, or write: run bash ./b",
        ),
        (
            ["job"],
            "; to run it by sh, make it executable: chmod +x job, or write: run",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_run_is_refused_in_one_line(place, capsys, arguments, said):
    (place / "bad.py").write_text("a = 1\nb = = 2\n")
    (place / "empty").mkdir()
    (place / "no_format").write_bytes(b"\x7fELF\0 of no machine")
    (place / "no_format").chmod(0o755)
    (place / "shell").write_text("#!/bin/sh\nexec sleep 1\n")
    for name in ("s.sh", "b.bash", "job"):
        (place / name).write_text("wait\n" if "." in name else "exec sleep 1\n")
    refused = command(capsys, "run", "-d", "cpu", *arguments)
    assert refused.code == 2
    assert said in refused.complaint
    assert not list(place.glob("runs/*"))


@pytest.mark.thorough
def test_a_check_imports_nothing_of_the_user_s(place, capsys):
    (place / "noisy").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (place / "noisy" / name).write_text("print('imported', flush=True)\n")
    out, _, _ = ran(place, "-m", "noisy")
    assert out.startswith("imported\nimported\nprogram ")


@pytest.mark.thorough
def test_the_exit_code_is_that_of_the_program_when_the_figures_cannot_be_printed(place):
    (place / "fails.py").write_text("raise SystemExit(5)")
    with open("/dev/full", "w") as full:
        process = start("run", "-d", "cpu", "fails.py", cwd=place, stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    assert "cannot write the output" in err


# --- signals -----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_ends_the_program_and_the_recording_is_kept(place, number):
    before = signal.signal(number, signal.SIG_DFL)  # a shell starts what runs in its background with some ignored
    try:
        process = start("run", "-d", "cpu", "-o", "kept.zip", "sh", "-c", "echo up; exec sleep 3600", cwd=place)
    finally:
        signal.signal(number, before)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert err.splitlines() == [
        "saved kept.zip · more: jouletrace show kept.zip -v",
        f"sh ended with exit code {128 + number}",
    ]
    run = load(place / "kept.zip")
    assert run.complete
    asked = number in (signal.SIGINT, signal.SIGTERM)
    said = {warning.code: warning.message for warning in run.warnings}
    how = f"was {'ended' if asked else 'killed'} by {number.name};"
    assert how in said["program_ended" if asked else "program_failed"]


COUNTS = """
import signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: got.append(number))
print("up", flush=True)
while len(got) < int(sys.argv[1]):
    time.sleep(0.02)
time.sleep(0.3)
print(got, flush=True)
sys.exit(7)
"""


@pytest.mark.thorough
def test_each_signal_that_comes_to_us_alone_goes_on_once(place):
    (place / "counts.py").write_text(COUNTS)
    process = start("run", "-d", "cpu", "counts.py", "3", cwd=place, start_new_session=True)
    assert process.stdout.readline() == "up\n"
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert sorted(eval(out.splitlines()[0])) == [1, 2, 15]
    assert process.returncode == 7


@pytest.mark.thorough
def test_what_nohup_ignores_the_program_ignores(place):
    line = f"trap '' HUP; exec {sys.executable} -m jouletrace run -d cpu sh -c 'echo up; read x; echo went on'"
    process = subprocess.Popen(
        ["sh", "-c", line], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert out.startswith("went on\n")
    assert process.returncode == 0


def test_ctrl_c_before_the_program_starts_starts_none(place, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(CpuHost, "processes", interrupt)
    assert command(capsys, "run", "-d", "cpu", "touch", "started").code == 130
    assert not (place / "started").exists()


# --- at a terminal -----------------------------------------------------------------------------------


class Terminal:
    """``jouletrace run`` at a terminal of its own, as the only job of a shell."""

    SHELL = """
import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def front(group): os.tcsetpgrp(0, group)
job = os.fork()
if job == 0:
    os.setpgid(0, 0); front(os.getpid()); signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-m", "jouletrace", "run", "-d", "cpu", *sys.argv[1:]])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    front(os.getpgrp())
    if not os.WIFSTOPPED(status): break
    print("stopped", flush=True)
    while not os.path.exists("fg"): time.sleep(0.02)
    front(job); os.killpg(job, signal.SIGCONT)
print("code", os.waitstatus_to_exitcode(status), flush=True)
"""

    def __init__(self, place, *arguments):
        self.text = ""
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [sys.executable, "-c", self.SHELL, *arguments])

    def until(self, words):
        """Read until these words have come, which are taken off."""
        while words not in self.text:
            ready, _, _ = select.select([self._file], [], [], PATIENCE_S)
            assert ready, self.text
            try:
                self.text += os.read(self._file, 4096).decode()
            except OSError:
                raise AssertionError(self.text) from None
        before, _, self.text = self.text.partition(words)
        return before

    def type(self, keys):
        os.write(self._file, keys.encode())

    def close(self):
        os.close(self._file)
        os.waitpid(self.pid, 0)


@pytest.fixture
def at_terminal(place):
    opened = []

    def open_(*arguments):
        opened.append(Terminal(place, *arguments))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


@pytest.mark.thorough
def test_a_program_asks_at_the_terminal(place, at_terminal):
    (place / "asks.py").write_text("import sys\nprint(sys.stdout.isatty(), input('name? '))\n")
    terminal = at_terminal("asks.py")
    terminal.until("name? ")
    terminal.type("Ada\n")
    terminal.until("True Ada\r\n")
    terminal.until("program ")
    terminal.until("code 0")


@pytest.mark.thorough
def test_debuggers_screens_and_shells_run_at_the_terminal(place, at_terminal):
    terminal = at_terminal(sys.executable, "-q", "-c", "import pdb; x = 41; pdb.set_trace(); print('on')")
    terminal.until("(Pdb) ")
    terminal.type("x + 1\n")
    terminal.until("42")
    terminal.type("c\n")
    terminal.until("code ")
    (place / "screen.py").write_text(
        "import curses\n"
        "print('key', curses.wrapper(lambda screen: (screen.addstr('here'), screen.refresh(), screen.getch())[2]))\n"
    )
    terminal = at_terminal("screen.py")
    terminal.until("here")
    terminal.type("q")
    terminal.until("key 113")
    terminal.until("code 0")
    terminal = at_terminal("env", "PS1=ready> ", "sh", "-i")
    terminal.until("ready> ")
    terminal.type("echo $((6 * 7)) | cat\n")
    terminal.until("42\r\n")
    terminal.until("ready> ")
    terminal.type("exit 3\n")
    terminal.until("code 3")


def test_ctrl_c_reaches_the_program_once_and_we_wait_for_it(place, at_terminal):
    (place / "counts.py").write_text(COUNTS)
    terminal = at_terminal("counts.py", "1")
    terminal.until("up\r\n")
    terminal.type("\x03")
    terminal.until("[2]\r\n")
    terminal.until("code 7")


def test_ctrl_c_shows_where_the_program_was(place, at_terminal):
    (place / "long.py").write_text("import time; print('up', flush=True); time.sleep(3600)\n")
    terminal = at_terminal("long.py")
    terminal.until("up\r\n")
    terminal.type("\x03")
    assert 'File "' in terminal.until("KeyboardInterrupt")
    terminal.until("program ")
    terminal.until("code 130")


def test_ctrl_z_stops_the_program_and_fg_lets_it_go_on(place, at_terminal):
    terminal = at_terminal("sh", "-c", "echo up; read word; echo got $word; exit 5")
    terminal.until("up\r\n")
    terminal.type("\x1a")
    terminal.until("stopped")
    (place / "fg").write_text("")
    terminal.type("word\n")
    terminal.until("got word")
    terminal.until("code 5")
