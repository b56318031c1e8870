"""Energy by counted work: FLOPs by torch's formulas, and bytes of inputs and outputs, of operators in an iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from jouletrace.run import Estimate
from jouletrace.run.metrics import WORK
from jouletrace.run.tables import UnitRow

Work = tuple[float, float]
"""FLOPs, 0 for operators for which torch has no formula; and bytes."""


def summed(sites: Iterable[UnitRow]) -> Work:
    """The work of some sites together; nothing where none was counted."""
    counted = [(row["flops"] or 0.0, row["bytes"] or 0.0) for row in sites]
    return sum(flops for flops, _ in counted), sum(moved for _, moved in counted)


def work_of(units: Collection[UnitRow]) -> dict[int, Work]:
    """The work of each operator by its number, and of a kernel that is all that its operator launches."""
    sites: dict[int | None, list[UnitRow]] = {}
    for row in units:
        if row["level"] == "site":
            sites.setdefault(row["parent"], []).append(row)
    found = {row["id"]: summed(sites[row["id"]]) for row in units if row["id"] in sites}
    kernels = [row for row in units if row["level"] == "kernel" and row["parent"] in found]
    of_one, counts = Counter(row["parent"] for row in kernels), {row["id"]: row["count"] for row in units}
    alone = (row for row in kernels if of_one[row["parent"]] == 1 and row["count"] == counts[row["parent"] or 0])
    return found | {row["id"]: found[row["parent"] or 0] for row in alone}


def efficiency(work: Work, energy: Estimate) -> dict[str, Estimate]:
    """The work and its energy by each of its amounts as figures by metric; none where nothing was counted."""
    if not any(work):
        return {}
    found: dict[str, Estimate] = {}
    for (metric, each), amount in zip(WORK.items(), work, strict=True):
        known = Estimate(amount, None, None, 1, "counted") if amount else Estimate.null("no_formula", "counted")
        found |= {metric: known, each: replace(energy, budget={}).scaled(1 / amount) if amount else known}
    return found
