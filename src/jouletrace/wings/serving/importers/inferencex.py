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
from jouletrace.formats.importers.stated import is_unread
from jouletrace.run import Run
from jouletrace.run.forms import LoadFacts, Serving, Totals
from jouletrace.run.names import cut
from jouletrace.wings.serving.importers.load_results import amount, label, number_of, whole

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
    """True if the beginning is that of an aggregate, of a list of them, or of a result with the load's times."""
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
    loads: list[LoadFacts] = []
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
    if label(model):
        run.workload["serving"]["model"] = label(model)
    if timed:
        run.created_ns = min(load["start_ns"] for load in timed)
        message = "totals without single requests: energy is that of the whole load with its ramps; no bills"
        run.warn("no_single_requests", message, path.name)
    if len(timed) < len(loads):
        message = "no times: a power record can't be joined, and energies are those that the file states, if any"
        run.warn("no_load_times", message, path.name)
    left.warn(run)
    return run


def _load(found: dict[str, Any], left: Left, number: int) -> LoadFacts | None:
    """A result; None if it is none."""
    aggregate = "tput_per_gpu" in found
    if not aggregate and "request_throughput" not in found:
        return None
    stated = found.get("conc" if aggregate else "max_concurrency")
    size = number_of(stated)
    name = _name(found, aggregate, size, number)
    if size is None and stated is not None:
        left.add("no_concurrency", "loads have a concurrency that is no number of requests", place=name)
    load = LoadFacts(name=name, kind="open" if size is None else "closed")
    if size is not None:
        load["concurrency"] = size
    load["stated"] = _stated(found, aggregate, left, name)
    totals = _totals(found)
    if not load["stated"] and totals is None:
        return None
    start, end = amount(found.get(_START)), amount(found.get(_END))
    if totals is not None and start is not None and end is not None and 0 < start < end < 2**33:
        load["totals"] = totals
        load["seconds"] = end - start
        load["start_ns"], load["end_ns"] = round(start * 1e9), round(end * 1e9)
    return load


def _name(found: dict[str, Any], aggregate: bool, size: int | None, number: int) -> str:
    """The figures that were measured, and the load that was offered."""
    about = [label(found.get(key)) for key in ("hw", "framework", "precision") if aggregate]
    lengths = [number_of(found.get(key)) for key in ("isl", "osl")]
    if aggregate and None not in lengths:
        about.append("{}/{} tokens".format(*lengths))
    rate = amount(found.get("request_rate"))
    offered = f"{size} at once" if size is not None else f"{rate:g}/s" if rate else f"load {number + 1}"
    return ", ".join(filter(None, [cut(", ".join(filter(None, about))), offered]))


def _stated(found: dict[str, Any], aggregate: bool, left: Left, place: str) -> dict[str, float]:
    """The figures of the result, in SI units by metric: seconds in an aggregate, milliseconds in a client's file."""
    names = {
        f"{which}_{name}{'' if aggregate else '_ms'}": f"{metric}_{label}_s"
        for name, metric in _LATENCIES.items()
        for which, label in _PERCENTILES.items()
    }
    scale = 1.0 if aggregate else 1e-3
    there = {metric: (found.get(key), scale) for key, metric in names.items()}
    there |= {metric: (found.get(key), 1.0) for key, metric in (_ENERGIES if aggregate else _RAW).items()}
    if aggregate and found.get("power_valid") is not None and not _flag(found["power_valid"]):
        left.add("power_not_valid", "results whose power InferenceX itself calls invalid", place=place)
        there = {metric: one for metric, one in there.items() if metric not in _ENERGIES.values()}
    several = found.get("is_multinode") is not None and _flag(found["is_multinode"]) is not False
    if aggregate and not several:  # the counts are of one node
        counts = [1 if found.get(key) is None else number_of(found[key]) for key in ("tp", "pp", "pcp")]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            there["tokens_per_s"] = (found.get("output_tput_per_gpu"), float(math.prod(known)))
        elif found.get("output_tput_per_gpu") is not None:
            left.add("no_gpu_count", "results do not state on how many GPUs they ran", place=place)
    stated = {metric: value * by for metric, (one, by) in there.items() if (value := amount(one)) is not None}
    unread = [metric for metric, value in stated.items() if is_unread(metric, value)]
    left.add("not_measured", "energies or powers of GPUs are stated as 0, which isn't measured", len(unread), place)
    return {metric: value for metric, value in stated.items() if metric not in unread}


def _totals(found: dict[str, Any]) -> Totals | None:
    """Requests and tokens of the load; None where one is missing."""
    names = ("completed", "total_input_tokens", "total_output_tokens")
    requests, inputs, outputs = (whole(found.get(name)) for name in names)
    if requests is None or inputs is None or outputs is None:
        return None
    return {"requests": requests, "input_tokens": inputs, "output_tokens": outputs}


def _named(load: LoadFacts, others: list[LoadFacts]) -> LoadFacts:
    """The load under a name that no other has."""
    same = sum(one["name"].partition(" (")[0] == load["name"] for one in others)
    return load | LoadFacts(name=f"{load['name']} ({same + 1})") if same else load


def _flag(value: object) -> bool | None:
    """The meaning of a yes or no, which some versions write as a number or as text; None if it means neither."""
    if isinstance(value, str):
        return {"1": True, "true": True, "0": False, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None
