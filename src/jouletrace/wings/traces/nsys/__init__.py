"""SQLite exports of Nsight Systems (``nsys export --type sqlite``), in all schemas: tables are looked up by name."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, UNIX, ImportOptions, Left, about, new_run
from jouletrace.formats.importers.columns import Coded, block, join
from jouletrace.run import ChannelInfo, Run
from jouletrace.wings.traces import WING
from jouletrace.wings.traces.impossible import clear_impossible_times, earliest_ns
from jouletrace.wings.traces.nsys.spans import SpanReader
from jouletrace.wings.traces.nsys.tables import Database, Devices

_MAGIC = b"SQLite format 3\0"
_OF_NVPROF = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
"""A table of nvprof's databases, which are SQLite files too."""

_READ = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "GPU_METRICS",
)


def sniff(head: bytes) -> bool:
    """True if it is an SQLite file; its tables are checked when it is read."""
    return head.startswith(_MAGIC)


def read(path: Path, options: ImportOptions) -> Run:
    """Read an export: kernels, copies, graphs, runtime calls, NVTX ranges and GPU metrics.

    Raises:
        BadInputError: If it can't be read, is locked, or contains none of these.
    """
    left = Left(path)
    database = Database(path, left)
    try:
        return _read(database, path, options, left)
    finally:
        database.close()


def _read(database: Database, path: Path, options: ImportOptions, left: Left) -> Run:
    if _OF_NVPROF in database.columns and "StringIds" not in database.columns:
        command = WING.converted_by[".nvprof"].format(file=shlex.quote(str(path)))
        raise BadInputError(f"{path}: a database of nvprof, not an export of nsys: import what `{command}` writes")
    began = database.numbers("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])["utcEpochNs"]
    unix = len(began) > 0 and 0 < began[0] < 1 << 62
    run = new_run(path, "nsys", UNIX if unix else RELATIVE)
    file = about(run)
    base_ns = int(began[0]) if unix else 0
    devices = Devices(database, options)
    spans = SpanReader(database, devices, base_ns, left)
    blocks = spans.read()
    samples = _add_metrics(run, database, devices, base_ns)
    if not blocks and samples == 0:
        known = ", ".join(name for name in _READ if name in database.columns) or "no table of a profile"
        raise BadInputError(
            f"{path}: contains no CUDA work, runtime call, NVTX range or metric ({known}){left.first()}"
        )
    if spans.counts["kernel"] == 0 and not spans.counts["graph"]:
        left.add("no_kernels", "table of kernels missing or empty: was CUDA traced?")
    left.add(
        "graphs_hide_kernels",
        "CUDA graphs hide their kernels: nsys profile --cuda-graph-trace=node",
        spans.counts["graph"],
    )
    run.spans = join("spans", blocks)
    run.devices = devices.used()
    file["joins"] = spans.joins
    file["not_read"] = {
        table: n
        for table, columns in database.columns.items()
        if table not in _READ and {"start", "timestamp"} & set(columns) and (n := database.count(table))
    }
    for name, value in database.rows("META_DATA_EXPORT", ["name", "value"]) + database.rows(
        "EXPORT_META_DATA", ["name", "value"]
    ):
        if name == "EXPORT_PRODUCT_VERSION":
            run.versions["nsys"] = str(value)
    clear_impossible_times(run, left, base_ns)
    first_ns = earliest_ns(run) if len(run.spans) else int(np.min(run.samples["time_ns"].to_numpy()))
    run.created_ns = first_ns if unix else path.stat().st_mtime_ns
    left.warn(run)
    return run


def _add_metrics(run: Run, database: Database, devices: Devices, base_ns: int) -> int:
    """Add samples and channels with the tool's names of metrics; returns the number of samples."""
    columns = database.numbers("GPU_METRICS", ["timestamp", "typeId", "metricId", "value"], "ORDER BY rowid")
    n = len(columns["timestamp"])
    if n == 0:
        return 0
    names = {
        (kind, metric): str(name)
        for kind, metric, name in database.rows("TARGET_INFO_GPU_METRICS", ["typeId", "metricId", "metricName"])
    }
    key = columns["typeId"].astype(np.int64) * 4096 + columns["metricId"]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    channels: dict[str, int] = {}
    ids: dict[str, int] = {}
    pairs = []
    for row in first:
        kind, metric = int(columns["typeId"][row]), int(columns["metricId"][row])
        name = names.get((kind, metric), f"metric {metric}")
        device = devices.gpu(kind & 0xFF)  # the rest of typeId encodes the kind of GPU
        if run.channel(device, name) is None:
            unit = "%" if "%" in name else ""
            run.channels.append(ChannelInfo(device, name, unit, f"nsys GPU metric {name!r}"))
        pairs.append((ids.setdefault(device, len(ids)), channels.setdefault(name, len(channels))))
    codes = np.array(pairs, np.int32)[inverse.reshape(-1)]
    run.samples = block(
        "samples",
        n,
        time_ns=columns["timestamp"] + base_ns,
        device=Coded(codes[:, 0], list(ids)),
        channel=Coded(codes[:, 1], list(channels)),
        value=columns["value"].astype(np.float64),
    )
    return n
