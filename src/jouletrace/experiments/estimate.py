"""What each part of a step costs, from the ``windows`` table alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jouletrace.energy.beat import beats
from jouletrace.energy.one_thread import one_thread
from jouletrace.energy.sampling_rate import SamplingRate
from jouletrace.experiments import contrasts
from jouletrace.experiments.arms import DETACH, NULL, REFERENCE, REMOVE, SPIKE, STEP, TOGETHER, Arm
from jouletrace.experiments.levels import Levels, Observed, Weights
from jouletrace.experiments.pacing import CLOCK_TOLERANCE_MHZ, clock_offsets
from jouletrace.run import Estimate


@dataclass(frozen=True)
class Cost:
    """Energy of the board (idle power over the time included) and time, per iteration."""

    energy_j: Estimate
    time_s: Estimate

    def scaled(self, factor: float) -> Cost:
        """So many times as much."""
        return self if factor == 1 else Cost(self.energy_j.scaled(factor), self.time_s.scaled(factor))


@dataclass(frozen=True)
class PartCost:
    """What a part costs in an iteration, all its launches together. Negative values are shown as they are.

    Attributes:
        part: Id of the part.
        cost: In context, as the step runs; under a power cap the marginal cost: what the step saves
            if the part goes, the rest speeding up.
        matched: The same at equal clocks, where a power cap acts; None where none does, and ``cost``
            is both.
        removal, repetition: The two methods that bracket the answer, side by side: at equal
            clocks where a cap acts.
        flags: "methods_disagree" (by more than their difference's interval), "unresolved" (the
            interval holds 0), "clock_not_matched", "beats_with_sensor" (a variant is as long as its samples are apart).
    """

    part: int
    cost: Cost
    matched: Cost | None
    removal: Cost
    repetition: Cost
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spike:
    """Extra copies of a part, recovered.

    Attributes:
        part: Id of the part.
        copies: How many there were.
        recovered: Energy found over energy known from windows of other multiplicity.
        difference_j: Found less known, per iteration.
        passed: Whether the interval of the difference holds 0; None without an interval.
    """

    part: int
    copies: int
    recovered: Estimate
    difference_j: Estimate
    passed: bool | None


@dataclass(frozen=True)
class Additivity:
    """Two parts removed together against each by itself.

    Attributes:
        parts: Their ids.
        residual: Energy of both together less that of each, over the reference's.
        passed: Whether its interval holds 0; None without an interval.
    """

    parts: tuple[int, int]
    residual: Estimate
    passed: bool | None


@dataclass(frozen=True)
class Findings:
    """What an experiment on the parts of a step found.

    Attributes:
        parts: By id, in the order asked for.
        untouched: The user's step.
        reference: The step captured as variants are.
        gaps: Launch and gaps.
        closure: (Parts + gaps, each measured by itself) / untouched, nothing reconciled.
        closure_time: The same of time.
        closure_matched: At equal clocks, over the paced reference less its pause; None without a cap.
        perturbation: Reference / untouched, of energy.
        null: A fresh capture with nothing changed / reference, of energy: 1 but for chance.
        spikes, additivity: Checks.
        resolvable_j: Energy below which a part can't be told from nothing: the typical half-width.
        pause_s: Pause that kept all variants below the power cap; 0 where none acts.
        detuned_s: Pause that kept all variants from beating with the sensor's samples; 0 without one.
        clock_spread_mhz: Largest difference of mean clock between an arm and its reference, among arms
            compared at equal clocks; None where clocks aren't known.
        windows: Windows used.
        lost: Windows without an energy.
        flags: "capped_not_paced", "clock_not_matched", "windows_lost", "windows_unsteady".
    """

    parts: dict[int, PartCost]
    untouched: Cost
    reference: Cost
    gaps: Cost
    closure: Estimate
    closure_time: Estimate
    closure_matched: Estimate | None
    perturbation: Estimate
    null: Estimate
    spikes: tuple[Spike, ...]
    additivity: tuple[Additivity, ...]
    resolvable_j: float | None
    pause_s: float
    detuned_s: float
    clock_spread_mhz: float | None
    windows: int
    lost: int
    flags: tuple[str, ...]


@one_thread
def estimate_parts(windows: pa.Table, parts: Sequence[int]) -> Findings:
    """Everything that the windows of an experiment say; of time alone where no energy is known.

    Args:
        windows: A ``windows`` table whose ``energy_j`` and ``clock_mhz`` are filled; windows of
            other passes may be among them.
        parts: Ids of the parts that make up the step, those in a pool left out. What has no window
            is null with reason "not_measured".
    """
    return Estimator(windows).findings(parts)


class Estimator:
    """Estimates from the windows of one experiment.

    Args:
        windows: As of ``estimate_parts``.
        weights: How often a part counts in the whole for once in the step, by id; once where it isn't in it.
            Costs of parts are of the whole; checks are of the step.
        sampling_s: From one sample of the power sensor to the next, roughly; None where it isn't known.
        sampling: The same as it was measured on this very board.
    """

    def __init__(
        self,
        windows: pa.Table,
        weights: Mapping[int, float] | None = None,
        sampling_s: float | None = None,
        sampling: SamplingRate | None = None,
    ) -> None:
        self._weights = weights or {}
        self.observed = observed = Observed.of(windows)
        self.energy = energy = Levels(observed, observed.energy_j, sampling)
        self.time = time = Levels(observed, observed.time_s)
        self.basis = energy if energy.arms else time
        paced = contrasts.reference(self.basis, paced=True)
        self.pause_ns = paced.spin_ns if paced else 0
        self.clocks = clock_offsets(observed, self.pause_ns > 0)
        plain = any(arm.kind == REFERENCE and not arm.spin_ns for arm in observed.arm)
        self._detuned = self.pause_ns > 0 and not plain
        self._sampling_s = sampling_s

    @property
    def paced(self) -> bool:
        """Whether a power cap acts, and variants were compared at equal clocks too."""
        return self.pause_ns > 0 and not self._detuned

    def sum(self, shares: Mapping[int, float], *, matched: bool = False) -> Cost:
        """What shares of several parts cost together, the covariance between parts in the interval.

        Args:
            shares: Share of each part, by id.
            matched: At equal clocks, where a power cap acts.
        """
        total: Weights | None = {} if shares else None
        for part, share in shares.items():
            weights, _ = contrasts.cost(self.basis, part, matched or self._detuned)
            times = share * self._weights.get(part, 1.0)
            total = None if total is None or weights is None else contrasts.added((1.0, total), (times, weights))
        return self._cost(total, "sum of operators")

    def removed(self, part: int) -> Cost:
        """What the step saves without a part."""
        return self._cost(contrasts.saving(self.basis, part, self._detuned), "removal")

    def findings(self, parts: Sequence[int]) -> Findings:
        """See ``estimate_parts``."""
        reference, step = self._unpaused(REFERENCE), self._unpaused(STEP)
        everything = contrasts.whole(self.basis, parts, self._detuned)
        matched = None
        if self.paced:
            apart = contrasts.whole(self.basis, parts, paced=True)
            matched = self.energy.ratio(apart, contrasts.without_pause(self.basis), "experiment")
        costs = {part: self._part(part) for part in parts}
        spread = max(map(abs, self.clocks.values()), default=None)
        off = spread is not None and spread > CLOCK_TOLERANCE_MHZ
        flags = ["clock_not_matched" if self.pause_ns else "capped_not_paced"] if off else []
        if self.basis.lost:
            flags.append("windows_lost")
        if self.basis.unsteady:
            flags.append("windows_unsteady")
        return Findings(
            parts=costs,
            untouched=self._cost(step),
            reference=self._cost(reference),
            gaps=self._cost(contrasts.gaps(self.basis), "gaps"),
            closure=self.energy.ratio(everything, step, "experiment"),
            closure_time=self.time.ratio(everything, step, "experiment"),
            closure_matched=matched,
            perturbation=self.energy.ratio(reference, step, "experiment"),
            null=self._null(),
            spikes=self._spikes(),
            additivity=self._additivity(),
            resolvable_j=_typical(costs),
            pause_s=self.pause_ns / 1e9 if self.paced else 0.0,
            detuned_s=self.pause_ns / 1e9 if self._detuned else 0.0,
            clock_spread_mhz=spread,
            windows=len(self.observed.arm) - self.basis.lost,
            lost=self.basis.lost,
            flags=tuple(flags),
        )

    def _part(self, part: int) -> PartCost:
        weights, method = contrasts.cost(self.basis, part, self._detuned)
        cost = self._cost(weights, method)
        matched = self._cost(*contrasts.cost(self.basis, part, paced=True)) if self.paced else None
        paced = self.pause_ns > 0
        without = contrasts.removal(self.basis, part, paced)
        more = contrasts.repetition(self.basis, part, paced)
        flags = []
        if without is not None and more is not None:
            apart = self.basis.estimate(contrasts.added((1.0, without), (-1.0, more)), "difference")
            if holds_zero(apart) is False:
                flags.append("methods_disagree")
        if holds_zero(cost.energy_j if self.basis is self.energy else cost.time_s):
            flags.append("unresolved")
        if any(a.part == part and abs(off) > CLOCK_TOLERANCE_MHZ for a, off in self.clocks.items()):
            flags.append("clock_not_matched")
        if self._beats(part):
            flags.append("beats_with_sensor")
        by_removal, by_repetition = self._cost(without, "removal"), self._cost(more, "repetition")
        times = self._weights.get(part, 1.0)
        return PartCost(
            part,
            cost.scaled(times),
            matched.scaled(times) if matched is not None else None,
            by_removal.scaled(times),
            by_repetition.scaled(times),
            tuple(flags),
        )

    def _cost(self, weights: Weights | None, method: str = "experiment") -> Cost:
        return Cost(self.energy.estimate(weights, method), self.time.estimate(weights, method))

    def _beats(self, part: int) -> bool:
        """Whether some variant of it is as long as the sensor's samples are apart; below a cap pauses are split."""
        if self.paced or self.basis is not self.energy:
            return False
        seen = self.observed
        own = [arm for arm in self.basis.arms if arm.part == part and arm.kind in (REMOVE, DETACH)]
        rows = [np.flatnonzero([other == arm for other in seen.arm]) for arm in own]
        return any(beats(float(seen.time_s[r].mean()), self._sampling_s, float(seen.length_s[r].mean())) for r in rows)

    def _unpaused(self, kind: str) -> Weights | None:
        """An arm as the step runs: less its pause where everything pauses."""
        return contrasts.without_pause(self.basis, kind) if self._detuned else {Arm(kind): 1.0}

    def _null(self) -> Estimate:
        null, reference = {Arm(NULL, spin_ns=self.pause_ns): 1.0}, {Arm(REFERENCE, spin_ns=self.pause_ns): 1.0}
        return self.basis.ratio(null, reference, "experiment")

    def _spikes(self) -> tuple[Spike, ...]:
        found = []
        for arm in contrasts.of_kind(self.basis, SPIKE):
            copies = arm.multiplicity - 1
            known = contrasts.repetition(self.basis, arm.part or 0, arm.spin_ns > 0)
            spike = contrasts.over_reference(self.basis, arm)
            if known is None or spike is None:
                continue
            recovered = self.basis.ratio(spike, contrasts.added((copies, known)), "spike")
            difference = self.basis.estimate(contrasts.added((1.0, spike), (-copies, known)), "spike")
            found.append(Spike(arm.part or 0, copies, recovered, difference, holds_zero(difference)))
        return tuple(found)

    def _additivity(self) -> tuple[Additivity, ...]:
        found = []
        for arm in contrasts.of_kind(self.basis, TOGETHER):
            first, second = arm.part or 0, arm.partner or 0
            paced = arm.spin_ns > 0
            both, base = contrasts.over_reference(self.basis, arm), contrasts.reference(self.basis, paced)
            one, other = (contrasts.saving(self.basis, part, paced) for part in (first, second))
            if both is None or base is None or one is None or other is None:
                continue
            left = contrasts.added((-1.0, both), (-1.0, one), (-1.0, other))
            residual = self.basis.ratio(left, {base: 1.0}, "additivity")
            found.append(Additivity((first, second), residual, holds_zero(residual)))
        return tuple(found)


def holds_zero(estimate: Estimate) -> bool | None:
    """Whether zero lies in the interval; None without one."""
    if estimate.low is None or estimate.high is None:
        return None
    return estimate.low <= 0 <= estimate.high


def _typical(costs: dict[int, PartCost]) -> float | None:
    """The middle one of the half-widths of parts."""
    widths = [half for cost in costs.values() if (half := cost.cost.energy_j.half_width) is not None]
    return float(np.median(widths)) if widths else None
