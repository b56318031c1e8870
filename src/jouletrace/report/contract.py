"""The JSON object of a Run: the contract with other programs, described by ``schema.json``.

Additions are allowed within schema 2; nothing is renamed or removed but in "workload", which is as in the Run. Figures
are ``{"value", "low", "high", "n", "method", "reason", "of", "budget"}`` with a 95 % interval of the measurand "of";
the distribution of latency, throughput and shares are plain numbers. ``upgraded`` reads schema 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from jouletrace.analysis.facts import Facts, facts_of
from jouletrace.compare.pairs import Comparison
from jouletrace.errors import BadInputError
from jouletrace.report import trust
from jouletrace.report.comparison import to_dict
from jouletrace.report.cost import Tariff, priced
from jouletrace.run import ChannelInfo, Estimate, Run
from jouletrace.run.header import jsonable
from jouletrace.run.metrics import OF_PARTS
from jouletrace.run.parts import RUN, Part, Parts

SCHEMA = 2

_FIGURE = {"value", "low", "high", "n", "method", "reason"}
_RENAMED = {"sm": "sm_reported", "sm_counted": "sm_measured"}
"""Clocks of schema 1."""

_MODEL = {
    "latency_s": "latency_ms",
    "throughput_per_s": "throughput_per_s",
    "power_w": "power_w",
    "energy_total_j": "energy_j.total",
    "energy_active_over_context_idle_j": "energy_j.active_over_context_idle",
    "energy_active_over_deep_idle_j": "energy_j.active_over_deep_idle",
    "baseline_context_idle_w": "baseline_w.context_idle",
    "baseline_deep_idle_w": "baseline_w.deep_idle",
    "counter_ratio": "counter_ratio",
}
"""Metrics of the model and where the object has them, under which names flags are given too."""


def to_json_object(
    run: Run, *, top: int | None = None, compared: Comparison | None = None, tariff: Tariff | None = None
) -> dict[str, Any]:
    """The Run as a JSON-ready object.

    Args:
        run: The Run.
        top: Keep only so many phases, layers, kernels, ranges and devices each, the costliest first.
        compared: What a Run of ``ab`` says of its two sides: the object has it as "comparison".
        tariff: What a kWh costs and emits: the object has "cost".

    Returns:
        An object that ``schema.json`` describes and validates.
    """
    results = Parts(run)
    known = facts_of(run, results)

    def parts(level: str) -> list[dict[str, Any]]:
        units = results.units(level) if top is None else results.ranked(level)[:top]
        if level == "phase" and results.gpus and top is None:
            units = units + results.outside()
        return [_part(results, unit, level) for unit in units]

    found = {
        "schema": SCHEMA,
        "kind": run.kind,
        "complete": run.complete,
        "workload": run.workload,
        "device": run.devices[0].to_dict() if run.devices else None,
        "simulated": run.simulated,
        "trust": trust.to_dict(known.checks),
        "model": _model(results, known),
        "phases": parts("phase"),
        "lengths": parts("length"),
        "layers": parts("layer"),
        "operators": parts("op"),
        "kernels": parts("kernel"),
        "ranges": parts("range"),
        "devices": parts("device"),
        "closure": {
            "layers": _e(results.get("closure_layers")),
            "kernels": _e(results.get("closure_kernels")),
        },
        "perturbation": _e(results.get("perturbation")),
        "checks": {name: _e(results.get(name)) for name in OF_PARTS if name in results.whole.figures},
        "sensors": [_sensor(channel) for channel in run.channels],
        "conditions": known.conditions,
        "warnings": [warning.to_dict() for warning in (*known.ended, *known.warnings)],
    }
    for name, level in (("contexts", "context"), ("loads", "load"), ("idle_causes", "cause")):
        if results.units(level):
            found[name] = parts(level)
    if compared is not None:
        found["comparison"] = to_dict(compared)
    if tariff is not None:
        found["cost"] = tariff.to_dict(*priced(run, results, known), known.gain)
    return dict(_stated(jsonable(found), results.measurand()))


def upgraded(found: dict[str, Any]) -> dict[str, Any]:
    """An object of schema 1 as one of schema 2; one of schema 2 as it is.

    Raises:
        BadInputError: If it is of another schema.
    """
    if found.get("schema") == SCHEMA:
        return found
    if found.get("schema") != 1:
        raise BadInputError(f"schema {found.get('schema')!r}: this jouletrace reads 1 and {SCHEMA}")
    conditions = dict(found.get("conditions") or {})
    clocks = conditions.get("clocks_mhz")
    if isinstance(clocks, dict):
        known = {"sm_reported": None, "sm_measured": None}
        conditions["clocks_mhz"] = {**known, **{_RENAMED.get(name, name): value for name, value in clocks.items()}}
    return dict(_stated({**found, "schema": SCHEMA, "conditions": conditions}, RUN))


def _stated(found: Any, of: str) -> Any:
    """The same with each figure's measurand, and room for its budget."""
    if isinstance(found, list):
        return [_stated(one, of) for one in found]
    if not isinstance(found, dict):
        return found
    if set(found) - {"of", "budget"} == _FIGURE:
        known = None if found["low"] is None else found.get("of", of)
        return {**found, "of": known, "budget": found.get("budget")}
    # a comparison has a schema of its own
    return {name: one if name == "comparison" else _stated(one, of) for name, one in found.items()}


