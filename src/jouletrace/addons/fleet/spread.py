"""How far GPUs of one kind are apart, which is best, and which stands out; of one figure, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.autocorrelation import Autocorrelation
from jouletrace.addons.fleet.results import Group
from jouletrace.addons.fleet.variance import Component, Split, split
from jouletrace.run import Estimate

Floats = NDArray[np.float64]

METHOD = "shrunken means"
_FENCE = 1.5
"""Quartile distances beyond a quartile from which on a box plot shows a point by itself (Tukey 1977)."""

LEAST_FOR_OUTLIERS = 5
FIGURES = {"time_s": "s", "energy_j": "J", "power_w": "W"}
"""What is held against one another, with its unit."""


@dataclass(frozen=True)
class Place:
    """A GPU among those of its group.

    Attributes:
        gpu: Its code in the group.
        value: Its mean.
        off: Its relative distance from the median of the group; less is better in time and energy.
        rank: Its place by that figure from 1, and the places that it may have.
        best: Probability that it is the best.
        outlier: "" or "high" or "low": outside the fences of a box plot, with its whole interval.
        box: Least, quartiles and most of its runs' means, shape (5,).
    """

    gpu: int
    value: Estimate
    off: Estimate
    rank: Estimate
    best: float
    outlier: str
    box: tuple[float, ...]


class Spread:
    """One figure over the GPUs of a group.

    Args:
        group: The group.
        figure: One of ``FIGURES``.
    """

    def __init__(self, group: Group, figure: str) -> None:
        self.group = group
        self.figure = figure
        self.values, self.gpu, self.run, self.level = readings(group, figure)
        of_gpu = dict(zip(group.runs["gpu"].tolist(), group.runs["node"].tolist(), strict=True))
        node = np.array([of_gpu[g] for g in self.gpu.tolist()], np.int64)
        self.split: Split | None = split(self.values, node, self.gpu, self.run)
        self.alike = figure == "time_s" and group.shares_time
        """Whether all GPUs take the same by construction: then none has a place among them."""

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Where the variance is; () without a reading."""
        if self._once is None:
            return ()
        if not self.alike:
            return self._once.components
        null = Estimate.null("collective", METHOD)
        return tuple(Component(c.level, null, null) if c.level == "gpu" else c for c in self._once.components)

    @property
    def correlation(self) -> Autocorrelation | None:
        """Of successive windows of a run; None without a reading."""
        return self._once.correlation if self._once is not None else None

    @cached_property
    def _once(self) -> Split | None:
        """The split in which every reading counts once."""
        if self.split is None or not self.alike:
            return self.split
        # Every GPU repeats the one time that all took: as so many readings it would seem better known than it is.
        one = self.gpu == self.gpu.min()
        return split(self.values[one], np.zeros_like(self.gpu[one]), self.gpu[one], self.run[one])

    @cached_property
    def draws(self) -> Floats:
        """What the true means may be, shape (draws, gpus); GPUs without a reading are left out."""
        assert self.split is not None
        return self.split.true_means()

    @cached_property
    def range(self) -> Estimate:
        """The largest over the smallest mean, less 1, of what the means truly are."""
        return self._over_gpus(lambda m: m.max(axis=-1) / m.min(axis=-1) - 1)

    @cached_property
    def quartiles(self) -> Estimate:
        """Distance of the quartiles over the median."""
        return self._over_gpus(lambda m: np.subtract(*np.quantile(m, [0.75, 0.25], axis=-1)) / np.median(m, axis=-1))

    def _over_gpus(self, what) -> Estimate:  # type: ignore[no-untyped-def]  # a lambda of two shapes
        if self.split is None:
            return Estimate.null("not_measured", METHOD)
        if len(self.split.means) < 2:
            return Estimate.null("one_gpu", METHOD)
        if self.alike:
            return Estimate.null("collective", METHOD)
        return _estimate(float(np.median(drawn := what(self.draws))), drawn, len(self.split.means))

    @cached_property
    def observed_range(self) -> float | None:
        """The same of the means as they were measured, noise and all."""
        if self.split is None or len(self.split.means) < 2 or self.alike:
            return None
        return float(self.split.means.max() / self.split.means.min() - 1)

    @cached_property
    def places(self) -> list[Place]:
        """Each GPU, the best first; by number where none is."""
        if self.split is None:
            return []
        k = len(self.split.means)
        draws = self.draws
        off: Floats = draws / np.median(draws, axis=1)[:, None] - 1
        first, last = _ranks(draws)
        best = (first == 1).mean(axis=0)
        nowhere = Estimate.null("collective" if self.alike else "one_gpu", METHOD)
        run_means = _means(self.values, self.run)
        owner = self.gpu[np.unique(self.run, return_index=True)[1]]
        found = []
        for n, code in enumerate(self.split.gpu.tolist()):
            own = run_means[owner == code]
            value = _estimate(float(self.split.means[n]), draws[:, n], len(own))
            found.append(
                Place(
                    gpu=code,
                    value=value,
                    off=_estimate(float(np.median(off[:, n])), off[:, n], len(own))
                    if k > 1 and not self.alike
                    else nowhere,
                    rank=nowhere if self.alike else _rank(first[:, n], last[:, n]),
                    best=float(best[n]),
                    outlier=self._outlier(n),
                    box=tuple(float(q) for q in np.quantile(own, [0, 0.25, 0.5, 0.75, 1])),
                )
            )
        if self.alike:
            return sorted(found, key=lambda place: _number(self.group.gpus[place.gpu].facts))
        return [found[n] for n in np.argsort(self.split.means, kind="stable")]

    def _outlier(self, n: int) -> str:
        assert self.split is not None
        if len(self.split.means) < LEAST_FOR_OUTLIERS or self.alike:
            return ""
        q1, q3 = np.quantile(self.split.means, [0.25, 0.75])
        reach = _FENCE * (q3 - q1)
        low, high = np.quantile(self.draws[:, n], [0.025, 0.975])
        return "high" if low > q3 + reach else "low" if high < q1 - reach else ""

    def gain(self, code: int) -> Estimate:
        """How much less a GPU needs than one of the others picked blindly: (others − it) / others.

        The means are drawn towards one another, so that a GPU that is asked for because it came out first
        isn't credited with its luck.
        """
        if self.split is None or len(self.split.means) < 2:
            return Estimate.null("one_gpu", METHOD)
        if self.alike:
            return Estimate.null("collective", METHOD)
        there = self.split.gpu.tolist()
        if code not in there:
            return Estimate.null("not_measured", METHOD)
        n = there.index(code)
        others: Floats = np.delete(self.draws, n, axis=1).mean(axis=1)
        drawn = (others - self.draws[:, n]) / others
        return _estimate(float(np.median(drawn)), drawn, len(there))


