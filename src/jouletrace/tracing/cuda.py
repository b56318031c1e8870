"""Traces the GPU work of a call: by CUPTI where available, else by torch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jouletrace.errors import NotPossibleError
from jouletrace.tracing.cupti import CuptiTracer, check_layouts
from jouletrace.tracing.layouts import KERNEL
from jouletrace.tracing.trace import Trace, from_cupti

_CLOCK_SLACK_NS = 1_000_000
"""The driver converts device stamps to the host's clock, accurate to microseconds."""


def trace_call(call: Callable[[], Any]) -> tuple[Trace, str | None]:
    """Run ``call``, which must synchronise with the GPU, and record all its GPU work.

    Trace last, or in a separate process: tracing leaves about one percent of slowdown.

    Returns:
        The trace; and the reason why CUPTI wasn't used, or None.

    Raises:
        NotPossibleError: If neither tracer works.
    """
    try:
        return with_cupti(call), None
    except NotPossibleError as error:
        return with_torch(call), str(error)


def with_cupti(call: Callable[[], Any]) -> Trace:
    """As ``trace_call``, by CUPTI.

    Raises:
        NotPossibleError: If CUPTI is missing, not permitted or in use, or its records fail the checks.
    """
    tracer = CuptiTracer()
    before_ns = time.time_ns()
    with tracer:
        call()
    return checked(tracer, before_ns, time.time_ns())


def checked(tracer: CuptiTracer, before_ns: int, after_ns: int) -> Trace:
    """The trace of a stopped tracer, after a check of its records.

    Args:
        tracer: The stopped tracer.
        before_ns: Unix time before the first launch.
        after_ns: Unix time after the last kernel's end.

    Raises:
        NotPossibleError: If the check fails.
    """
    problems = check_layouts(tracer.cupti, tracer, before_ns - _CLOCK_SLACK_NS, after_ns + _CLOCK_SLACK_NS)
    if problems:
        raise NotPossibleError(f"kernel tracing: CUPTI's records can't be trusted: {problems[0]}")
    chunks = tracer.records()
    pointers = {int(pointer) for chunk in chunks[KERNEL] for pointer in np.unique(chunk["name"])}
    return from_cupti(chunks, tracer.names(pointers), tracer.dropped)


def with_torch(call: Callable[[], Any]) -> Trace:
    """As ``trace_call``, by the events of torch's profiler: names, times and streams, no launch configurations.

    Raises:
        NotPossibleError: If it records nothing: another profiler holds CUPTI, or this torch can't.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise NotPossibleError("kernel tracing: this machine has no CUDA device")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    found = getattr(profiler.profiler, "kineto_results", None)
    everything = found.events() if found else ()
    events = [event for event in everything if "CUDA" in str(event.device_type())]
    if not events:
        raise NotPossibleError("kernel tracing: torch's profiler recorded nothing; another profiler may hold the GPU")
    names = list(dict.fromkeys(event.name() for event in events))
    index = {name: i for i, name in enumerate(names)}
    start = np.array([event.start_ns() for event in events], np.int64)
    return Trace.of(
        names,
        "torch",
        name=[index[event.name()] for event in events],
        kind=[_kind(event.name()) for event in events],
        start_ns=start,
        end_ns=start + np.array([event.duration_ns() for event in events], np.int64),
        stream=[event.device_resource_id() for event in events],
        correlation=[event.linked_correlation_id() for event in events],
    )


def _kind(name: str) -> int:
    return 1 if name.startswith("Memcpy") else 2 if name.startswith("Memset") else 0
