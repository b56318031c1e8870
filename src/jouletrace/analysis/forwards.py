"""What operators of one forward of each kind are in a whole generation.

Experiments change a step of a few forwards: the prompt's, and one token's at some lengths of the cache. Which of
them an operator is called in is in the number of its module's call; how often that forward counts in a generation
is stated in the Run. An operator with the same shapes in several of them takes the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jouletrace.run import Run

Row = dict[str, Any]


def weigh(run: Run, rows: Sequence[Row]) -> None:
    """Give each operator, and each place of it, its phase, its weight and its count in a whole generation.

    Args:
        run: Nothing is done unless it generates tokens.
        rows: Of the ``units`` table; changed in place, to the same if they were given before.
    """
    told = run.workload.get("generation")
    if not told:
        return
    forwards = _forwards(told)
    everywhere = sum(weight for _, weight in forwards) / len(forwards)
    sites: dict[int, list[Row]] = {}
    for row in rows:
        if row["level"] == "site":
            number = int((row["call"] or "0").partition(".")[0])
            known = 0 < number <= len(forwards)
            # what no module calls is taken to be called alike in every forward
            row["phase"], row["weight"] = forwards[number - 1] if known else (None, everywhere)
            sites.setdefault(row["parent"], []).append(row)
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    kernels: dict[int, list[Row]] = {}
    for row in rows:
        if row["level"] == "kernel":
            kernels.setdefault(row["parent"], []).append(row)
    for id, own in sites.items():
        launches = sum(row["count"] for row in own)
        op, before = ops[id], ops[id]["count"]
        op["weight"] = sum(row["count"] * row["weight"] for row in own) / launches
        op["count"] = round(launches * op["weight"])
        phases = {row["phase"] for row in own}
        op["phase"] = phases.pop() if len(phases) == 1 else None
        for row in kernels.get(id, []):
            row["count"], row["phase"] = round(row["count"] / max(before, 1) * op["count"]), op["phase"]
    for pool in {row["parent"] for row in ops.values()} & set(ops):
        members = [row for row in ops.values() if row["parent"] == pool]
        ops[pool]["count"], ops[pool]["phase"] = sum(row["count"] for row in members), None


def gaps_weight(run: Run) -> float:
    """How often what is left of the experiment's step without any operator counts in a whole generation.

    A graph is launched once, as is a generation that is a graph; a host launches every forward.
    """
    told, step = run.workload.get("generation"), run.workload.get("parts") or {}
    if not told or step.get("mode") in ("graph", "simulated"):
        return 1.0
    weights = [weight for _, weight in _forwards(told)]
    return sum(weights) / len(weights)


def _forwards(told: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Phase and weight of each forward of the experiment's step, in order."""
    return [(piece["phase"], float(piece["weight"])) for piece in told["segments"] if piece["length"] is not None]


def part_weights(rows: Sequence[Row], traced: Mapping[int, float]) -> dict[int, float]:
    """How often what an experiment found of each part counts; those that count once are left out.

    Args:
        rows: The ``units`` table, weighed.
        traced: Seconds in each operator in a whole generation, by id, as far as traced; by which a pool's
            members are weighed against each other.
    """
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    members: dict[int, list[Row]] = {}
    for id, row in ops.items():
        if row.get("weight") is not None:
            members.setdefault(row["parent"] if row["parent"] in ops else id, []).append(row)
    found = {}
    for part, own in members.items():
        seconds = {row["id"]: traced.get(row["id"], 0.0) for row in own}
        if not sum(seconds.values()):
            seconds = {row["id"]: float(row["count"]) for row in own}
        alone = sum(seconds[row["id"]] / row["weight"] for row in own)
        if alone > 0:
            found[part] = sum(seconds.values()) / alone
    return found