def readings(group: Group, figure: str) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64], str]:
    """Readings of a figure with the codes of their GPU and run: of windows, or of whole runs without them."""
    windows = group.windows
    if figure == "power_w":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = windows["energy_j"] / windows["time_s"]
    else:
        values = windows[figure]
    known = np.isfinite(values)
    runs = np.unique(windows["run"][known])
    if len(runs) == len(group.runs["gpu"]):
        return values[known], windows["gpu"][known], windows["run"][known], "windows"
    values = group.runs[figure]
    known = np.isfinite(values)
    return values[known], group.runs["gpu"][known], np.flatnonzero(known), "runs"


def _number(facts: dict[str, Any]) -> int:
    """A GPU's place on its host; 0 where it isn't known."""
    return int(facts.get("index") or 0)


def _ranks(draws: Floats) -> tuple[Floats, Floats]:
    """First and last place from 1 that each may claim in each draw: equal ones share theirs. Shapes as ``draws``."""
    ranks = np.asarray(draws.argsort(axis=1).argsort(axis=1) + 1, np.float64)
    if (np.diff(np.sort(draws, axis=1), axis=1) != 0).all():
        return ranks, ranks
    from scipy.stats import rankdata  # slow to import, and seldom needed

    first, last = (np.asarray(rankdata(draws, method=end, axis=1), np.float64) for end in ("min", "max"))
    return first, last


def _rank(first: Floats, last: Floats) -> Estimate:
    value = float(np.median(first + last)) / 2
    low, high = float(np.quantile(first, 0.025)), float(np.quantile(last, 0.975))
    return Estimate(value, min(low, value), max(high, value), len(first), METHOD)


def _means(values: Floats, codes: NDArray[np.int64]) -> Floats:
    _, place = np.unique(codes, return_inverse=True)
    return np.asarray(np.bincount(place, values) / np.bincount(place))


def _estimate(value: float, draws: Floats, n: int) -> Estimate:
    low, high = (float(q) for q in np.quantile(draws, [0.025, 0.975]))
    return Estimate(value, min(low, value), max(high, value), n, METHOD)
