"""Energy and rates by counted work of operators: FLOPs by torch's formulas, and bytes of inputs and outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from jouletrace.run import Estimate
from jouletrace.run.forms import BestRates
from jouletrace.run.metrics import BEST, WORK
from jouletrace.run.roles import multiplied_in
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
    works = {row["id"]: summed(sites[row["id"]]) for row in units if row["id"] in sites}
    kernels = [row for row in units if row["level"] == "kernel" and row["parent"] in works]
    of_one, counts = Counter(row["parent"] for row in kernels), {row["id"]: row["count"] for row in units}
    alone = (row for row in kernels if of_one[row["parent"]] == 1 and row["count"] == counts[row["parent"] or 0])
    return works | {row["id"]: works[row["parent"] or 0] for row in alone}


def formats_of(units: Iterable[UnitRow]) -> dict[int | None, str]:
    """The number format in which an operator or kernel multiplies, by its number; none of those that use several."""
    formats = defaultdict[int | None, set[str]](set)
    for row in units:
        sums = "splitKreduce" in row["name"]  # the parts of a product, in a format of its own
        if (
            row["level"] == "kernel"
            and not sums
            and (name := multiplied_in(row["name"], row["op"] or "", row["shapes"] or ""))
        ):
            for unit in {row["id"], row["parent"]}:
                formats[unit].add(name)
    return {unit: next(iter(names)) for unit, names in formats.items() if len(names) == 1}


def efficiency(
    work: Work, energy: Estimate, seconds: float = 0.0, rates: BestRates | None = None, number_format: str = ""
) -> dict[str, Estimate]:
    """The work, its energy by each of its amounts, and its rates as shares of the best ones, by metric.

    Args:
        work: It; where nothing was counted, there are no figures.
        energy: That it took, J.
        seconds: That it took.
        rates: The best ones of its GPU; without these there are no shares.
        number_format: In which its FLOPs are.
    """
    if not any(work):
        return {}
    figures: dict[str, Estimate] = {}
    for (metric, each), amount in zip(WORK.items(), work, strict=True):
        counted = Estimate(amount, None, None, 1, "counted") if amount else Estimate.null("no_formula", "counted")
        figures |= {metric: counted, each: replace(energy, budget={}).scaled(1 / amount) if amount else counted}
    if rates is None:
        return figures
    tops = (number_format, rates.get("flops_per_s", {}).get(number_format)), ("copy", rates.get("bytes_per_s"))
    for (share, best), amount, (method, top) in zip(BEST.items(), work, tops, strict=True):
        if amount and top and seconds:
            figures[share], figures[best] = (
                Estimate(number, None, None, 1, method) for number in (amount / seconds / top, top)
            )
        else:
            figures[share] = Estimate.null("no_best_rate" if amount else "no_formula", method)
    return figures
