"""From windows to what an iteration of each arm costs, and to any combination of arms with its interval.

Every figure of an experiment is a sum of arms' costs with weights, or a ratio of two such sums.
Here is the one place that puts an interval on them, with all covariances in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.energy.beat import LONG, seen_variance
from jouletrace.energy.interval import LEVEL
from jouletrace.energy.quantiles import student
from jouletrace.energy.sampling_rate import SamplingRate
from jouletrace.experiments.alias import Alias, alias_of
from jouletrace.experiments.arms import FRESH, GAPS, NULL, PACE, REFERENCE, SCREEN, STEP, Arm
from jouletrace.experiments.mixed import Fit, fit
from jouletrace.experiments.pieces import pieces
from jouletrace.experiments.pinned import Pinned, pin
from jouletrace.experiments.steady import Stretches, stretches
from jouletrace.run import Estimate

Floats = NDArray[np.float64]
Weights = Mapping[Arm, float]
"""A sum over arms: joules (or seconds) per iteration of each times its weight."""


@dataclass(frozen=True)
class Observed:
    """The windows of an experiment on parts.

    Attributes:
        arm: Arm of each window, length n.
        block: Block of each, shape (n,).
        middle_s: Middle of each in seconds from the first one's, shape (n,).
        energy_j, time_s: Per iteration, NaN where there is none, shape (n,).
        length_s: Seconds of each window, shape (n,).
        clock_mhz: Mean clock as the driver tells it, NaN where unknown, shape (n,).
        counted_mhz: The same by the device's cycle counters.
    """

    arm: list[Arm]
    block: NDArray[np.int64]
    middle_s: Floats
    energy_j: Floats
    time_s: Floats
    length_s: Floats
    clock_mhz: Floats
    counted_mhz: Floats

    @cached_property
    def stretches(self) -> Stretches:
        """In which stretch of time, with one state of the board, each window lies."""
        return stretches(self.arm, self.block, self.middle_s, self.time_s, self.energy_j, self.counted_mhz)

    @property
    def cost(self) -> Floats:
        """What experiments are planned by: energy, or time where no energy is known."""
        return self.energy_j if bool(np.isfinite(self.energy_j).any()) else self.time_s

    @classmethod
    def of(cls, windows: pa.Table) -> Self:
        """From a ``windows`` table; windows of other passes are passed over."""
        columns = [windows[name].to_pylist() for name in ("variant", "unit", "multiplicity")]
        read = [Arm.read(*row) for row in zip(*columns, strict=True)]
        rows = [i for i, arm in enumerate(read) if arm and arm.kind not in (SCREEN, PACE)]
        table = windows.take(pa.array(rows, pa.int64()))
        start, end = (table[name].to_numpy() for name in ("start_ns", "end_ns"))
        # Nanoseconds since the epoch don't fit a float: the origin goes while they are whole.
        middle = (start + (end - start) // 2 - (start[0] if len(start) else 0)) / 1e9
        number = {
            name: table[name].cast(pa.float64()).fill_null(math.nan).to_numpy()
            for name in ("block", "replays", "energy_j", "clock_mhz", "counted_mhz")
        }
        return cls(
            [arm for i in rows if (arm := read[i]) is not None],
            np.nan_to_num(number["block"]).astype(np.int64),
            middle,
            number["energy_j"] / number["replays"],
            (end - start) / 1e9 / number["replays"],
            (end - start) / 1e9,
            number["clock_mhz"],
            number["counted_mhz"],
        )


@dataclass(frozen=True)
class _Stratum:
    """Arms that are fitted together."""

    index: dict[Arm, int]
    fit: Fit
    value: Floats
    count: NDArray[np.intp]
    offset_variance: float
    """Of what all fresh captures share: by how much the null experiment misses beyond its own noise."""
    pin_variance: float
    """Of each arm held by a power cap: what its mean power may differ from the others' does to it."""
    pinned: frozenset[Arm]
    alias: Alias


