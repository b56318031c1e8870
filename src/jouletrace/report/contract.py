"""The JSON object of a Run: the contract with other programs, described by ``schema.json``.

Additions are allowed within schema 3; nothing is renamed or removed but in "workload", which is as in the Run. Figures
are ``{"value", "low", "high", "reason", "of", "budget"}`` with a 95 % interval of the measurand "of"; the distribution
of latency and throughput are plain numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from jouletrace.analysis.conditions import Conditions
from jouletrace.analysis.facts import Facts, facts_of
from jouletrace.comparing.pairs import Comparison
from jouletrace.report import advice as advised
from jouletrace.report import trust
from jouletrace.report.comparison import to_dict
from jouletrace.report.cost import priced, tariff_of
from jouletrace.report.divisions import as_json, costliest_of, divisions
from jouletrace.report.facts import printed
from jouletrace.report.headline import headline
from jouletrace.report.tariffs import Tariff
from jouletrace.run import ChannelInfo, DeviceInfo, Estimate, Run
from jouletrace.run.header import jsonable
from jouletrace.run.metrics import OF_PARTS
from jouletrace.run.parts import ABSENT, Parts, Row

SCHEMA = 3

Stated = Callable[[Estimate], dict[str, Any]]
"""How a figure is written."""

_PLAIN = {"latency_s": "latency_ms", "throughput_per_s": "throughput_per_s"}
"""Metrics of the model that the object has as plain numbers, and where."""

_MODEL = {
    "power_w": "power_w",
    "energy_total_j": "energy_j.total",
    "energy_active_over_context_idle_j": "energy_j.active_over_context_idle",
    "energy_active_over_deep_idle_j": "energy_j.active_over_deep_idle",
    "baseline_context_idle_w": "baseline_w.context_idle",
    "baseline_deep_idle_w": "baseline_w.deep_idle",
    "counter_ratio": "counter_ratio",
}
"""Metrics of the model that it has as figures, and where; flags are given under these names, too."""


def to_json_object(
    run: Run,
    *,
    top: int | None = None,
    compared: Comparison | None = None,
    tariff: Tariff | None = None,
    divided: Mapping[str, list[Row]] | None = None,
    advice: bool = True,
) -> dict[str, Any]:
    """The Run as a JSON-ready object.

    Args:
        run: The Run.
        top: Keep only so many rows of each division but the whole, the costliest first, and all that is idle.
        compared: What a Run of ``ab`` says of its two sides: the object has it as "comparison".
        tariff: What a kWh costs and emits, before what the Run keeps: the object has "cost".
        divided: Rows of divisions that take the place of all but the whole.
        advice: Say what could save energy; else the list is empty.

    Returns:
        An object that ``schema.json`` describes and validates.
    """
    results = Parts(run)
    run_facts = facts_of(run, results)

    def stated(estimate: Estimate) -> dict[str, Any]:
        return figure(estimate, results.measurand(estimate))

    first = headline(run, results, run_facts)
    shown, shown_facts = printed(results, run_facts)
    parts = divisions(run, shown)
    whole, *devices = parts["whole"]
    parts["whole"] = [replace(whole, figures=shown_facts.of_whole(shown) if devices else whole.figures), *devices]
    if divided is not None:
        parts = {"whole": parts["whole"], **divided}
    if top is not None:
        parts = {name: rows if name == "whole" else costliest_of(rows, top) for name, rows in parts.items()}
    json_object = {
        "schema": SCHEMA,
        "kind": run.kind,
        "complete": run.complete,
        "workload": run.workload,
        "devices": [_device(device, run_facts.conditions_of) for device in run.devices],
        "simulated": run.simulated,
        "trust": trust.to_dict(run_facts.checks),
        "headline": first and first.to_dict(stated((results.change or replace)(first.part).get(first.metric))),
        "absolute": run_facts.sensor is not None,
        "model": _model(shown, shown_facts, stated),
        "parts": {name: [as_json(row, stated) for row in rows] for name, rows in parts.items()},
        "checks": {name: stated(results.get(name)) for name in OF_PARTS if name in results.whole.figures},
        "sensors": [_sensor(channel) for channel in run.channels],
        "conditions": run_facts.conditions,
        "advice": advised.to_list(shown_facts.advice, run.kind, stated) if advice else [],
        "warnings": [warning.to_dict() for warning in (*run_facts.ended, *run_facts.warnings)],
    }
    if compared is not None:
        json_object["comparison"] = to_dict(compared)
    if (used := tariff_of(run, tariff)) is not None:
        json_object["cost"] = used.to_dict(*priced(run, results, run_facts), stated)
    return dict(jsonable(json_object))


def _device(device: DeviceInfo, conditions: Mapping[str, Conditions]) -> dict[str, Any]:
    stated = device.to_dict()
    return stated | {"conditions": conditions[device.id]} if device.id in conditions else stated


def json_text(
    runs: Sequence[Run],
    *,
    compared: Sequence[Comparison | None] = (),
    files: Sequence[str] = (),
    **options: Any,
) -> str:
    """One Run as a JSON object, several (at least one) as an array; all that they hold, whatever the detail.

    Each has its side of ``compared``, and these options of ``to_json_object``. Several have their ``files``.
    """
    objects = [to_json_object(run, compared=sides, **options) for run, sides in zip_longest(runs, compared)]
    if len(files) > 1:
        objects = [{"file": file, **stated} for file, stated in zip(files, objects, strict=True)]
    return json.dumps(objects if len(runs) > 1 else objects[0], indent=2, allow_nan=False) + "\n"


def json_schema() -> str:
    """The text of the JSON Schema (draft 2020-12) that the object validates against."""
    return (files("jouletrace.report") / "schema.json").read_text(encoding="utf-8")


def figure(estimate: Estimate, of: str) -> dict[str, Any]:
    """A figure with the measurand ``of`` its interval, and its budget."""
    ends = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "reason": estimate.reason}
    return {**ends, "of": None if estimate.low is None else of, "budget": dict(estimate.budget) or None}


def _sensor(channel: ChannelInfo) -> dict[str, Any]:
    times = {"period": channel.period_s, "window": channel.window_s}
    times |= {"lag": channel.response.get("lag_s"), "delay": channel.delay_s}
    return {
        **{name: getattr(channel, name) for name in ("device", "name", "unit", "source")},
        **{f"{name}_ms": None if seconds is None else seconds * 1e3 for name, seconds in times.items()},
        **{name: getattr(channel, name) for name in ("gapless", "gain_pct", "origin")},
    }


def _model(results: Parts, run_facts: Facts, stated: Stated) -> dict[str, Any]:
    """Figures of the whole, as ``stated`` writes them, and the distribution of latency."""
    there, together = results.whole.figures, run_facts.of_devices
    whole: dict[str, Any] = {
        "latency_ms": _latency(results, run_facts, stated),
        "throughput_per_s": results.get("throughput_per_s").value,
    }
    for name, json_key in _MODEL.items():
        group, _, key = json_key.rpartition(".")
        (whole.setdefault(group, {}) if group else whole)[key] = stated(there.get(name, together.get(name, ABSENT)))
    return whole | {
        "flags": {
            (_PLAIN | _MODEL).get(name, name): list(estimate.flags)
            for name, estimate in there.items()
            if estimate.flags
        },
        "other": {
            name: stated(estimate) for name, estimate in there.items() if name not in (*_PLAIN, *_MODEL, *OF_PARTS)
        },
    }


def _latency(results: Parts, run_facts: Facts, stated: Stated) -> dict[str, Any]:
    """The distribution, or at least the median where single iterations are not in the Run; percentiles as figures."""
    figures: dict[str, Any] = dict(run_facts.latency)
    whole = results.get("latency_s")
    if not figures["n"] and whole.value is not None:
        figures |= {"median": whole.value * 1e3, "n": whole.n}
    reason = None if figures["n"] else whole.reason
    percentiles = {name: stated(estimate.scaled(1e3)) for name, estimate in run_facts.percentiles.items()}
    return {**figures, "reason": reason, "percentiles": percentiles}
