"""Stand-ins for programs that aren't installed here: scripts that take their options and write what they would."""

import os
import sys
from pathlib import Path

from commands import FOREVER_S, wait_for
from jouletrace.wings.toolchain import tools

_HEAD = f"""#!{sys.executable}
import os, pathlib, re, subprocess, sys, time
arguments = sys.argv[1:]
def option(name):
    for k, one in enumerate(arguments):
        if one == name:
            return arguments[k + 1]
        if one.startswith(name + "="):
            return one[len(name) + 1:]
here = pathlib.Path(__file__).parent
def hang():
    (here / "hangs").touch()
    time.sleep({FOREVER_S})
(here / (pathlib.Path(__file__).name + ".called")).write_text("\\n".join(arguments))
"""


def install(folder: Path, monkeypatch, name: str, body: str) -> Path:
    """Put a program of that name on the PATH; ``body`` is Python that sees ``arguments``, ``option`` and ``here``."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    place = bin / name
    place.write_text(_HEAD + body)
    place.chmod(0o755)
    if str(bin) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    return bin


def called(bin: Path, name: str) -> list[str]:
    """The arguments of its last call."""
    return (bin / f"{name}.called").read_text().split("\n")


def limit_once_it_hangs(monkeypatch, folder: Path) -> None:
    """Have time limits count from when a stand-in in ``folder`` hangs: a busy machine takes long to come so far."""
    wait = tools._wait

    def patient(process, limit_s, check):
        wait_for((folder / "bin" / "hangs").exists)
        wait(process, limit_s, check)

    monkeypatch.setattr(tools, "_wait", patient)