class Levels:
    """What an iteration of each arm costs.

    Windows with a pause, without one, and those of launch alone are fitted apart: their noise differs.

    Args:
        observed: The windows.
        values: Cost per iteration of each window, shape (n,); those that are NaN or not positive are left out.
        sampling: Of energies: how the sensor samples, where that was measured.

    Attributes:
        lost: Windows without a value.
        unsteady: Windows beside which the board changed (``experiments.steady``): they count for little.
    """

    def __init__(self, observed: Observed, values: Floats, sampling: SamplingRate | None = None) -> None:
        known = np.isfinite(values) & (values > 0)
        held = pin(observed.arm, observed.energy_j / observed.time_s, observed.clock_mhz)
        self.lost = int((~known).sum())
        self.unsteady = int((known & observed.stretches.between).sum())
        self._seen = list(dict.fromkeys(observed.arm))
        self._strata: list[_Stratum] = []
        self._home: dict[Arm, _Stratum] = {}
        names = [_stratum(arm) for arm in observed.arm]
        for name in dict.fromkeys(names):
            rows = np.flatnonzero(known & np.array([other == name for other in names]))
            if len(rows):
                stratum = _fit(observed, values, rows, held, None if name == GAPS else sampling)
                self._strata.append(stratum)
                self._home.update(dict.fromkeys(stratum.index, stratum))

    @property
    def arms(self) -> list[Arm]:
        """All arms that have a level."""
        return list(self._home)

    @property
    def missing(self) -> list[Arm]:
        """Arms that were run, and not one of their windows can be used."""
        return [arm for arm in self._seen if arm not in self._home]

    def value(self, weights: Weights) -> float:
        """A sum over arms."""
        return sum(w * self._level(arm) for arm, w in weights.items())

    def count(self, arm: Arm) -> int:
        """How many windows an arm has."""
        home = self._home.get(arm)
        return int(home.count[home.index[arm]]) if home else 0

    def has(self, *arms: Arm) -> bool:
        """Whether all of these have a level."""
        return all(arm in self._home for arm in arms)

    def estimate(self, weights: Weights | None, method: str) -> Estimate:
        """A sum over arms with its interval; null ("not_measured") without weights or without an arm's level.

        ``n`` is one more than the degrees of freedom, as everywhere where estimates are combined.
        """
        if weights is None or not self.has(*weights):
            return Estimate.null("not_measured", method)
        return self._with_interval(self.value(weights), weights, method)

    def ratio(
        self, above: Weights | None, below: Weights | None, method: str, reason: str = "not_measured"
    ) -> Estimate:
        """A sum over another, with its interval by linearisation: what is below must be well known."""
        if above is None or below is None or not self.has(*above, *below):
            return Estimate.null(reason, method)
        bottom = self.value(below)
        if bottom <= 0:
            return Estimate.null("denominator_near_zero", method)
        value = self.value(above) / bottom
        gradient = {arm: w / bottom for arm, w in above.items()}
        for arm, w in below.items():
            gradient[arm] = gradient.get(arm, 0.0) - value * w / bottom
        return self._with_interval(value, gradient, method)

    def _with_interval(self, value: float, weights: Weights, method: str) -> Estimate:
        variance = doubt = 0.0
        for stratum in self._strata:
            gradient = np.zeros(len(stratum.value))
            for arm, w in weights.items():
                if arm in stratum.index:
                    gradient[stratum.index[arm]] = w * stratum.value[stratum.index[arm]]
            if gradient.any():
                own, own_doubt = stratum.fit.variance(gradient)
                fresh = sum(gradient[i] for arm, i in stratum.index.items() if arm.kind in FRESH and arm.kind != NULL)
                held = sum(gradient[i] ** 2 for arm, i in stratum.index.items() if arm in stratum.pinned)
                variance += own + fresh**2 * stratum.offset_variance + held * stratum.pin_variance
                seen, seen_doubt = stratum.alias.of(gradient, stratum.index)
                variance, doubt = variance + seen, doubt + own_doubt + seen_doubt
        windows = sum(self.count(arm) for arm in weights)
        if not math.isfinite(variance):
            return Estimate(value, None, None, windows, method)
        # Welch and Satterthwaite: an estimated variance with variance 2 v² / df has df.
        most = float(max(sum(len(stratum.fit.arm) for stratum in self._strata), 2))
        free = min(max(2 * variance**2 / doubt, 1.0), most) if doubt > 0 else float(max(windows - 1, 1))
        half = student((1 + LEVEL) / 2, free) * math.sqrt(variance)
        return Estimate(value, value - half, value + half, round(free) + 1, method)

    def _level(self, arm: Arm) -> float:
        home = self._home[arm]
        return float(home.value[home.index[arm]])


def _stratum(arm: Arm) -> str:
    return GAPS if arm.kind == GAPS else "paced" if arm.spin_ns else "plain"


def _fit(
    observed: Observed, values: Floats, rows: NDArray[np.intp], held: Pinned, sampling: SamplingRate | None
) -> _Stratum:
    arms = [observed.arm[i] for i in rows]
    index = {arm: i for i, arm in enumerate(dict.fromkeys(arms))}
    # The untouched step is one capture throughout; all others are captured once a block.
    captures = [(0 if arm.kind == STEP else int(observed.block[i]), arm) for i, arm in zip(rows, arms, strict=True)]
    capture_index = {capture: i for i, capture in enumerate(dict.fromkeys(captures))}
    arm_of = np.array([index[arm] for arm in arms], np.intp)
    capture_of = np.array([capture_index[capture] for capture in captures], np.intp)
    stretch = observed.stretches.number[rows]
    if sampling is not None and np.median(observed.time_s[rows]) * sampling.rate_hz > LONG:
        sampling = None
    sampled = _sampled(observed, rows, sampling) if sampling else None
    found = fit(np.log(values[rows]), arm_of, capture_of, observed.middle_s[rows], held.excess[rows], stretch, sampled)
    return _Stratum(
        index,
        found,
        np.exp(found.level),
        np.bincount(arm_of),
        _offset_variance(index, found),
        found.slope**2 * held.variance,
        held.arms,
        Alias() if sampling else alias_of(index, found),
    )


def _sampled(observed: Observed, rows: NDArray[np.intp], sampling: SamplingRate) -> Floats:
    """What the sensor's sampling does to each window, as far as that can be known: a variance."""
    time = observed.time_s[rows]
    pause = np.array([observed.arm[i].spin_ns / 1e9 for i in rows])
    return seen_variance(time, observed.length_s[rows], sampling, pause, np.array([pieces(one) for one in time]))


def _offset_variance(index: dict[Arm, int], found: Fit) -> float:
    """What is left of the null experiment's squared offset once its own variance is taken off."""
    null = next((arm for arm in index if arm.kind == NULL), None)
    reference = next((arm for arm in index if arm.kind == REFERENCE), None)
    if null is None or reference is None:
        return 0.0
    gradient = np.zeros(len(found.level))
    gradient[index[null]], gradient[index[reference]] = 1.0, -1.0
    variance, _ = found.variance(gradient)
    excess = float(gradient @ found.level) ** 2 - variance
    return max(excess, 0.0) if math.isfinite(excess) else 0.0
