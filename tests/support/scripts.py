"""Processes of tests that are killed: scripts that import what tests do, and sweeps that never end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from commands import PATIENCE_S, children_of, gone, start, wait_for
from places import SUPPORT

HANGS = """
import time

def hangs(batch=1):
    time.sleep(600)
"""


def run_script(script: str, cwd: Path, **more: Any) -> subprocess.Popen[str]:
    """Start a script in a process of its own."""
    helpers = [SUPPORT, *(SUPPORT.parent / "wings").iterdir(), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, helpers))}
    return subprocess.Popen([sys.executable, "-c", script], cwd=cwd, env=environment, text=True, **more)


def _at_work(parent: int) -> list[int]:
    """Children of a process but its watcher, which outlives it in order to clean up."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in sorted(children_of(parent))}
    return [pid for pid, text in commands.items() if b"processes.watcher" not in text]


def check_that_children_end(
    script: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, heirs: int = 0
) -> None:
    """Kill a script that has ``count`` children, then heirs, once it has written ``up``: its children end, too."""
    monkeypatch.setenv("TMPDIR", str(folder))
    parent = run_script(script, folder, start_new_session=True)
    try:
        wait_for(lambda: (folder / "up").exists() and len(_at_work(parent.pid)) == count + heirs)
        started = _at_work(parent.pid)[:count]
        parent.kill()
        parent.wait()
        wait_for(lambda: all(gone(pid) for pid in started))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


@contextmanager
def hanging_sweep(folder: Path, command: Sequence[str], changed: Callable[[], bool]) -> Iterator[subprocess.Popen[str]]:
    """A sweep over ``toy.py:hangs`` in a process of its own, once it has changed its GPU."""
    pytest.importorskip("torch")
    (folder / "toy.py").write_text(HANGS)
    process = start(*command, cwd=folder, start_new_session=True)
    try:
        wait_for(lambda: changed() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


HANGUPS = [pytest.param((signal.SIGHUP,), marks=pytest.mark.slow), (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP)]
"""Signals that a dropped connection sends. Shells send it twice, systemd after SIGTERM: the second may come while the
first is being served."""


def check_that_it_ends(process: subprocess.Popen[str], numbers: Sequence[int]) -> None:
    """Send signals to a sweep, which ends as by Ctrl-C."""
    for number in numbers:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if len(numbers) == 1:
        assert process.returncode == 130
        assert err.splitlines()[-1] == "jouletrace: interrupted"


NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
"""


def check_that_torch_is_named(folder: Path, *command: str) -> None:
    """Without torch a command says in one line how to install it."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(NO_TORCH)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), *sys.path])}
    process = start(*command, cwd=folder, env=environment)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert "Traceback" not in err
    assert "torch can't be imported" in err.splitlines()[-1]
    assert "pip install 'jouletrace[torch]'" in err.splitlines()[-1]
