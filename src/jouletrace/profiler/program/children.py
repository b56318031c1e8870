"""Child processes of a recorded program: each traces itself, and hands its kernels over when it ends.

Python runs ``site/sitecustomize.py`` at the start of each child, by an environment variable that children inherit.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from jouletrace.errors import BadInputError
from jouletrace.profiler.program.duty import Duty
from jouletrace.profiler.program.script import HardExit
from jouletrace.profiler.program.tracer import Tracer
from jouletrace.run.scratch import Scratch
from jouletrace.tracer.process_trace import ProcessTrace

FOLDER, SOURCE, SETTINGS = "JOULETRACE_CHILDREN", "JOULETRACE_SOURCE", "JOULETRACE_CHILD_SETTINGS"

WAIT_S, LOOK_S = 15.0, 0.05
"""Longest wait at the end of the program for children that are ending, too."""

_HOOK = Path(__file__).parent / "site"


class Children:
    """Lets child processes of this one trace themselves, from ``with`` to its end.

    Args:
        operators, duty: As for ``Tracer``.
    """

    def __init__(self, operators: bool, duty: Duty) -> None:
        self._scratch = Scratch()
        path = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {
            FOLDER: str(self._scratch.path),
            SOURCE: str(Path(__file__).parents[3]),
            SETTINGS: json.dumps({"operators": operators, "duty": asdict(duty)}),
            "PYTHONPATH": os.pathsep.join(path),
        }
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._scratch.remove()

    def take(self) -> tuple[list[ProcessTrace], list[str]]:
        """What the children ran, in the order of their ranks, and messages about those that handed nothing over."""
        folder, until = self._scratch.path, time.monotonic() + WAIT_S
        while any(_alive(pid) for pid in self._open()) and time.monotonic() < until:
            time.sleep(LOOK_S)
        fates = {True: "still runs", False: "was killed before it could hand over its kernels"}
        lost = [f"{_named(folder, pid)} (process {pid}) {fates[_alive(pid)]}" for pid in sorted(self._open())]
        for path in sorted(folder.glob("*.untraced")):
            lost.append(f"process {path.stem} isn't traced: {path.read_text()}")
        found = []
        for path in sorted(folder.glob("*.npz")):
            try:
                found.append(ProcessTrace.load(path))
            except BadInputError as error:
                lost.append(f"process {path.stem} handed over a {error}")
        return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.pid)), lost

    def _open(self) -> set[int]:
        """Processes that began to trace and haven't handed over."""
        folder = self._scratch.path
        begun = {int(path.stem) for path in folder.glob("*.name")}
        return begun - {int(path.stem) for path in folder.glob("*.npz")}


def _named(folder: Path, pid: int) -> str:
    """What a process runs that began to trace."""
    with suppress(OSError):
        return (folder / f"{pid}.name").read_text()
    return "a child"


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and wasn't waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def trace_this_process() -> None:
    """Trace this child from its first CUDA call; it hands over when it ends, also by ``os._exit`` and by SIGTERM."""
    asked = json.loads(os.environ.get(SETTINGS) or "{}")
    duty = Duty(**asked["duty"]) if "duty" in asked else None
    tracer = Tracer(_name(), operators=asked.get("operators", True), duty=duty, begun=announce)
    folder = os.environ.get(FOLDER)  # the program may clear its environment
    HardExit(lambda _code: hand_over(tracer, folder)).__enter__()
    atexit.register(hand_over, tracer, folder)


def announce() -> None:
    """Say in the folder that this process traces itself."""
    folder = os.environ.get(FOLDER)
    if folder:
        with suppress(OSError):
            Path(folder, f"{os.getpid()}.name").write_text(_name())


def hand_over(tracer: Tracer, folder: str | None = None) -> None:
    """End tracing, and leave what ran in the folder; that of the environment if None."""
    folder, found = folder or os.environ.get(FOLDER), tracer.end()
    if folder and found is not None and Path(folder).is_dir():
        try:
            found.save(Path(folder, f"{os.getpid()}.npz"))
        except OSError as error:
            with suppress(OSError):
                Path(folder, f"{os.getpid()}.untraced").write_text(f"its kernels can't be written: {error}")


def _name() -> str:
    """The script or module of this process, as typed."""
    argv = getattr(sys, "orig_argv", sys.argv)[1:]
    if "-m" in argv[:-1]:
        return str(argv[argv.index("-m") + 1])
    scripts = [word for word in argv if word.endswith(".py")]
    return Path(scripts[0]).name if scripts else "python"
