"""A trace of a call's GPU work, as columns: by CUPTI where available, else by torch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.tracing.cupti import CuptiTracer, check_layouts
from jouletrace.tracing.decode import KERNEL, MEMCPY, MEMSET, Chunks

KINDS = ("kernel", "memcpy", "memset")

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Trace:
    """Work on a device: one entry per kernel, copy or memset, sorted by start. Unknown values are zero.

    Attributes:
        names: The distinct names.
        name: Index into ``names``, shape (n,).
        kind: Index into ``KINDS``, shape (n,).
        start_ns, end_ns: Since the Unix epoch, shape (n,).
        stream: Stream id, shape (n,).
        correlation: Joins an entry to its launch; all nodes of a graph launch share one. Shape (n,).
        graph_node: Id of the CUDA graph node, shape (n,).
        grid, block: Launch configuration, shape (n, 3).
        registers: Registers per thread, shape (n,).
        shared_static, shared_dynamic: Shared memory in bytes per block, shape (n,).
        bytes: Bytes moved by a copy or set, shape (n,).
        source: The tracer: "cupti", "torch", "timer" or "simulated".
        dropped: Number of missing records.
    """

    names: tuple[str, ...]
    name: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    stream: Ints
    correlation: Ints
    graph_node: Ints
    grid: Ints
    block: Ints
    registers: Ints
    shared_static: Ints
    shared_dynamic: Ints
    bytes: Ints
    source: str = "cupti"
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def of(cls, names: Sequence[str], source: str, *, dropped: int = 0, **columns: Any) -> Self:
        """From the known columns; sorted by start."""
        n = len(columns["start_ns"])
        whole: dict[str, Ints] = {}
        for field, dtype in _COLUMNS.items():
            shape = (n, 3) if field in ("grid", "block") else (n,)
            whole[field] = np.asarray(columns.get(field, np.zeros(shape)), dtype).reshape(shape)
        start = whole["start_ns"]
        if not bool((start[1:] >= start[:-1]).all()):
            order = np.argsort(start, kind="stable")
            whole = {field: rows[order] for field, rows in whole.items()}
        return cls(tuple(names), source=source, dropped=dropped, **whole)

    def take(self, rows: NDArray[np.intp] | slice) -> Self:
        """A selection of the entries."""
        return replace(self, **{field: getattr(self, field)[rows] for field in _COLUMNS})


_COLUMNS = {
    **dict.fromkeys(("name", "stream", "grid", "block", "registers", "shared_static", "shared_dynamic"), "i4"),
    **dict.fromkeys(("start_ns", "end_ns", "correlation", "graph_node", "bytes"), "i8"),
    "kind": "i1",
}
"""Type of each column."""

_CUPTI_KINDS = {KERNEL: 0, MEMCPY: 1, MEMSET: 2}

_CLOCK_SLACK_NS = 1_000_000
"""The driver converts device stamps to the host's clock, accurate to microseconds."""


def from_cupti(chunks: Chunks, names: Mapping[int, str], dropped: int = 0) -> Trace:
    """A trace of decoded CUPTI records, with kernel names by pointer."""
    known = list(dict.fromkeys(["memcpy", "memset", *names.values()]))  # several modules may hold one kernel
    place = {name: i for i, name in enumerate(known)}
    parts: dict[str, list[Ints]] = {field: [] for field in _COLUMNS}
    for kind, number in _CUPTI_KINDS.items():
        for chunk in chunks.get(kind, []):
            n, fields = len(chunk), chunk.dtype.names or ()
            for field, column in parts.items():
                source = field.removesuffix("_ns")
                if field == "kind":
                    column.append(np.full(n, number))
                elif field == "name" and kind != KERNEL:
                    column.append(np.full(n, place[KINDS[number]]))
                elif field == "name":
                    pointers, which = np.unique(chunk["name"], return_inverse=True)
                    column.append(np.array([place[names[int(one)]] for one in pointers], np.int64)[which.reshape(-1)])
                elif source in fields:
                    column.append(chunk[source])
                else:
                    column.append(np.zeros((n, 3) if field in ("grid", "block") else n, np.int64))
    columns: dict[str, Any] = {field: np.concatenate(pieces) if pieces else [] for field, pieces in parts.items()}
    return Trace.of(known, "cupti", dropped=dropped, **columns)


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
    before_ns = time.time_ns() - _CLOCK_SLACK_NS
    with tracer:
        call()
    problems = check_layouts(tracer, before_ns, time.time_ns() + _CLOCK_SLACK_NS)
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
        kind=[1 if event.name().startswith("Memcpy") else 2 * event.name().startswith("Memset") for event in events],
        start_ns=start,
        end_ns=start + np.array([event.duration_ns() for event in events], np.int64),
        stream=[event.device_resource_id() for event in events],
        correlation=[event.linked_correlation_id() for event in events],
    )
