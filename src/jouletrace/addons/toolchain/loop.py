"""A workload run a few times in a separate process, between marks at which nsys and ncu begin and end."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from typing import Any

from jouletrace.devices import open_device
from jouletrace.errors import JouletraceError
from jouletrace.execution.steps.base import Step
from jouletrace.processes.children import our_module, python_path
from jouletrace.profiler.prepare import prepare, resolve
from jouletrace.profiler.settings import ProfileSettings

WARM_UP = 3
"""Iterations before the first mark, in which libraries choose their kernels."""


def command(workload: str, settings: ProfileSettings, iterations: int) -> list[str]:
    """The command that starts such a process."""
    task = {"workload": workload, "settings": asdict(settings), "iterations": iterations}
    return our_module("jouletrace.addons.toolchain.loop", json.dumps(task))


def environment() -> list[str]:
    """The prefix of a command with which such a process imports this jouletrace from any folder."""
    return ["env", f"PYTHONPATH={python_path()}"]


def warm_up(step: Step) -> None:
    """The iterations before the first mark."""
    for _ in range(WARM_UP):
        step.replay(1)


def iterate(step: Step, iterations: int) -> None:
    """The iterations between the marks, each followed by a wait."""
    for number in range(iterations):
        with _named(f"iteration {number}"):
            step.replay(1)


def run(workload: str, settings: ProfileSettings, iterations: int) -> None:
    """Build, warm up, and run between the marks."""
    with (
        closing(open_device(settings.device)) as device,
        closing(prepare(resolve(workload), device, settings).step) as step,
    ):
        warm_up(step)
        marks = _cuda()
        if marks is not None:
            marks.cudart().cudaProfilerStart()
        iterate(step, iterations)
        if marks is not None:
            marks.cudart().cudaProfilerStop()


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _named(name: str) -> AbstractContextManager[Any]:
    cuda = _cuda()
    return nullcontext() if cuda is None else cuda.nvtx.range(name)


def main(arguments: list[str]) -> int:
    """The main function of the process; returns its exit code."""
    task = json.loads(arguments[0])
    try:
        run(task["workload"], ProfileSettings(**task["settings"]), task["iterations"])
    except JouletraceError as error:
        print(f"jouletrace: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
