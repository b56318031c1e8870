"""Files of OpenVINO's ``benchmark_app``: its report, performance counters of layers, and its printed latencies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.formats.importers.json_text import as_float, load
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import MODEL_UNIT, Run

_REPORT = ('"execution_results"', '"detailed_performance"', '"avg_performance"')
_CSV_HEADER = re.compile(r"^layerName[;,]execStatus[;,]layerType", re.M)
_REPORT_CSV = re.compile(r"^Execution results\s*$", re.M)
_PRINTED = re.compile(
    r"^(?:\[ INFO \])?\s*(?P<name>Median|AVG|Average|MIN|Min|MAX|Max|Throughput):"
    r"\s+(?P<value>[\d.]+) ?(?P<unit>us|ms|s|FPS)?\s*$",
    re.M,
)
_LATENCY = re.compile(r"^(?:\[ INFO \] ?)?Latency:\s*$", re.M)

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

_PRINTED_AS = {"median": "latency_s", "throughput": "throughput_per_s"} | {
    name: f"latency_{what}_s" for name, what in (("avg", "mean"), ("average", "mean"), ("min", "min"), ("max", "max"))
}
_PRINTED_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "FPS": 1.0}

COARSE_S = 1e-4
"""Latencies below this have only one digit in the report, which states hundredths of a millisecond."""


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of one of them."""
    text = decode_text(head)
    if text.lstrip()[:1] == "{":
        return any(key in text for key in _REPORT)
    if _REPORT_CSV.search(text) and "throughput;" in text:
        return True
    return _CSV_HEADER.search(text) is not None or (_LATENCY.search(text) is not None and bool(_PRINTED.search(text)))


def read(path: Path, options: ImportOptions) -> Run:
    """Read one of them: layers become units; layers that did not run are counted and left out.

    Raises:
        BadInputError: If it holds no figure.
    """
    left = Left(path)
    text = read_text(path, left)
    stated = Stated("benchmark_app")
    facts: dict[str, Any] = {}
    if text.lstrip().startswith("{"):
        facts = _json(load(text, path), path, stated, left)
    elif _CSV_HEADER.search(text):
        _csv(text, stated, left)
    elif _REPORT_CSV.search(text):
        facts = _json(_report_of_csv(text), path, stated, left)
    else:
        _printed(text, stated, left)
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


def _report_of_csv(text: str) -> dict[str, dict[str, str]]:
    """The report from CSV, in the form of its JSON: sections of keys and values."""
    names = {"Configuration setup": "configuration_setup", "Execution results": "execution_results"}
    report: dict[str, dict[str, str]] = {}
    section = ""
    for line in map(str.strip, text.split("\n")):
        key, mark, value = line.partition(";")
        if not mark:
            section = names.get(line, "") if line else section
        elif section:
            report.setdefault(section, {})[key] = value
    return report


def _csv(text: str, stated: Stated, left: Left) -> None:
    """Performance counters from CSV: a table per request, each with a row of its total."""
    start = _CSV_HEADER.search(text)
    layers = _Layers()
    table = read_delimited(text[start.start() if start else 0 :], left)
    names = {"layerName": "name", "execStatus": "status", "layerType": "node_type", "execType": "exec_type"}
    names |= {"realTime (ms)": "real_time", "cpuTime (ms)": "cpu_time"}
    keys = [names.get(name.strip(), name) for name in table.header]
    for cells, line in zip(table.rows, table.lines, strict=True):
        if cells[0] != "Total" and not cells[0].startswith("Total "):
            layers.take(dict(zip(keys, cells, strict=True)), left, f"line {line}")
    layers.write(stated)


def _printed(text: str, stated: Stated, left: Left) -> None:
    for found in _PRINTED.finditer(text):
        value = as_float(found["value"])
        if value is None:
            line = text.count("\n", 0, found.start()) + 1
            left.add("not_a_number", "figures aren't numbers", place=f"line {line}")
            continue
        factor = _PRINTED_UNITS[found["unit"] or ("FPS" if found["name"] == "Throughput" else "ms")]
        stated.add(MODEL_UNIT, _PRINTED_AS[found["name"].lower()], value * factor)
