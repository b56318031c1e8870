"""The iterations of a workload that nsys and ncu trace: in a process of its own, and here, for ncu's timeline."""

from __future__ import annotations

import json
import sys
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np

from jouletrace.devices import open_device
from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.execution.marks import CallMarks, marked
from jouletrace.execution.steps.base import Step
from jouletrace.processes.children import our_module
from jouletrace.profiler.prepare import prepare
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT
from jouletrace.tracer.in_process import InProcess, trace
from jouletrace.tracer.rows import KERNEL
from jouletrace.workloads import resolve

_WARM_UP = 3
"""Iterations before the first mark, in which libraries choose their kernels."""

_SETTLING = 2
"""Iterations in which the tracer settles."""


def command(workload: str, settings: ProfileSettings, iterations: int) -> list[str]:
    """The command that runs a workload between marks."""
    task = {"workload": workload, "settings": asdict(settings), "iterations": iterations}
    return our_module("jouletrace.wings.toolchain.loop", json.dumps(task))


def add_timeline(session: Session, step: Step, iterations: int) -> int:
    """Trace the same iterations in this process; spans go to the session. Returns the number of kernels.

    Raises:
        NotPossibleError: If kernels can't be traced, or none ran.
    """
    _warm_up(step)

    def call(tracer: InProcess) -> None:
        marks = CallMarks(tracer)
        step.replay(_SETTLING)
        for _ in range(iterations):
            marks.iteration(lambda: step.replay(1))

    with session.phase("timeline"):
        traced = trace(call)
    for code, text in traced.notes:
        session.run.warn(code, text)
    _, _, iteration = marked(traced.work)
    rows = np.flatnonzero(iteration >= 0)
    found = traced.work.take(rows)
    if len(found) == 0:
        raise NotPossibleError("tracing: the workload ran nothing on the GPU")
    session.add_trace(found, [MODEL_UNIT] * len(found), iteration[rows])
    return int((found.kind == KERNEL).sum())


def _run(workload: str, settings: ProfileSettings, iterations: int) -> None:
    """Build, warm up, and run between the marks at which the tools begin and end."""
    with (
        closing(open_device(settings.device)) as device,
        closing(prepare(resolve(workload), device, settings).step) as step,
    ):
        _warm_up(step)
        cuda = _cuda()
        if cuda is not None:
            cuda.cudart().cudaProfilerStart()
        _iterate(step, iterations)
        if cuda is not None:
            cuda.cudart().cudaProfilerStop()


def _warm_up(step: Step) -> None:
    for _ in range(_WARM_UP):
        step.replay(1)


def _iterate(step: Step, iterations: int) -> None:
    """The iterations between the marks, each followed by a wait."""
    cuda = _cuda()
    for number in range(iterations):
        with nullcontext() if cuda is None else cuda.nvtx.range(f"iteration {number}"):
            step.replay(1)


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def main(task: dict[str, Any]) -> int:
    """Run the iterations in this process; returns its exit code."""
    try:
        _run(task["workload"], ProfileSettings(**task["settings"]), task["iterations"])
    except JouletraceError as error:
        print(f"jouletrace: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
