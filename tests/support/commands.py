"""Running the command line in tests: in this process, or in one that can be interrupted and killed."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jouletrace.cli import main
from preloaded import Popen, WithTorch

TOY = """
import time

def toy(batch=16):
    import torch
    torch.manual_seed(0)
    return torch.nn.Linear(64, 64), torch.randn(batch, 64)

def slow():
    def call(x):
        with open("calls", "ab") as file:
            file.write(b"x")  # for those who count them
        time.sleep(0.02)
    return call, (1,)

def wrong():
    return 3

def hungry():
    def call(x):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; of which 1.20 GiB is free)")
    return call, (1,)

def leaves():
    return (lambda x: exit(0)), (1,)

def bad_shape(batch=16):
    import torch
    return torch.nn.Linear(64, 64), torch.randn(batch, 3)

def tires():
    calls = []
    def call(x):
        calls.append(x)
        if len(calls) > 20:
            raise ValueError("tired")
    return call, (1,)

def broken():
    def call(x):
        raise ValueError("two\\nlines")
    return call, (1,)
"""


class Said(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr of a command that was refused."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("jouletrace: ")
        assert "Traceback" not in self.err
        assert self.out == ""
        return lines[0]


def command(capsys, *arguments: str) -> Said:
    """Run a command in this process."""
    capsys.readouterr()
    code = main.run(list(arguments))
    return Said(code, *capsys.readouterr())


def done(*arguments: str) -> Said:
    """Run a command in this process, for fixtures that many tests share; fails where the command does."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(list(arguments))
    assert code == 0, err.getvalue()
    return Said(code, out.getvalue(), err.getvalue())


def start(
    *arguments: str, cwd: Path, preloaded: bool = True, torch: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """Start a command in a process of its own.

    One that has imported most of jouletrace forks it, or one with torch, unless the test is of the start itself, or
    changes the paths.
    """
    popen: type[subprocess.Popen[Any]] = WithTorch if torch else Popen
    if not preloaded or "PYTHONPATH" in options.get("env", ()):
        popen = subprocess.Popen
    return popen(
        [sys.executable, "-m", "jouletrace", *arguments],
        cwd=cwd,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


PATIENCE_S = 300.0
"""How long a test waits for a process or a thread before it takes it for hung: no bound on how fast anything is."""

FOREVER_S = 3600.0
"""Programs that hang in a test hang for longer than a test may take, so that whoever waits for them fails."""


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so; fails if it never is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that run still."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def only_run(folder: Path) -> Path:
    """The one Run under ``runs/``."""
    (found,) = (folder / "runs").iterdir()
    return found


def gone(pid: int) -> bool:
    """True if a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def options(*command: str) -> set[str]:
    """Options in the help of a command."""
    return set(re.findall(r"--[a-z0-9][a-z0-9-]*", done(*command, "--help").out))


def check_that_lines_fit(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    """The output of a command fits a terminal of 80 columns, and nothing is left out for that."""
    monkeypatch.setenv("COLUMNS", "80")
    narrow = done(*command).out
    assert max(map(len, narrow.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "300")
    wide = done(*command).out
    costs = r"[\d.]+ [nµm]?s\b"  # of a read: they vary
    assert re.sub(costs, "", " ".join(wide.split())) == re.sub(costs, "", " ".join(narrow.split()))
