"""Profiles of onnxruntime: a list of events in microseconds since the session began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, ImportOptions, Left, new_run, read_text
from jouletrace.formats.importers.joins import enclosing
from jouletrace.formats.importers.json_text import as_float, load_list
from jouletrace.run import DeviceInfo, Run, tables

_MARKS = (b"_kernel_time", b'"session_initialization"', b'"model_loading', b'"SequentialExecutor::Execute"')
_FENCES = ("_fence_before", "_fence_after")
_MAX_US = 4e15


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a profile."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and any(mark in head for mark in _MARKS)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a profile: nodes become operators, runs of the model become iterations, GPU kernels become kernels.

    Raises:
        BadInputError: If no event has a duration.
    """
    left = Left(path)
    events = load_list(read_text(path, left), path, left)
    spans: list[dict[str, Any]] = []
    for number, event in enumerate(events, start=1):
        span = _span(event, len(spans), left, f"event {number}")
        if span is not None:
            spans.append(span)
    if not spans:
        raise BadInputError(f"{path}: a profile of onnxruntime without an event that has a duration{left.first()}")
    _nest(spans)
    run = new_run(path, "onnxruntime", RELATIVE)
    run.spans = tables.from_rows(spans, "spans")
    providers = sorted({span["provider"] for span in spans if span["provider"]})
    run.workload["providers"] = providers
    kind = "gpu" if any("CUDA" in provider or "Tensorrt" in provider for provider in providers) else "cpu"
    run.devices.append(DeviceInfo("imported:0", options.device or f"{kind.upper()} 0", kind=kind, index=0))
    left.warn(run)
    return run


def _span(event: object, number: int, left: Left, place: str) -> dict[str, Any] | None:
    if not isinstance(event, dict):
        left.add("broken_events", "elements aren't events", place=place)
        return None
    name, category = event.get("name"), event.get("cat")
    start, took = as_float(event.get("ts")), as_float(event.get("dur"))
    if event.get("ph", "X") != "X":
        left.add("other_events", "events have no duration", place=place)
        return None
    if not isinstance(name, str) or start is None or took is None or not (0 <= start < _MAX_US and 0 <= took < _MAX_US):
        left.add("broken_events", "events have no name or no time", place=place)
        return None
    if name.endswith(_FENCES):
        left.add("fences", "fences around nodes were left out", place=place)
        return None
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    kind = {"Node": "op", "Kernel": "kernel"}.get(str(category), "iteration" if name == "model_run" else "range")
    lane = f"stream {args['stream']}" if kind == "kernel" and "stream" in args else f"thread {event.get('tid', '?')}"
    return {
        "id": number,
        "kind": kind,
        "name": name.removesuffix("_kernel_time"),
        "device": "imported:0",
        "lane": "latency" if kind == "iteration" else lane,
        "start_ns": round(start * 1e3),
        "end_ns": round(start * 1e3) + round(took * 1e3),
        "provider": str(args.get("provider", "")),
    }


def _nest(spans: list[dict[str, Any]]) -> None:
    """Give each operator the run of the model that contains it as its parent."""
    start, end = (np.array([span[edge] for span in spans], np.int64) for edge in ("start_ns", "end_ns"))
    runs = np.array([span["kind"] == "iteration" for span in spans])
    around = enclosing(np.zeros(len(spans), np.int64), start, end, runs)
    for span, row in zip(spans, around.tolist(), strict=True):
        if span["kind"] == "op" and row >= 0:
            span["parent"] = spans[row]["id"]
