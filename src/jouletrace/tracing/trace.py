"""A trace as columns: what ran on a device and when, independent of the tracer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from jouletrace.tracing.decode import Chunks
from jouletrace.tracing.layouts import KERNEL, MEMCPY, MEMSET

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
        source: The tracer: "cupti", "torch" or "simulated".
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
            shape = _shape(field, n)
            whole[field] = np.asarray(columns.get(field, np.zeros(shape)), dtype).reshape(shape)
        start = whole["start_ns"]
        if not bool((start[1:] >= start[:-1]).all()):
            order = np.argsort(start, kind="stable")
            whole = {field: rows[order] for field, rows in whole.items()}
        return cls(tuple(names), source=source, dropped=dropped, **whole)

    def take(self, rows: NDArray[np.intp] | slice) -> Self:
        """A selection of the entries."""
        return replace(self, **{field: getattr(self, field)[rows] for field in _COLUMNS})


_COLUMNS: dict[str, str] = {
    "name": "i4",
    "kind": "i1",
    "start_ns": "i8",
    "end_ns": "i8",
    "stream": "i4",
    "correlation": "i8",
    "graph_node": "i8",
    "grid": "i4",
    "block": "i4",
    "registers": "i4",
    "shared_static": "i4",
    "shared_dynamic": "i4",
    "bytes": "i8",
}
"""Type of each column."""


def _shape(column: str, n: int) -> tuple[int, ...]:
    return (n, 3) if column in ("grid", "block") else (n,)


def from_cupti(chunks: Chunks, names: Mapping[int, str], dropped: int = 0) -> Trace:
    """A trace of decoded CUPTI records.

    Args:
        chunks: Result of ``decode``.
        names: Kernel names by pointer.
        dropped: Records that CUPTI dropped.
    """
    known = list(dict.fromkeys(["memcpy", "memset", *names.values()]))  # several modules may hold one kernel
    place = {name: i for i, name in enumerate(known)}
    index = {pointer: place[name] for pointer, name in names.items()}
    rows = sum(len(chunk) for kind in _CUPTI_KINDS for chunk in chunks.get(kind, []))
    columns = {field: np.zeros(_shape(field, rows), dtype) for field, dtype in _COLUMNS.items()}
    at = 0
    for kind, number in _CUPTI_KINDS.items():
        for chunk in chunks.get(kind, []):
            here = slice(at, at + len(chunk))
            at += len(chunk)
            columns["kind"][here] = number
            columns["name"][here] = _indices(chunk["name"], index) if kind == KERNEL else number - 1
            for field in chunk.dtype.names or ():
                target = _RENAMED.get(field, field)
                if target in columns and target not in ("kind", "name"):
                    columns[target][here] = chunk[field]
    return Trace.of(known, "cupti", dropped=dropped, **columns)


_CUPTI_KINDS = {KERNEL: 0, MEMCPY: 1, MEMSET: 2}
_RENAMED = {"start": "start_ns", "end": "end_ns"}


def _indices(pointers: NDArray[Any], index: Mapping[int, int]) -> Ints:
    distinct, where = np.unique(pointers, return_inverse=True)
    numbers = np.array([index[int(pointer)] for pointer in distinct], np.int32)
    return np.asarray(numbers[where])
