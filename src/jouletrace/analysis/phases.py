"""Figures of the phases of a training step: sums of the operators in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jouletrace.analysis.rows import Figures
from jouletrace.analysis.shared_out import SharedOut
from jouletrace.analysis.sites import Site, shares_of
from jouletrace.experiments.estimate import Estimator
from jouletrace.run import MODEL_UNIT

ORDER = ("data", "forward", "backward", "optimizer", "prefill", "decode")


def add_phases(
    figures: Figures,
    sites: Sequence[Site],
    estimator: Estimator,
    add: Callable[..., Any],
    ids: Iterable[int],
) -> None:
    """Add each phase; nothing where an iteration has but one.

    Args:
        figures: Where to.
        sites: Of the experiment, in all phases.
        estimator: Of its windows.
        add: Adds a cost's figures to a unit: ``add(unit, cost, flags, cost at equal clocks)``.
        ids: Ids to take.
    """
    inside: dict[str, list[Site]] = {}
    for site in sites:
        if site.row["phase"]:
            inside.setdefault(site.row["phase"], []).append(site)
    if len(inside) < 2:
        return
    shared = SharedOut(estimator, sites)
    for id, phase in zip(ids, sorted(inside, key=_place), strict=False):
        figures.unit(id, "phase", phase, MODEL_UNIT, count=1)
        flags = ["pooled"] if any(share < 1 - 1e-9 for share in shares_of(inside[phase]).values()) else []
        add(id, shared.sum(inside[phase]), flags, shared.at_equal_clocks(inside[phase]))


def _place(phase: str) -> int:
    return ORDER.index(phase) if phase in ORDER else len(ORDER)
