"""Tracing what a call runs on the GPU: by CUPTI where it can be had, else by torch's own profiler, by name."""

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
"""The device's stamps are brought to the host's clock by the driver, to microseconds."""


def trace_call(call: Callable[[], Any]) -> tuple[Trace, str | None]:
    """Run ``call``, which must wait for what it launches, and record all that it runs on the GPU.

    Do it last, or in a process of its own: tracing leaves about one percent behind.

    Returns:
        The trace, and why CUPTI could not be used if torch's profiler was.

    Raises:
        NotPossibleError: If neither can.
    """
    try:
        return with_cupti(call), None
    except NotPossibleError as error:
        return with_torch(call), str(error)


def with_cupti(call: Callable[[], Any]) -> Trace:
    """As ``trace_call``, by CUPTI.

    Raises:
        NotPossibleError: If CUPTI isn't here, isn't allowed, is in use, or its records aren't what they should be.
    """
    tracer = CuptiTracer()
    before_ns = time.time_ns()
    with tracer:
        call()
    return checked(tracer, before_ns, time.time_ns())


def checked(tracer: CuptiTracer, before_ns: int, after_ns: int) -> Trace:
    """The trace of a tracer that has stopped, once its records make sense.

    Args:
        tracer: Stopped.
        before_ns: Unix time before the first launch.
        after_ns: Unix time after the last kernel's end.

    Raises:
        NotPossibleError: If they don't.
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
        raise NotPossibleError("kernel tracing: there is no CUDA device here")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    found = getattr(profiler.profiler, "kineto_results", None)
    everything = found.events() if found else ()
    events = [event for event in everything if "CUDA" in str(event.device_type())]
    if not events:
        raise NotPossibleError("kernel tracing: torch's profiler recorded nothing; does another profiler hold the GPU?")
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
