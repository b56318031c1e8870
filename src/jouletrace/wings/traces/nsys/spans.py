"""Kernels, copies, graphs, runtime calls and NVTX ranges of an nsys export as spans, and their joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.columns import LAUNCH_SHAPE, Coded, Column, Partly, block, known
from jouletrace.formats.importers.joins import Calls, enclosing, parents_of_work
from jouletrace.wings.traces.nsys.tables import Database, Devices, Ints

_PUSH_POP, _START_END, _MARK = 59, 60, 34
"""Types of NVTX events with a time; others name categories and domains."""

_COPIES = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
"""``copyKind``, numbered as in CUPTI."""

_SIZES = {
    **dict(zip(LAUNCH_SHAPE, ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), strict=True)),
    "registers": "registersPerThread",
    "shared_static_bytes": "staticSharedMemory",
    "shared_dynamic_bytes": "dynamicSharedMemory",
}
"""Column of kernels for each column of ``spans``."""

_DEVICE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")
_OWNER = ("deviceId", "globalPid", "contextId")
"""Columns that name a context: each counts its own streams."""

_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_KERNEL = (*_DEVICE, *_KERNEL_NAMES, *_SIZES.values())
_PROCESS = ~np.int64(0xFFFFFF)
"""Masks the thread out of a ``globalTid``, which leaves the ``globalPid``."""


class SpanReader:
    """Reads the tables in sequence; ids continue from one to the next.

    Attributes:
        counts: Number of spans by kind: kernel, memcpy, memset, graph, launch, range.
        joins: Results of the joins.
    """

    def __init__(self, database: Database, devices: Devices, base_ns: int, left: Left) -> None:
        self.counts: Counter[str] = Counter()
        self.joins: dict[str, int] = {}
        self._database = database
        self._devices = devices
        self._base_ns = base_ns
        self._left = left
        self._next = 0
        self._processes: dict[int, int] = {}
        none = np.empty(0, np.int64)
        self._calls = Calls(none, none, none, none)
        self._call_ids: Ints = none
        self._shared = False

    def read(self) -> list[pa.Table]:
        """All spans: of the host first, then of the devices, each in stored order."""
        calls = self._timed("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
        ranges = self._ranges()
        keys = self._keys(calls["globalTid"] & _PROCESS, calls["correlationId"])
        parent = self._enclosing(calls, ranges)
        n = len(calls["start"])
        named, threads = self._named(calls["nameId"]), _threads(calls["globalTid"])
        found = [
            self._block("launch", calls, parent[:n], name=named, lane=threads, correlation=known(keys)),
            self._block("range", ranges, parent[n:], name=self._range_names(ranges), lane=_range_lanes(ranges)),
        ]
        self._calls = Calls(keys, calls["start"], calls["end"], parent[:n])
        self._call_ids = calls["correlationId"]
        del ranges, parent
        tables = (
            ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL),
            ("memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY", (*_DEVICE, "bytes", "copyKind")),
            ("memset", "CUPTI_ACTIVITY_KIND_MEMSET", (*_DEVICE, "bytes")),
            ("graph", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_DEVICE, "graphId")),
        )
        self._shared = self._several_contexts([table for _, table, _ in tables])
        for kind, table, columns in tables:
            found.append(self._device_work(kind, self._timed(table, columns)))
        return [table for table in found if len(table)]

    def _timed(self, table: str, columns: tuple[str, ...], where: str = "") -> dict[str, Ints]:
        """Columns of a table without rows whose start or end is invalid, which are counted."""
        found = self._database.numbers(table, columns, where)
        good = (found["start"] >= 0) & (found["end"] >= found["start"]) & (found["end"] < 1 << 61)
        if good.all():
            return found
        self._left.add(
            "bad_times", f"rows have no start, no end or one before the other ({table} first)", int((~good).sum())
        )
        return {column: values[good] for column, values in found.items()}

    def _ranges(self) -> dict[str, Ints]:
        """NVTX ranges; marks, and ranges that were never closed, are counted."""
        database = self._database
        columns = ("rowid", "start", "end", "eventType", "globalTid", "textId")
        if not database.has("NVTX_EVENTS", "start", "end", "eventType"):
            return {column: np.empty(0, np.int64) for column in columns}
        database.columns["NVTX_EVENTS"].append("rowid")
        found = database.numbers("NVTX_EVENTS", columns)
        kind = found["eventType"]
        is_range = (kind == _PUSH_POP) | (kind == _START_END)
        self._left.add("marks", "NVTX marks have no duration and were left out", int((kind == _MARK).sum()))
        open_ended = is_range & (found["end"] < 0)
        self._left.add("unclosed_ranges", "NVTX ranges were never closed", int(open_ended.sum()))
        good = is_range & (found["start"] >= 0) & (found["end"] >= found["start"])
        self._left.add("bad_times", "NVTX ranges end before they start", int((is_range & ~open_ended & ~good).sum()))
        return {column: values[good] for column, values in found.items()}

    def _range_names(self, ranges: dict[str, Ints]) -> Coded:
        """Names of ranges: their own text, else one of the shared strings."""
        codes: dict[str, int] = {}
        found = np.full(len(ranges["start"]), -1, np.int32)
        shared = np.flatnonzero(ranges["textId"] >= 0)
        ids, inverse = np.unique(ranges["textId"][shared], return_inverse=True)
        strings = self._database.strings(ids)
        by_id = np.array([codes.setdefault(strings.get(int(i), f"string {i}"), len(codes)) for i in ids], np.int32)
        found[shared] = by_id[inverse.reshape(-1)] if len(ids) else -1
        lost = np.isin(ranges["textId"][shared], [i for i in ids.tolist() if i not in strings])
        self._left.add("without_name", "names are not in the file's strings", int(lost.sum()))
        if "text" in self._database.columns.get("NVTX_EVENTS", ()):
            rowids, texts = self._database.keyed_texts("NVTX_EVENTS", "text")
            own = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)
            at = np.searchsorted(ranges["rowid"], rowids)
            there = at < len(found)
            there[there] = ranges["rowid"][at[there]] == rowids[there]
            found[at[there]] = own[there]
        self._left.add("without_name", "NVTX ranges have no text", int((found < 0).sum()))
        return Coded(np.where(found < 0, codes.setdefault("", len(codes)), found), list(codes))

    def _enclosing(self, calls: dict[str, Ints], ranges: dict[str, Ints]) -> Ints:
        """For calls, then ranges: the id of the innermost push/pop range of their thread that encloses them."""
        nested = ranges["eventType"] == _PUSH_POP
        thread = np.concatenate([calls["globalTid"], np.where(nested, ranges["globalTid"], -2)])
        _, lane = np.unique(thread, return_inverse=True)
        start, end = (np.concatenate([calls[edge], ranges[edge]]) for edge in ("start", "end"))
        container = np.concatenate([np.zeros(len(calls["start"]), bool), nested])
        return enclosing(lane.reshape(-1), start, end, container)

    def _device_work(self, kind: str, rows: dict[str, Ints]) -> pa.Table:
        """Spans of work on devices, joined to the calls that launched them."""
        wanted, calls = rows["correlationId"], self._calls
        if (rows["globalPid"] < 0).all():  # an old export, assumed to be of one process
            calls = calls._replace(keys=self._call_ids)
        else:
            wanted = self._keys(rows["globalPid"], wanted)
        parent = parents_of_work(wanted, calls, self.joins)
        columns: dict[str, Column] = {
            "device": Coded(self._devices.codes(rows["globalPid"], rows["deviceId"]), self._devices.ids),
            "lane": self._streams(rows),
            "correlation": known(wanted),
            "graph_node": known(rows["graphNodeId"], 1),
            "name": self._work_names(kind, rows),
        }
        if kind == "kernel":
            columns |= {to: _small(rows.pop(column)) for to, column in _SIZES.items()}
        elif kind in ("memcpy", "memset"):
            columns["bytes"] = known(rows["bytes"])
        return self._block(kind, rows, parent, **columns)

    def _several_contexts(self, tables: Sequence[str]) -> bool:
        """True if work of several processes or contexts ran on one device."""
        owners: set[tuple[int, ...]] = set()
        for table in tables:
            there = [column for column in _OWNER if column in self._database.columns.get(table, ())]
            if len(there) == len(_OWNER):
                found = self._database.numbers(table, _OWNER, f"GROUP BY {', '.join(there)}")
                owners.update(zip(*(found[column].tolist() for column in _OWNER), strict=True))
        return max(Counter(device for device, *_ in owners).values(), default=0) > 1

    def _streams(self, rows: dict[str, Ints]) -> Coded:
        """Lanes of devices: streams, with their process and context where a device has several."""
        if not self._shared:
            return _coded(rows["streamId"], "stream {}")
        owner = np.column_stack([rows["globalPid"] >> 24, rows["contextId"], rows["streamId"]])
        distinct, inverse = np.unique(owner, axis=0, return_inverse=True)
        names = [f"process {pid & 0xFFFFFF} context {context} stream {n}" for pid, context, n in distinct.tolist()]
        return Coded(inverse.reshape(-1), names)

    def _keys(self, process: Ints, correlation: Ints) -> Ints:
        """Ids of launches that are unique over processes, since each counts its own ``correlationId``."""
        distinct, inverse = np.unique(process, return_inverse=True)
        codes = np.array([self._processes.setdefault(int(p), len(self._processes)) for p in distinct], np.int64)
        number = codes[inverse.reshape(-1)] if len(codes) else inverse.reshape(-1)
        good = (correlation > 0) & (correlation < 1 << 40)
        return np.where(good, correlation + (number << 40), -1)

    def _work_names(self, kind: str, rows: dict[str, Ints]) -> Coded | str:
        if kind == "memset":
            return "[CUDA memset]"
        if kind == "memcpy":
            kinds, inverse = np.unique(rows["copyKind"], return_inverse=True)
            return Coded(inverse.reshape(-1), [f"[CUDA memcpy {_COPIES.get(int(k), f'kind {k}')}]" for k in kinds])
        if kind == "graph":
            return _coded(rows["graphId"], "CUDA graph {}")
        ids = rows[_KERNEL_NAMES[0]]
        for column in _KERNEL_NAMES[1:]:
            ids = np.where(ids >= 0, ids, rows[column])
        return self._named(ids)

    def _named(self, ids: Ints) -> Coded:
        """Names by their ids in ``StringIds``; missing ids are counted."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        strings = self._database.strings(distinct)
        inverse = inverse.reshape(-1)
        unknown = [k for k, i in enumerate(distinct) if int(i) not in strings]
        self._left.add("without_name", "names are not in the file's strings", int(np.isin(inverse, unknown).sum()))
        return Coded(inverse, [strings.get(int(i), f"string {i}") for i in distinct])

    def _block(self, kind: str, rows: dict[str, Ints], parent: Ints, **columns: Column) -> pa.Table:
        n = len(rows["start"])
        self.counts[kind] += n
        first, self._next = self._next, self._next + n
        return block(
            "spans",
            n,
            id=np.arange(first, first + n),
            parent=known(parent),
            kind={"memset": "memcpy", "graph": "range"}.get(kind, kind),
            start_ns=rows["start"] + self._base_ns,
            end_ns=rows["end"] + self._base_ns,
            **columns,
        )


