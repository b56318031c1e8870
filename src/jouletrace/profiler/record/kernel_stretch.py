"""A stretch of some seconds of a program in which its kernels are traced, between marks of its steps.

Tracing costs several percent while it is on and about one afterwards: steps within it are left out of
the figures of steps, and it is done where it was asked for only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import numpy as np

from jouletrace.errors import NotPossibleError, RecorderDiedError
from jouletrace.profiler.measure import synchronize
from jouletrace.recording.session import Session
from jouletrace.tracing.cuda import checked
from jouletrace.tracing.cupti import CuptiTracer
from jouletrace.tracing.trace import KINDS, Trace

SETTLED_STEPS = 20
_SETTLED_NS = 10_000_000_000
"""A program of long steps is traced after so long, if it hasn't made so many."""

PHASE = "tracing"

_FIRST_ID = 1 << 40
"""Ids of kernels begin beyond those of marks."""


class Tracer(Protocol):
    """What records kernels."""

    def start(self) -> None:
        """Begin.

        Raises:
            NotPossibleError: If it can't be done here.
        """

    def stop(self) -> None:
        """End; what ran before has been waited for."""

    def trace(self, before_ns: int, after_ns: int) -> Trace:
        """What ran, between these times.

        Raises:
            NotPossibleError: If what was recorded makes no sense.
        """


class CuptiKernels:
    """By CUPTI, in this process."""

    def __init__(self) -> None:
        self._tracer: CuptiTracer | None = None

    def start(self) -> None:
        """See ``Tracer``."""
        self._tracer = CuptiTracer()
        self._tracer.start()

    def stop(self) -> None:
        """See ``Tracer``."""
        if self._tracer is not None:
            self._tracer.stop()

    def trace(self, before_ns: int, after_ns: int) -> Trace:
        """See ``Tracer``."""
        if self._tracer is None:
            raise NotPossibleError("kernel tracing: it was not started")
        return checked(self._tracer, before_ns, after_ns)


class KernelStretch:
    """Traces kernels for some seconds, beginning and ending at a step of the thread that made it.

    Args:
        seconds: For how long, at least one step.
        time_ns: Nanoseconds since the Unix epoch, now.
        tracer: What records; CUPTI if None.

    Attributes:
        problem: Why there is no trace; None if there is one, or may be yet.
        start_ns, end_ns: The stretch, once it has begun and ended.
    """

    def __init__(self, seconds: float, time_ns: Callable[[], int], tracer: Tracer | None = None) -> None:
        self._length_ns = int(seconds * 1e9)
        self._time_ns = time_ns
        self._tracer = tracer or CuptiKernels()
        self._thread = threading.get_ident()
        self._since_ns = time_ns()
        self._steps = 0
        self._over = False
        self.problem: str | None = "the program had ended before it made a step"
        self.start_ns: int | None = None
        self.end_ns: int | None = None

    def step(self) -> None:
        """A step has ended: begin or end here, if it is time to."""
        if self._over or threading.get_ident() != self._thread:
            return
        self._steps += 1
        now = self._time_ns()
        if self.start_ns is None:
            if self._steps >= SETTLED_STEPS or now - self._since_ns >= _SETTLED_NS:
                self._begin()
        elif now - self.start_ns >= self._length_ns:
            self.end()

    def end(self) -> None:
        """End it now, if it is on."""
        if self.start_ns is None or self._over:
            self._over = True
            return
        self._over = True
        synchronize()  # what was launched within is a part of it
        self.end_ns = self._time_ns()
        try:
            self._tracer.stop()
        except NotPossibleError as error:
            self.problem = str(error)

    def trace(self) -> Trace | None:
        """What ran in the stretch; None if it never was, with ``problem``."""
        if self.start_ns is None or self.end_ns is None or self.problem is not None:
            return None
        try:
            return self._tracer.trace(self.start_ns, self.end_ns)
        except NotPossibleError as error:
            self.problem = str(error)
            return None

    def keep(self, session: Session) -> None:
        """Put what ran in the stretch, which is over, into the Run of a session; or why nothing was traced."""
        trace = self.trace()
        if trace is None or self.start_ns is None or self.end_ns is None:
            session.run.warn("not_traced", f"no kernels were traced: {self.problem}")
            return
        session.add_span("phase", PHASE, self.start_ns, self.end_ns, "record")
        if trace.dropped:
            session.run.warn("records_dropped", f"the tracer dropped {trace.dropped} records: kernels are missing")
        if len(trace):
            with suppress(RecorderDiedError):
                session.spool_spans(_columns(trace, session.devices[0].info.id))

    def _begin(self) -> None:
        try:
            synchronize()
            self._tracer.start()
        except NotPossibleError as error:
            self.problem, self._over = str(error), True
            return
        self.problem = None
        self.start_ns = self._time_ns()


def _columns(trace: Trace, device: str) -> dict[str, list[object]]:
    """Columns of the ``spans`` table for what was traced, without parents."""
    n = len(trace)
    kinds = np.array(["kernel" if kind == "kernel" else "memcpy" for kind in KINDS])
    return {
        "id": list(range(_FIRST_ID, _FIRST_ID + n)),
        "parent": [None] * n,
        "kind": kinds[trace.kind].tolist(),
        "name": np.array(trace.names, dtype=object)[trace.name].tolist(),
        "device": [device] * n,
        "lane": [f"stream {stream}" for stream in trace.stream.tolist()],
        "start_ns": trace.start_ns.tolist(),
        "end_ns": trace.end_ns.tolist(),
        "correlation": trace.correlation.tolist(),
    }
