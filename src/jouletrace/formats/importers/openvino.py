"""Reports of OpenVINO's ``benchmark_app`` as JSON: its results, and performance counters of layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.json_text import as_float, load
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import MODEL_UNIT, Run

_REPORT = ('"execution_results"', '"detailed_performance"', '"avg_performance"')
_RESULTS = {
    "latency (ms)": ("latency_s", 1e-3),
    "avg latency": ("latency_mean_s", 1e-3),
    "min latency": ("latency_min_s", 1e-3),
    "max latency": ("latency_max_s", 1e-3),
    "throughput": ("throughput_per_s", 1.0),
    "read model time (ms)": ("read_model_time_s", 1e-3),
    "load model time (ms)": ("compile_model_time_s", 1e-3),
    "compile model time (ms)": ("compile_model_time_s", 1e-3),
    "first inference time (ms)": ("first_inference_time_s", 1e-3),
    "total execution time (ms)": ("total_time_s", 1e-3),
}
"""Metric and factor to SI of each result of the report."""

COARSE_S = 1e-4
"""Latencies below this have only one digit in the report, which states hundredths of a millisecond."""


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a report."""
    text = decode_text(head)
    return text.lstrip()[:1] == "{" and any(key in text for key in _REPORT)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a report: layers become units; layers that did not run are counted and left out.

    Raises:
        BadInputError: If it holds no figure.
    """
    left = Left(path)
    stated = Stated("benchmark_app")
    facts = _json(load(read_text(path, left), path), path, stated, left)
    if not len(stated):
        raise BadInputError(f"{path}: output of benchmark_app without a single figure{left.first()}")
    run = stated.run(path, "openvino", options.device or facts.get("target device"), facts)
    latency = run.result("latency_s").value
    if latency is not None and latency < COARSE_S:
        run.warn("rounded", "benchmark_app rounds its latencies, which are this short, to one digit", path.name)
    left.warn(run)
    return run


def _json(report: Any, path: Path, stated: Stated, left: Left) -> dict[str, Any]:
    if not isinstance(report, dict):
        raise BadInputError(f"{path}: this JSON isn't a report of benchmark_app")
    results = report.get("execution_results")
    if isinstance(results, dict):
        n = as_float(results.get("total number of iterations")) or 0
        for name, (metric, factor) in _RESULTS.items():
            if name in results:
                value = as_float(results[name])
                if value is None:
                    left.add("not_a_number", "results aren't numbers", place=name)
                else:
                    stated.add(MODEL_UNIT, metric, value * factor, int(n))
    requests = report.get("detailed_performance", report.get("avg_performance"))
    requests = requests if isinstance(requests, list) else [requests] if isinstance(requests, dict) else []
    layers = _Layers()
    for number, request in enumerate(requests, start=1):
        nodes = request.get("nodes") if isinstance(request, dict) else None
        for place, node in enumerate(nodes if isinstance(nodes, list) else [], start=1):
            layers.take(node if isinstance(node, dict) else {}, left, f"request {number}, node {place}")
    layers.write(stated)
    setup = report.get("configuration_setup")
    setup = setup if isinstance(setup, dict) else {}
    facts = {key: value for key, value in setup.items() if isinstance(value, str | int)}
    return {"name": facts["topology"], **facts} if isinstance(facts.get("topology"), str) else facts


class _Layers:
    """Times of layers, summed over the requests in the file."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._ops: dict[tuple[str, str], str] = {}

    def take(self, node: Mapping[str, Any], left: Left, place: str) -> None:
        """Add one layer of one request."""
        status = str(node.get("status", "")).rpartition(".")[2]
        name, real, cpu = node.get("name"), as_float(node.get("real_time")), as_float(node.get("cpu_time"))
        if status in ("NOT_RUN", "OPTIMIZED_OUT"):
            left.add("not_run", "layers did not run: they are fused into others", place=place)
        elif not isinstance(name, str) or real is None or real < 0 or status != "EXECUTED":
            left.add("broken_layers", "layers have no name, status or time", place=place)
        else:
            key = (name, str(node.get("exec_type", "")))
            self._times.setdefault(key, []).append((real, cpu or 0.0))
            self._ops[key] = str(node.get("node_type", ""))

    def write(self, stated: Stated) -> None:
        """Add a unit per layer, with its mean time per request."""
        for (name, kind), times in self._times.items():
            unit = stated.unit("layer", name, op=self._ops[name, kind] or None, shapes=kind or None, count=1)
            n = len(times)
            stated.add(unit, "time_s", sum(real for real, _ in times) / n / 1e3, n)
            stated.add(unit, "cpu_time_s", sum(cpu for _, cpu in times) / n / 1e3, n)
