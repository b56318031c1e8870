"""The JSON object of schema 2, which ``show --json --schema 2`` writes for one release."""

from __future__ import annotations

from functools import partial
from typing import Any

from jouletrace.analysis.facts import facts_of
from jouletrace.comparing.pairs import Comparison
from jouletrace.report.contract import figure, model, to_json_object
from jouletrace.report.cost import Tariff, priced
from jouletrace.report.divisions import PLACES
from jouletrace.report.older import LISTS
from jouletrace.run import Estimate, Run
from jouletrace.run.header import jsonable
from jouletrace.run.metrics import OF_PARTS
from jouletrace.run.parts import Part, Parts

_FIGURES = ("power_w", "energy_total_j", "energy_active_j")
"""Metrics that each part states as figures in SI units, beside its time and share."""


def to_schema_2(
    run: Run, *, top: int | None = None, compared: Comparison | None = None, tariff: Tariff | None = None
) -> dict[str, Any]:
    """The Run as an object of schema 2; arguments as of ``contract.to_json_object``."""
    results = Parts(run)
    known = facts_of(run, results)
    stated = partial(_stated, results)
    found = to_json_object(run, compared=compared, advice=False)
    found |= {"schema": 2, "device": next(iter(found["devices"]), None), "model": model(results, known, stated)}
    del found["parts"], found["devices"], found["advice"], found["model"]["latency_ms"]["percentiles"]
    found.get("comparison", {}).pop("advice", None)
    for name, level in LISTS.items():
        units = results.units(level) if top is None else results.ranked(level)[:top]
        if level == "phase" and results.gpus and top is None:
            units = units + results.outside()
        if units or level not in ("context", "load", "cause"):
            found[name] = [_part(results, unit, level) for unit in units]
    found["closure"] = {name: stated(results.get(f"closure_{name}")) for name in ("layers", "kernels")}
    found["perturbation"] = stated(results.get("perturbation"))
    found["checks"] = {name: stated(results.get(name)) for name in OF_PARTS if name in results.whole.figures}
    if tariff is not None:
        found["cost"] = tariff.to_dict(*priced(run, results, known), stated)
    return dict(jsonable(found))


def _stated(results: Parts, found: Estimate) -> dict[str, Any]:
    return found.to_dict() | figure(found, results.measurand(found))


def _part(results: Parts, unit: Part, level: str) -> dict[str, Any]:
    return {
        **{name: getattr(unit, name) for name in ("name", "op", "shapes", "module", "count")},
        **({"name": f"{unit.gpu}: {unit.name}"} if unit.gpu and level == "phase" else {}),
        **({"device": unit.gpu} if unit.gpu else {}),
        "time_ms": _stated(results, unit.get("time_s").scaled(1e3)),
        **{PLACES[metric]: _stated(results, unit.get(metric)) for metric in _FIGURES},
        "share": unit.get("share").value,
        "flags": list(dict.fromkeys(flag for one in unit.figures.values() for flag in one.flags)),
        "other": {name: _stated(results, one) for name, one in unit.figures.items() if name not in PLACES},
    }
