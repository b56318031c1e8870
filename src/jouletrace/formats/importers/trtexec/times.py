"""``trtexec --exportTimes``: when each query was enqueued, copied and computed, in milliseconds of its own clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import columns
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left, about, decode_text, new_run, read_text
from jouletrace.formats.importers.json_text import as_float, load_list
from jouletrace.run import DeviceInfo, Run

WARM_UP_MS = 200.0
"""Queries whose computation starts before this are warm-up: trtexec's default, which its summary excludes."""

_FIELDS = (
    "startEnqMs",
    "endEnqMs",
    "startH2dMs",
    "startComputeMs",
    "startD2hMs",
    "h2dMs",
    "computeMs",
    "d2hMs",
    "latencyMs",
)


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a file."""
    text = decode_text(head)
    return '"startEnqMs"' in text and '"computeMs"' in text


def read(path: Path, options: ImportOptions) -> Run:
    """Read times: every query becomes an iteration, with its copies and its computation as spans below it.

    Durations are those stated in the file, since ends less starts have fewer digits.

    Raises:
        BadInputError: If no query is complete.
    """
    left = Left(path)
    queries = load_list(read_text(path, left), path, left)
    rows = [_row(query, i, left) for i, query in enumerate(queries, start=1)]
    ms = np.array([row for row in rows if row is not None], np.float64).reshape(-1, len(_FIELDS))
    if not len(ms):
        raise BadInputError(f"{path}: no query has all its times{left.first()}")
    run = new_run(path, "trtexec", RELATIVE)
    about(run)["dialect"] = "times"
    run.devices.append(DeviceInfo("imported:0", options.device or "device 0", index=0))
    _add_spans(run, dict(zip(_FIELDS, ms.T, strict=True)))
    early = int((ms[:, _FIELDS.index("startComputeMs")] < WARM_UP_MS).sum())
    if 0 < early < len(ms):
        text = f"{early} queries of the first {WARM_UP_MS:g} ms are counted as warm-up, as trtexec does by default"
        run.warn("warm_up_assumed", text, path.name)
    left.warn(run)
    return run


def _row(query: object, number: int, left: Left) -> list[float] | None:
    values = [as_float(query.get(name)) if isinstance(query, dict) else None for name in _FIELDS]
    numbers = [value for value in values if value is not None and abs(value) < 1e12]
    if len(numbers) < len(_FIELDS) or min(numbers[5:]) < 0 or numbers[1] < numbers[0]:
        left.add("broken_queries", "queries lack times or have negative ones", place=f"query {number}")
        return None
    return numbers


def _add_spans(run: Run, ms: dict[str, NDArray[np.float64]]) -> None:
    n = len(ms["startEnqMs"])
    number = np.arange(n)
    measured = ms["startComputeMs"] >= WARM_UP_MS
    if not measured.any():  # a file without its warm-up, or with nothing else: use all
        measured[:] = True
    lanes = columns.Coded(np.where(measured, 0, 1), ["latency", "warm-up"])
    every = np.ones(n, bool)
    parts: list[tuple[str, str, columns.Column, str, NDArray[np.float64], NDArray[np.bool_]]] = [
        ("iteration", "query", lanes, "startH2dMs", ms["latencyMs"], every),
        ("range", "GPU compute", "GPU compute", "startComputeMs", ms["computeMs"], every),
        ("memcpy", "host to device", "host to device", "startH2dMs", ms["h2dMs"], ms["h2dMs"] > 0),
        ("memcpy", "device to host", "device to host", "startD2hMs", ms["d2hMs"], ms["d2hMs"] > 0),
        ("range", "enqueue", "enqueue", "startEnqMs", ms["endEnqMs"] - ms["startEnqMs"], every),
    ]
    blocks = []
    for k, (kind, name, lane, start, took, use) in enumerate(parts):
        begin = np.round(ms[start][use] * 1e6).astype(np.int64)
        blocks.append(
            columns.block(
                "spans",
                int(use.sum()),
                id=k * n + number[use],
                parent=None if name in ("query", "enqueue") else number[use],
                kind=kind,
                name=name,
                device="imported:0",
                lane=lane,
                start_ns=begin,
                end_ns=begin + np.round(took[use] * 1e6).astype(np.int64),
            )
        )
    run.spans = columns.join("spans", blocks)