def _threads(tids: Ints) -> Coded:
    """Lanes of the host: threads, with their process where there are several."""
    distinct, inverse = np.unique(tids, return_inverse=True)
    processes = {int(t) >> 24 for t in distinct}
    names = [
        f"thread {int(t) & 0xFFFFFF}"
        if len(processes) < 2
        else f"process {int(t) >> 24 & 0xFFFFFF} thread {int(t) & 0xFFFFFF}"
        for t in distinct
    ]
    return Coded(inverse.reshape(-1), names)


def _range_lanes(ranges: dict[str, Ints]) -> Coded:
    """Threads; start/end ranges have separate lanes, since they needn't nest."""
    threads = _threads(ranges["globalTid"])
    loose = ranges["eventType"] == _START_END
    names = [*threads.values, *(f"{name}, start/end ranges" for name in threads.values)]
    return Coded(threads.codes + loose * len(threads.values), names)


def _coded(numbers: Ints, text: str) -> Coded:
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return Coded(inverse.reshape(-1), [text.format(n) for n in distinct.tolist()])


def _small(values: Ints) -> Partly:
    """A column of 32 bits, which halves the memory of a large export's kernels."""
    valid = (values >= 0) & (values < 1 << 31)
    return Partly(np.where(valid, values, 0).astype(np.int32), valid)
