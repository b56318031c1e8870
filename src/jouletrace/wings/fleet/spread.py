"""The spread of one figure over GPUs of one kind, the best GPU, and outliers, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.run import Estimate
from jouletrace.stats.interval import mean_estimate
from jouletrace.wings.fleet.results import Group
from jouletrace.wings.fleet.variance import Split, split

METHOD, OF_GPUS = "shrunken means", "mean of GPUs"
_FENCE = 1.5
"""Quartile distances beyond a quartile from which a box plot shows a point as an outlier (Tukey 1977)."""

LEAST_FOR_OUTLIERS = 5
FIGURES = {"time_s": "s", "energy_j": "J", "power_w": "W"}
"""The compared figures, with their units."""


@dataclass(frozen=True)
class GpuRank:
    """The place of a GPU in its group.

    Attributes:
        gpu: Its code in the group.
        value: Its mean.
        off: Its relative distance from the median of the group; less is better in time and energy.
        rank: Its rank in that figure from 1, and the ranks that it may have.
        best: Probability that it is the best.
        outlier: "", "high" or "low": whether its whole interval lies outside the fences of a box plot.
    """

    gpu: int
    value: Estimate
    off: Estimate
    rank: Estimate
    best: float
    outlier: str


class FleetSpread:
    """One of ``FIGURES`` over the GPUs of a group.

    Attributes:
        split: Its variance, and draws of the true means; None without a reading.
    """

    def __init__(self, group: Group, figure: str) -> None:
        values, gpu, run, _ = readings(group, figure)
        of_gpu = dict(zip(group.runs["gpu"].tolist(), group.runs["node"].tolist(), strict=True))
        node = np.array([of_gpu[g] for g in gpu.tolist()], np.int64)
        self._of_gpu = of_gpu
        self.split: Split | None = split(values, node, gpu, run)

    @cached_property
    def draws(self) -> Floats:
        """Draws of the true means, shape (draws, gpus); GPUs without a reading are left out."""
        assert self.split is not None
        return self.split.true_means()

    @cached_property
    def mean(self) -> Estimate:
        """Mean over such GPUs: the interval is of how those here differ, or hosts where there are several."""
        if self.split is None:
            return Estimate.null("not_measured", OF_GPUS)
        mean, hosts = float(self.split.means.mean()), [self._of_gpu[gpu] for gpu in self.split.gpu.tolist()]
        _, place = np.unique(hosts, return_inverse=True)
        of_hosts = np.bincount(place, self.split.means) / np.bincount(place)
        half = mean_estimate(of_hosts if len(of_hosts) > 1 else self.split.means, method=OF_GPUS).half_width
        low, high = (None, None) if half is None else (mean - half, mean + half)
        return Estimate(mean, low, high, len(self.split.means), OF_GPUS)

    @property
    def apart(self) -> str:
        """Why GPUs can't be compared, as a code; "" if they can."""
        if self.split is None:
            return "not_measured"
        return "one_gpu" if len(self.split.means) < 2 else ""

    @cached_property
    def range(self) -> Estimate:
        """The largest over the smallest mean, less 1, for the true means."""
        return self._over_gpus(lambda means: means.max(axis=1) / means.min(axis=1) - 1)

    @cached_property
    def total(self) -> Estimate:
        """The sum of the GPUs' means: what they draw, or what an iteration on each takes, together."""
        if self.split is None:
            return Estimate.null("not_measured", METHOD)
        return _estimate(self.draws.sum(axis=1), self.draws.shape[1], float(self.split.means.sum()))

    @cached_property
    def quartiles(self) -> Estimate:
        """Distance of the quartiles over the median, for the true means."""
        return self._over_gpus(
            lambda means: np.subtract(*np.quantile(means, [0.75, 0.25], axis=1)) / np.median(means, axis=1)
        )

    def _over_gpus(self, what: Callable[[Floats], Floats]) -> Estimate:
        if self.apart:
            return Estimate.null(self.apart, METHOD)
        return _estimate(what(self.draws), self.draws.shape[1])

    @property
    def observed_range(self) -> float | None:
        """The range of the means as they were measured, including noise."""
        if self.split is None or self.apart:
            return None
        return float(self.split.means.max() / self.split.means.min() - 1)

    @cached_property
    def off(self) -> Floats:
        """Relative distance of each GPU from the median, shape (draws, gpus)."""
        return np.asarray(self.draws / np.median(self.draws, axis=1)[:, None] - 1)

    @cached_property
    def places(self) -> list[GpuRank]:
        """Each GPU, the best first; by number without readings."""
        if self.split is None:
            return []
        first, last = _ranks(self.draws)
        nowhere = Estimate.null("one_gpu", METHOD)
        owner, runs = self.split.gpu.tolist(), self.split.runs.tolist()
        found = [
            GpuRank(
                gpu=code,
                value=_estimate(self.draws[:, n], runs[n], float(self.split.means[n])),
                off=nowhere if self.apart else _estimate(self.off[:, n], runs[n]),
                rank=_rank(first[:, n], last[:, n]),
                best=float((first[:, n] == 1).mean()),
                outlier=self._outlier(n),
            )
            for n, code in enumerate(owner)
        ]
        return [found[n] for n in np.argsort(self.split.means, kind="stable")]

    def _outlier(self, n: int) -> str:
        assert self.split is not None
        if len(self.split.means) < LEAST_FOR_OUTLIERS:
            return ""
        q1, q3 = np.quantile(self.split.means, [0.25, 0.75])
        reach = _FENCE * (q3 - q1)
        low, high = np.quantile(self.draws[:, n], [0.025, 0.975])
        return "high" if low > q3 + reach else "low" if high < q1 - reach else ""

    def gain(self, code: int) -> Estimate:
        """Relative saving of a GPU against one of the others picked at random: (others − it) / others.

        The means are shrunk towards one another, so that a GPU that is requested because it came out first
        isn't credited with its luck.
        """
        if self.split is None or self.apart:
            return Estimate.null(self.apart, METHOD)
        there = self.split.gpu.tolist()
        if code not in there:
            return Estimate.null("not_measured", METHOD)
        n = there.index(code)
        others: Floats = np.delete(self.draws, n, axis=1).mean(axis=1)
        return _estimate((others - self.draws[:, n]) / others, len(there))


