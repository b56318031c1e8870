"""Results of InferenceX (formerly InferenceMAX): of its client, and the aggregates that its site publishes.

The client's file has totals of a load and, since power is recorded beside, the load's start and end in Unix time: the
energy of that time is computed from a power record. An aggregate has neither times nor totals, so that only what it
states can be shown. Neither has single requests: there is no steady state to determine, and no bills.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import NO_CLOCK, UNIX, ImportOptions, Left, new_run, read_text
from jouletrace.run import Run
from jouletrace.run.forms import Load, Serving, Totals

_START, _END = "benchmark_start_time_unix", "benchmark_end_time_unix"
_RAW = {"request_throughput": "requests_per_s", "output_throughput": "tokens_per_s"}
_ENERGIES = {
    "avg_total_gpu_power_w": "power_w",
    "total_gpu_energy_j": "energy_total_j",
    "joules_per_successful_query": "energy_per_request_j",
    "joules_per_output_token": "energy_per_output_token_j",
    "joules_per_total_token": "energy_per_any_token_j",
}
"""Metrics by the names of an aggregate; the energies are of all GPUs over the whole load."""

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}
_PERCENTILES = {"median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def sniff(head: bytes) -> bool:
    """Whether the beginning is that of an aggregate, of a list of them, or of a result with the load's times."""
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    aggregate = b'"tput_per_gpu"' in head and b'"conc"' in head
    return aggregate or (b'"request_throughput"' in head and f'"{_START}"'.encode() in head)


def read(path: Path, options: ImportOptions) -> Run:
    """Read each result as a load; ``options`` has nothing that applies.

    Raises:
        BadInputError: If it isn't JSON, or holds no result.
    """
    left = Left(path)
    try:
        found = json.loads(read_text(path, left))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not JSON: {error}") from None
    loads: list[Load] = []
    for number, one in enumerate(found if isinstance(found, list) else [found]):
        load = _load(one, left, number) if isinstance(one, dict) else None
        if load is None:
            left.add("no_result", "entries are no results of InferenceX", place=f"entry {number + 1}")
        else:
            loads.append(_named(load, loads))
    if not loads:
        raise BadInputError(f"{path}: no result of InferenceX{left.first()}")
    timed = [load for load in loads if "totals" in load]
    run = new_run(path, "inferencex", UNIX if timed else NO_CLOCK)
    first = next((one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)), {})
    model = first.get("model_id") or first.get("model")
    run.workload["serving"] = Serving(levels=loads)
    if isinstance(model, str):
        run.workload["serving"]["model"] = model
    if timed:
        run.created_ns = min(load["start_ns"] for load in timed)
        message = "totals without single requests: energy is that of the whole load with its ramps; no bills"
        run.warn("no_single_requests", message, path.name)
    if len(timed) < len(loads):
        message = "no times: a power record can't be joined, and energies are those that the file states, if any"
        run.warn("no_load_times", message, path.name)
    left.warn(run)
    return run


def _load(found: dict[str, Any], left: Left, number: int) -> Load | None:
    """A result; None if it is none."""
    aggregate = "tput_per_gpu" in found
    size = found.get("conc") if aggregate else found.get("max_concurrency")
    if not aggregate and "request_throughput" not in found:
        return None
    about = [str(found[key]) for key in ("hw", "framework", "precision") if aggregate and found.get(key)]
    if aggregate and found.get("isl") and found.get("osl"):
        about.append(f"{found['isl']}/{found['osl']} tokens")
    rate = _number(found.get("request_rate"))
    offered = f"{size} at once" if isinstance(size, int) else f"{rate:g}/s" if rate else f"load {number + 1}"
    load = Load(name=", ".join([*about, offered]), kind="closed" if isinstance(size, int) else "open")
    if isinstance(size, int) and 0 <= size < 2**53:
        load["concurrency"] = size
    load["stated"] = _stated(found, aggregate)
    if aggregate and found.get("power_valid") == 0:
        left.add("power_not_valid", "results whose power InferenceX itself calls invalid", place=load["name"])
    totals = _totals(found)
    start, end = _number(found.get(_START)), _number(found.get(_END))
    if totals is not None and start is not None and end is not None and 0 < start < end < 2**33:
        load["totals"] = totals
        load["seconds"] = end - start
        load["start_ns"], load["end_ns"] = round(start * 1e9), round(end * 1e9)
    return load


def _stated(found: dict[str, Any], aggregate: bool) -> dict[str, float]:
    """What the result states, in SI units by metric: seconds in an aggregate, milliseconds in a client's file."""
    names = {
        f"{which}_{name}{'' if aggregate else '_ms'}": f"{metric}_{label}_s"
        for name, metric in _LATENCIES.items()
        for which, label in _PERCENTILES.items()
    }
    scale = 1.0 if aggregate else 1e-3
    there = {metric: (found.get(key), scale) for key, metric in names.items()}
    there |= {metric: (found.get(key), 1.0) for key, metric in (_ENERGIES if aggregate else _RAW).items()}
    if aggregate and found.get("power_valid") == 0:
        there = {metric: one for metric, one in there.items() if metric not in _ENERGIES.values()}
    if aggregate and not found.get("is_multinode"):
        gpus = math.prod(_number(found.get(key)) or 1.0 for key in ("tp", "pp", "pcp"))
        there["tokens_per_s"] = (found.get("output_tput_per_gpu"), gpus)
    return {metric: value * by for metric, (one, by) in there.items() if (value := _number(one)) is not None}


def _totals(found: dict[str, Any]) -> Totals | None:
    """Requests and tokens of the load; None where one is missing."""
    counts = [found.get(key) for key in ("completed", "total_input_tokens", "total_output_tokens")]
    known = [one for one in counts if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**53]
    if len(known) < len(counts):
        return None
    return {"requests": known[0], "input_tokens": known[1], "output_tokens": known[2]}


def _named(load: Load, others: list[Load]) -> Load:
    """The load under a name that no other has."""
    same = sum(one["name"].partition(" (")[0] == load["name"] for one in others)
    return load | Load(name=f"{load['name']} ({same + 1})") if same else load


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if known and value < 1e15 else None  # type: ignore[arg-type,operator]  # it is a number
