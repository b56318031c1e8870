"""What sharing out a part by time leaves open: a second of one kind of operator costs more than one of another.

Of a part of energy E, in which kind k of operator has the share b_k of the time, ∑ b_k = 1, a row has x_k of it, in all
X = ∑ x_k. If a second of kind k costs 1 + e_k of the mean, with e_k of mean 0 and standard deviation σ, the row's
share of the energy is, to first order in e_k,

    ∑ x_k (1 + e_k) / ∑ b_k (1 + e_k)  ≈  X + ∑ (x_k - X b_k) e_k

so its variance is (σ E)² ∑ (x_k - X b_k)²: none where the row is made as the part is, as one of several equal layers or
all of the part. A kind's e_k is taken to be the same in all parts: their terms are added by kind, then squared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from jouletrace.analysis.sites import Kind, Site, shares_of
from jouletrace.energy.interval import widened
from jouletrace.experiments.estimate import Cost
from jouletrace.run import Estimate

ENERGY_SPREAD = 0.4
"""How much energies per traced second of different kinds of operators differ: standard deviation over mean.

From experiments on H100s, of kinds (operator and shapes) known to 25 % by themselves: 0.38, 0.38 and 0.39 in three runs
of DeiT-B, fp16, batch 1, below the power cap (7 or 8 kinds, 180 W of a norm to 510 W of a product). Over times in
context 0.41 to 0.42, and 0.41 by the windows in ``tests/data/h100_states.npz``.
"""

TIME_SPREAD = 0.12
"""The same of times in context per traced second; at a power cap of energies too, which there are the cap times a time.

In the same runs 0.11 to 0.12; at the cap, of DeiT-B at batch 64, 0.12 to 0.13 in three runs
(``recorded/deit-b-64-kernels-h100.zip`` is one), of BERT-L 0.08.
"""

LAUNCH_SPREAD = 1.5
"""The same of energies and times per launch, by which is shared out what wasn't traced: 0.7 to 2.0 in the same runs."""

_ROUNDING = 1e-9


class Costs(Protocol):
    """What parts cost: an ``Estimator`` of windows, or figures that were ``Stated``."""

    @property
    def paced(self) -> bool:
        """Whether a power cap acts, and costs at equal clocks are known too."""
        ...

    def sum(self, shares: Mapping[int, float], *, matched: bool = False) -> Cost:
        """What shares of several parts, by id, cost together; ``matched``: at equal clocks."""
        ...


class Stated:
    """What parts cost by their figures, each by itself: how errors of several go together isn't in figures.

    Args:
        get: A figure by id of the part and metric.
        paced: Whether a power cap acts, and costs at equal clocks were stated too.
    """

    def __init__(self, get: Callable[[int, str], Estimate], paced: bool) -> None:
        self._get = get
        self.paced = paced

    def sum(self, shares: Mapping[int, float], *, matched: bool = False) -> Cost:
        """What a share of one part costs."""
        ((part, share),) = shares.items()
        energy, time = ("energy_matched_j", "time_matched_s") if matched else ("energy_total_j", "time_s")
        return Cost(self._get(part, energy), self._get(part, time)).scaled(share)


class SharedOut:
    """Costs of shares of parts, with what sharing out leaves open in their intervals.

    Args:
        costs: Of the parts.
        sites: All that the parts are shared out to.
    """

    def __init__(self, costs: Costs, sites: Iterable[Site]) -> None:
        self._costs = costs
        self._made: dict[int, dict[Kind, float]] = {}
        for site in sites:
            # As the experiment ran it, which is once for what counts many times in a whole generation.
            kinds = self._made.setdefault(site.part, {})
            kinds[site.kind] = kinds.get(site.kind, 0.0) + site.share / site.weight
        for kinds in self._made.values():
            whole = sum(kinds.values())
            kinds.update({kind: share / whole for kind, share in kinds.items()})
        self._wholes: dict[tuple[int, bool], Cost] = {}

    def sum(self, inside: Sequence[Site], *, matched: bool = False) -> Cost:
        """What some sites cost together.

        Args:
            inside: The sites, each once.
            matched: At equal clocks, where a power cap acts.
        """
        cost = self._costs.sum(shares_of(inside), matched=matched)
        capped = self._costs.paced and not matched
        energy_j: dict[Kind, float] = {}
        time_s: dict[Kind, float] = {}
        for part, kind, share, traced in self._unlike(inside):
            whole = self._whole(part, matched)
            of_time = TIME_SPREAD if traced else LAUNCH_SPREAD
            of_energy = ENERGY_SPREAD if traced and not capped else of_time
            energy_j[kind] = energy_j.get(kind, 0.0) + of_energy * share * (whole.energy_j.value or 0.0)
            time_s[kind] = time_s.get(kind, 0.0) + of_time * share * (whole.time_s.value or 0.0)
        return Cost(_open(cost.energy_j, energy_j.values()), _open(cost.time_s, time_s.values()))

    def at_equal_clocks(self, inside: Sequence[Site]) -> Cost | None:
        """The same at equal clocks; None where no power cap acts."""
        return self.sum(inside, matched=True) if self._costs.paced else None

    def _unlike(self, inside: Sequence[Site]) -> list[tuple[int, Kind, float, bool]]:
        """Parts and kinds of which the sites have more or less than their share of the part says, and by how much."""
        has: dict[int, dict[Kind, float]] = {}
        traced = {}
        for site in inside:
            kinds = has.setdefault(site.part, {})
            kinds[site.kind] = kinds.get(site.kind, 0.0) + site.share
            traced[site.part] = site.traced
        found = []
        for part, kinds in has.items():
            share = sum(kinds.values())
            apart = {kind: kinds.get(kind, 0.0) - share * made for kind, made in self._made[part].items()}
            found += [(part, kind, more, traced[part]) for kind, more in apart.items() if abs(more) > _ROUNDING]
        return found

    def _whole(self, part: int, matched: bool) -> Cost:
        if (part, matched) not in self._wholes:
            self._wholes[part, matched] = self._costs.sum({part: 1.0}, matched=matched)
        return self._wholes[part, matched]


def _open(estimate: Estimate, by_kind: Iterable[float]) -> Estimate:
    """With independent standard uncertainties in its interval, if it has one."""
    sd = math.hypot(*by_kind)
    return widened(estimate, sd) if sd > 0 and estimate.half_width is not None else estimate