def readings(group: Group, figure: str) -> tuple[Floats, Ints, Ints, str]:
    """Readings of a figure with the codes of their GPU and run: of windows, or of whole runs without windows."""
    windows = group.windows
    if figure == "power_w":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = windows["energy_j"] / windows["time_s"]
    else:
        values = windows[figure]
    known = np.isfinite(values)
    if len(np.unique(windows["run"][known])) == len(group.runs["gpu"]):
        return values[known], windows["gpu"][known], windows["run"][known], "windows"
    values = group.runs[figure]
    known = np.isfinite(values)
    return values[known], group.runs["gpu"][known], np.flatnonzero(known), "runs"


def _ranks(draws: Floats) -> tuple[Floats, Floats]:
    """First and last rank from 1 that each may have in each draw: equal ones share theirs. Shapes as ``draws``."""
    if (np.diff(np.sort(draws, axis=1), axis=1) != 0).all():  # faster, and nearly always the case
        ranks = np.asarray(draws.argsort(axis=1).argsort(axis=1) + 1, np.float64)
        return ranks, ranks
    from scipy.stats import rankdata  # slow to import, and rarely needed

    first, last = (np.asarray(rankdata(draws, method=end, axis=1), np.float64) for end in ("min", "max"))
    return first, last


def _rank(first: Floats, last: Floats) -> Estimate:
    value = float(np.median(first + last)) / 2
    low, high = float(np.quantile(first, 0.025)), float(np.quantile(last, 0.975))
    return Estimate(value, min(low, value), max(high, value), len(first), METHOD)


def _estimate(draws: Floats, n: int, value: float | None = None) -> Estimate:
    """Estimate from draws; their median unless a value is given."""
    value = float(np.median(draws)) if value is None else value
    low, high = (float(q) for q in np.quantile(draws, [0.025, 0.975]))
    return Estimate(value, min(low, value), max(high, value), n, METHOD)
