"""Traces the kernels of a program for an interval of some seconds, between marks of its steps.

Tracing costs several percent while it is active and about one afterwards. Steps within the interval are therefore left
out of the figures of steps, and tracing happens only on request.
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
"""Nanoseconds after which a program with long steps is traced, even before ``SETTLED_STEPS``."""

PHASE = "tracing"

_FIRST_ID = 1 << 40
"""First id of kernels, beyond all ids of marks."""


class Tracer(Protocol):
    """A recorder of kernels."""

    def start(self) -> None:
        """Start tracing.

        Raises:
            NotPossibleError: If tracing isn't possible.
        """

    def stop(self) -> None:
        """Stop tracing; the caller has synchronised with the GPU."""

    def trace(self, before_ns: int, after_ns: int) -> Trace:
        """The trace between these times.

        Raises:
            NotPossibleError: If the records fail the checks.
        """


class CuptiKernels:
    """A tracer by CUPTI, in this process."""

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
    """Traces kernels for some seconds, from step to step of the thread that created it.

    Args:
        seconds: Length of the interval in seconds; at least one step is traced.
        time_ns: Returns the current time in nanoseconds since the Unix epoch.
        tracer: The tracer; CUPTI if None.

    Attributes:
        problem: Why there is no trace; None if there is one, or if tracing is in progress.
        start_ns, end_ns: Edges of the interval; None before it begins and ends.
    """

    def __init__(self, seconds: float, time_ns: Callable[[], int], tracer: Tracer | None = None) -> None:
        self._length_ns = int(seconds * 1e9)
        self._time_ns = time_ns
        self._tracer = tracer or CuptiKernels()
        self._thread = threading.get_ident()
        self._since_ns = time_ns()
        self._steps = 0
        self._over = False
        self.problem: str | None = "the program ended before its first step"
        self.start_ns: int | None = None
        self.end_ns: int | None = None

    def step(self) -> None:
        """Handle the end of a step: start or stop tracing if it is due."""
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
        """Stop tracing now, if it is active."""
        if self.start_ns is None or self._over:
            self._over = True
            return
        self._over = True
        synchronize()  # work launched within the interval belongs to it
        self.end_ns = self._time_ns()
        try:
            self._tracer.stop()
        except NotPossibleError as error:
            self.problem = str(error)

    def trace(self) -> Trace | None:
        """The trace of the interval; None without one, with the reason in ``problem``."""
        if self.start_ns is None or self.end_ns is None or self.problem is not None:
            return None
        try:
            return self._tracer.trace(self.start_ns, self.end_ns)
        except NotPossibleError as error:
            self.problem = str(error)
            return None

    def keep(self, session: Session) -> None:
        """Add the trace of the ended interval to the Run of a session, or a warning with the reason for its absence."""
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
    """Columns of the ``spans`` table for a trace, without parents."""
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
