"""The timeline of a workload, traced in this process, to which the counters of ncu are assigned."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from jouletrace.addons.toolchain.loop import iterate, warm_up
from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.base import Step
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT
from jouletrace.tracing.trace import Trace, trace_call

_SETTLING = 2
_BREAK_S = 0.01
"""Time between the tracer's warm-up iterations and the used ones: more than the clocks differ by."""

Tracer = Callable[[Callable[[], object]], tuple[Trace, str | None]]


def add_timeline(session: Session, step: Step, iterations: int, trace: Tracer = trace_call) -> int:
    """Trace the same iterations as ``loop``; spans go to the session. Returns the number of kernels.

    Raises:
        NotPossibleError: If kernels can't be traced, or none ran.
    """
    warm_up(step)
    since_ns = 0

    def call() -> None:
        nonlocal since_ns
        step.replay(_SETTLING)
        time.sleep(_BREAK_S)
        since_ns = time.time_ns() - int(_BREAK_S * 5e8)
        iterate(step, iterations)

    with session.phase("timeline"):
        everything, instead = trace(call)
    if instead is not None:
        session.run.warn("traced_by_torch", f"kernels were traced by torch's profiler, not by CUPTI: {instead}")
    if everything.dropped:
        session.run.warn("records_dropped", f"the tracer dropped {everything.dropped} records: kernels are missing")
    found = everything.take(np.flatnonzero(everything.start_ns >= since_ns))
    if len(found) == 0:
        raise NotPossibleError("tracing: the workload ran nothing on the GPU")
    each, rest = divmod(len(found), iterations)
    iteration = np.arange(len(found)) // each if rest == 0 else np.zeros(len(found), np.intp)
    session.add_trace(found, [MODEL_UNIT] * len(found), iteration)
    return int((found.kind == 0).sum())
