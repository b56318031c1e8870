"""JSON objects of schemas 1 and 2 as one of schema 3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.report.contract import SCHEMA, figure
from jouletrace.report.divisions import BASELINES, LEVELS, PLACES, as_json, with_own
from jouletrace.run import Estimate
from jouletrace.run.parts import RUN, Part, Row
from jouletrace.run.paths import PathStep
from jouletrace.run.recording_names import BEFORE, IDLE_NAME

LISTS = {
    **{"phases": "phase", "lengths": "length", "layers": "layer", "operators": "op", "kernels": "kernel"},
    **{"ranges": "range", "devices": "device", "contexts": "context", "loads": "load", "idle_causes": "cause"},
}
"""Lists of schemas 1 and 2, and the level of their parts."""

_CLOCKS = {"sm": "sm_reported", "sm_counted": "sm_measured"}
"""Clocks of schema 1."""


def upgraded(json_object: dict[str, Any]) -> dict[str, Any]:
    """An object of schema 1 or 2 as one of schema 3; one of schema 3 as it is.

    What the older one doesn't say is null or absent: phases on the paths of operators, the time of the whole.

    Raises:
        BadInputError: If it is of another schema, or not as its own says.
    """
    schema = json_object.get("schema") if isinstance(json_object, dict) else None
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise BadInputError(f"schema {schema!r}: this jouletrace reads objects of 1 to {SCHEMA}")
    if schema == SCHEMA:
        return json_object
    try:
        return _upgraded(json_object)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInputError(f"an object that is not as schema {schema} says: {type(error).__name__} {error}") from None


def _upgraded(old_object: dict[str, Any]) -> dict[str, Any]:
    """An object of schema 1 or 2 as one of schema 3."""
    gone = {"device", "closure", "perturbation", "comparison", *LISTS}
    now = json.loads(
        json.dumps({key: value for key, value in old_object.items() if key not in gone}), object_hook=_figure
    )
    if isinstance(clocks := (now.get("conditions") or {}).get("clocks_mhz"), dict):
        no_clocks: dict[str, Any] = {"sm_reported": None, "sm_measured": None}
        now["conditions"]["clocks_mhz"] = no_clocks | {_CLOCKS.get(name, name): value for name, value in clocks.items()}
    device = old_object.get("device")
    only = None if device is None or old_object.get("devices") else device["id"]
    whole = {"time_ms": {}, "energy_j": now["model"]["energy_j"]["total"], "power_w": now["model"]["power_w"]}
    rows = [(level, old) for name, level in LISTS.items() for old in old_object.get(name, [])]
    operators, ranks = {_key(old) for level, old in rows if level == "op"}, {old.get("device") for _, old in rows}
    parts: dict[str, list[dict[str, Any]]] = {}
    for level, old in [("model", {**whole, "module": only}), *rows]:
        if level != "kernel" or _key(old) not in operators:  # both lists have what has no kernels
            parts.setdefault(LEVELS.get(level, "whole"), []).extend(_rows(level, old, ranks))
    levels = {name: Estimate.from_dict(now["model"]["baseline_w"][name.replace(" ", "_")]) for name in BASELINES}
    idle = [
        Row((PathStep("level", n),), {"power_w": power})
        for n, power in levels.items()
        if power.reason != "not_measured"
    ]
    parts |= {"idle": [as_json(row, lambda estimate: figure(estimate, RUN)) for row in idle]} if idle else {}
    closures = {
        f"closure_{key}": _figure(closure) for key, closure in old_object.get("closure", {}).items() if closure["value"]
    }
    now |= {"comparison": old_object["comparison"]} if "comparison" in old_object else {}
    checks = closures | now.get("checks", {})
    return {**now, "schema": SCHEMA, "devices": [device] if device else [], "parts": parts, "checks": checks}


def _key(old: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(old.get(name) for name in ("name", "op", "shapes", "module", "device"))


def _rows(level: str, old: Mapping[str, Any], ranks: set[Any]) -> list[dict[str, Any]]:
    """A row, and what a module runs itself; a device whose kernels were recorded is named as on their paths."""
    gpu = old.get("device", "")
    name = str(old.get("name") or "").removeprefix(f"{gpu}: ")
    named: dict[str, Any] = {key: old.get(key) for key in ("op", "shapes", "module", "count")}
    path = Part(0, None, "op" if name in (IDLE_NAME, BEFORE) else level, name, gpu=gpu, **named).path
    if level == "device" and (rank := name.partition(":")[0]) in ranks:
        path = (PathStep("device", rank),)
    stated = {**old.get("other", {}), **{metric: old[key] for metric, key in PLACES.items() if key in old}}
    stated["share"] = {"value": old.get("share"), "flags": ",".join(old.get("flags", []))}
    figures = {metric: Estimate.from_dict(value) for metric, value in stated.items()}
    figures["time_s"] = Estimate.from_dict(old["time_ms"]).scaled(1e-3)
    of = next((value["of"] for value in stated.values() if value.get("of")), RUN)
    device = old["module"] if level in ("model", "device") else None
    rows = with_own(Row(path, figures, named["count"], device))
    return [as_json(row, lambda estimate: figure(estimate, of)) for row in rows]


def _figure(old: dict[str, Any]) -> dict[str, Any]:
    """A figure as one of schema 3; any other object as it is."""
    return figure(Estimate.from_dict(old), old.get("of") or RUN) if {"value", "low", "n"} <= old.keys() else old