def json_text(
    runs: Sequence[Run],
    *,
    top: int | None = None,
    compared: Sequence[Comparison | None] = (),
    tariff: Tariff | None = None,
) -> str:
    """One Run as a JSON object, several (at least one) as an array; all that they hold, whatever the detail."""
    found = [to_json_object(run, top=top, compared=one, tariff=tariff) for run, one in zip_longest(runs, compared)]
    return json.dumps(found if len(runs) > 1 else found[0], indent=2, allow_nan=False) + "\n"


def json_schema() -> str:
    """The text of the JSON Schema (draft 2020-12) that the object validates against."""
    return (files("jouletrace.report") / "schema.json").read_text(encoding="utf-8")


def _sensor(channel: ChannelInfo) -> dict[str, Any]:
    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e3

    return {
        "device": channel.device,
        "name": channel.name,
        "unit": channel.unit,
        "source": channel.source,
        "period_ms": ms(channel.period_s),
        "window_ms": ms(channel.window_s),
        "lag_ms": ms(channel.response.get("lag_s")),
        "delay_ms": ms(channel.delay_s),
        "gapless": channel.gapless,
        "gain_pct": channel.gain_pct,
        "origin": channel.origin,
    }


def _model(results: Parts, known: Facts) -> dict[str, Any]:
    there = results.whole.figures
    found: dict[str, Any] = {
        "latency_ms": _latency(results, known),
        "throughput_per_s": results.get("throughput_per_s").value,
    }
    for name, place in list(_MODEL.items())[2:]:
        group, _, key = place.rpartition(".")
        (found.setdefault(group, {}) if group else found)[key] = _with_measurand(results, results.get(name))
    return found | {
        "flags": {_MODEL.get(name, name): list(figure.flags) for name, figure in there.items() if figure.flags},
        "other": _other(results, results.whole, {*_MODEL, *OF_PARTS}),
    }


def _latency(results: Parts, known: Facts) -> dict[str, Any]:
    """The distribution, or at least the median where single iterations are not in the Run."""
    figures: dict[str, Any] = dict(known.latency)
    stated = results.get("latency_s")
    if not figures["n"] and stated.value is not None:
        figures |= {"median": stated.value * 1e3, "n": stated.n}
    reason = None if figures["n"] else stated.reason
    return {**figures, "reason": reason}


_PART_METRICS = ("time_s", "power_w", "energy_total_j", "energy_active_j", "share")


def _part(results: Parts, unit: Part, level: str) -> dict[str, Any]:
    flags = dict.fromkeys(flag for figure in unit.figures.values() for flag in figure.flags)
    named = {"name": f"{unit.gpu}: {unit.name}"} if unit.gpu and level == "phase" else {}
    return {
        **{name: getattr(unit, name) for name in ("name", "op", "shapes", "module", "count")},
        **named,
        **({"device": unit.gpu} if unit.gpu else {}),
        "time_ms": _e(unit.get("time_s").scaled(1e3)),
        "power_w": _e(unit.get("power_w")),
        "energy_j": _e(unit.get("energy_total_j")),
        "energy_active_j": _e(unit.get("energy_active_j")),
        "share": unit.get("share").value,
        "flags": list(flags),
        "other": _other(results, unit, set(_PART_METRICS)),
    }


def _other(results: Parts, unit: Part, known: set[str]) -> dict[str, Any]:
    """Metrics that have no place of their own, in SI units by name: nothing is left out."""
    return {name: _with_measurand(results, f) for name, f in unit.figures.items() if name not in known}


def _e(found: Estimate) -> dict[str, Any]:
    """A figure with its budget."""
    return found.to_dict() | {"budget": dict(found.budget) or None}


def _with_measurand(results: Parts, found: Estimate) -> dict[str, Any]:
    return _e(found) | {"of": results.measurand(found)}
