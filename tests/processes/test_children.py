"""Processes that we start end with us, even if we are killed and can't end them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jouletrace
from commands import FOREVER_S, gone, wait_for
from jouletrace.processes import with_parent
from jouletrace.processes.children import Child
from scripts import check_that_children_end

pytestmark = pytest.mark.usefixtures("started_by_python")

# What inherits the pipes and outlives the parent: the end of the input alone doesn't end a child then.
HEIR = f"""
import os, time
if os.fork() == 0:
    time.sleep({FOREVER_S})
    os._exit(0)
time.sleep({FOREVER_S})
"""

WORKER = f"""
from pathlib import Path
from jouletrace.campaign.worker import Worker, listen
worker = Worker("toy")
worker.begin({{"do": "memory"}})
listen([worker])
Path("up").touch()
{HEIR}
"""

REPEATS = """
from pathlib import Path
from jouletrace.campaign.worker import profile_in_child
from jouletrace.profiler.settings import ProfileSettings
profile_in_child("gemm", ProfileSettings(device="cpu"), Path("up"))
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("script", "heirs"), [(WORKER, 1), (REPEATS, 0)], ids=["worker", "repeats"])
def test_children_of_a_parent_that_is_killed_are_gone_too(script, heirs, tmp_path, monkeypatch):
    check_that_children_end(script, 1, tmp_path, monkeypatch, heirs)


def test_a_child_whose_parent_is_gone_before_it_could_ask_does_nothing():
    said = subprocess.run(
        [sys.executable, "-m", "jouletrace.processes.with_parent", "1073741824", "platform"],
        capture_output=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (137, b"")


@pytest.mark.thorough
def test_where_the_kernel_does_not_signal_a_thread_watches():
    """As elsewhere than on Linux."""
    child = (
        "import os, time\nfrom jouletrace.processes import with_parent\n"
        "with_parent._signal_requested = lambda: False\nwith_parent.end_with_parent(os.getppid())\n"
        f"print(os.getpid(), flush=True)\ntime.sleep({FOREVER_S})"
    )
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        pid = int(started.stdout.readline())
        started.kill()
        wait_for(lambda: gone(pid))


def test_every_process_of_ours_is_started_so():
    """The recorder watches by itself: it puts away the last of what it saw. So does what puts a GPU back when its
    holder has died (``locks``). ``command`` starts the user's program, which
    outlives us, and the loop of the tool chain is started by a tool.
    """
    package = Path(jouletrace.__file__).parent
    plain = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"our_module\(|sys\.executable", path.read_text())
    }
    assert plain - {"wings/toolchain/loop.py"} == {
        "processes/children.py",
        "processes/locks.py",
        "recording/process.py",
        "profiler/program/command.py",
    }
    assert with_parent._LOOK_S < 1


FAILS = """
import sys
print("Traceback (most recent call last):", file=sys.stderr)
print("some.module.OddError: what went wrong", file=sys.stderr)
print("Unclosed connector", file=sys.stderr)
print("connector: <object at 0x7f>", file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (FAILS, "ended with code 1: some.module.OddError: what went wrong"),
        ("import sys; sys.exit('no such thing')", "ended with code 1: no such thing"),
        ("import sys; sys.exit(3)", "ended with code 3"),
        ("raise ValueError('x' * 10_000)", "ended with code 1: ValueError: xxx"),
    ],
)
def test_a_child_that_fails_is_quoted_by_its_error(tmp_path, monkeypatch, code, said):
    (tmp_path / "failing_child.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("failing_child")
    assert child.hear() is None
    found = child.how_it_ended()
    child.close()
    assert found.startswith(said)
    assert len(found) < 400
