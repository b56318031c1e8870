"""AIPerf's ``profile_export.jsonl``: a line a request, with Unix times.

Requests of its warm-up phase are left out. Times to the first token are in the metrics, in units that these state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jouletrace.formats.importers.base import UNIX, ImportOptions, Left, read_text
from jouletrace.run import Run
from jouletrace.run.forms import LoadFacts
from jouletrace.wings.serving.importers.load_results import Row, arrivals, load_run, whole

_MARKS = (b'"metadata"', b'"request_start_ns"', b'"request_end_ns"')
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
_FIRST = ("time_to_first_token", "ttft")
_INPUT, _OUTPUT = ("input_sequence_length",), ("output_sequence_length", "output_token_count")


def sniff(head: bytes) -> bool:
    """True if the first line is a record of AIPerf."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and all(mark in line for mark in _MARKS)


def read(path: Path, options: ImportOptions) -> Run:
    """Read the requests as one load.

    Raises:
        BadInputError: If no line is a request with times.
    """
    left = Left(path)
    rows: list[Row] = []
    for number, line in enumerate(read_text(path, left).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            row = _row(len(rows), record)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            left.add("no_record", "lines are no record of a request", place=f"line {number}")
            continue
        if record["metadata"].get("benchmark_phase") == "warmup":
            left.add("warm_up", "requests of the warm-up were left out")
            continue
        rows.append(row)
    seconds = (max(r["sent_ns"] for r in rows) - min(r["sent_ns"] for r in rows)) / 1e9 if rows else 0.0
    load = LoadFacts(name=path.stem, kind="open", seconds=seconds)
    return load_run(path, "aiperf", UNIX, [(load, rows)], left)


def _row(id: int, record: dict[str, Any]) -> Row:
    about, metrics = record["metadata"], record.get("metrics") or {}
    sent, end = int(about["request_start_ns"]), int(about["request_end_ns"])
    first = next((metrics[name] for name in _FIRST if name in metrics), None)
    latency = metrics.get("request_latency")
    between = metrics.get("inter_chunk_latency")
    last = sent + _nanoseconds(latency) if latency else end  # up to the last token, without usage figures behind it
    error = record.get("error")
    cancelled = "cancelled" if about.get("was_cancelled") else None
    why = (error.get("message") or error.get("type") or "failed") if isinstance(error, dict) else error or cancelled
    tokens = {"input_tokens": _INPUT, "output_tokens": _OUTPUT}
    counts = {k: next((whole(metrics[n]["value"]) for n in names if n in metrics), None) for k, names in tokens.items()}
    after_ns = () if not (first and between) else arrivals(_nanoseconds(first), between["value"], _NS[between["unit"]])
    return {
        "id": id,
        "scheduled_ns": about.get("credit_issued_ns") or sent,
        "sent_ns": sent,
        "first_ns": None if first is None or why else min(sent + _nanoseconds(first), last),
        "last_ns": last,
        **counts,
        "status": "failed" if why else "ok",
        "error": str(why)[:200] if why else None,
        "after_ns": after_ns,
    }


def _nanoseconds(metric: dict[str, Any]) -> int:
    return round(float(metric["value"]) * _NS[metric["unit"]])
