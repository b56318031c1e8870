"""Figures of the phases of a training step: sums of the operators in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jouletrace.analysis.rows import Figures
from jouletrace.analysis.sites import Site
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
        sites: Of the experiment.
        estimator: Of its windows.
        add: Adds a cost's figures to a unit: ``add(unit, cost, flags, cost at equal clocks)``.
        ids: Ids to take.
    """
    shares: dict[str, dict[int, float]] = {}
    for site in sites:
        if site.row["phase"]:
            of_phase = shares.setdefault(site.row["phase"], {})
            of_phase[site.part] = of_phase.get(site.part, 0.0) + site.share
    if len(shares) < 2:
        return
    for id, phase in zip(ids, sorted(shares, key=_place), strict=False):
        figures.unit(id, "phase", phase, MODEL_UNIT, count=1)
        matched = estimator.sum(shares[phase], matched=True) if estimator.paced else None
        flags = ["pooled"] if any(share < 1 - 1e-9 for share in shares[phase].values()) else []
        add(id, estimator.sum(shares[phase]), flags, matched)


def _place(phase: str) -> int:
    return ORDER.index(phase) if phase in ORDER else len(ORDER)
