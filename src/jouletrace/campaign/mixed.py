"""Log quantities of settings from visits in several processes: curves over size, effects of processes, scatter.

A setting's value is a curve over the log of its size, one a branch, plus roughness. A visit differs from it by the
effect of its process and by the scatter of its windows. All are Gaussian: the posterior is one solve (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.23 and 2.24).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Priors, of the ranges that benchmarks/tune_sim.py simulates; visits replace them.
PROCESS_SD, PROCESS_DEGREES = 0.007, 6  # standard deviation between processes, which one process alone can't show
SECOND_SD: Final = {False: 0.01, True: 0.12}  # standard deviation of a second: of steady settings, and of late hosts
SECOND_DEGREES: Final = 3
HOST_SHARE: Final = 0.1  # share of a late host's variance that all windows of a process have in common
LEAST_SD: Final = 0.003  # of a process and of a second: sensors drift by as much
ROUGHNESS: Final = 0.03  # kernels are chosen by size
OCTAVES: Final = 3.0  # length of a curve


@dataclass(frozen=True)
class Posterior:
    """A log quantity of K settings.

    Attributes:
        mean: Means (K).
        covariance: Their covariance (K x K).
        second: Variance of a second of each (K).
        process: Variance of a process of each (K).
        degrees: Degrees of freedom of the variance of processes.
    """

    mean: Floats
    covariance: Floats
    second: Floats
    process: Floats
    degrees: float

    def draws(self, rng: np.random.Generator, n: int) -> Floats:
        """Student's draws (n x K): the variances are estimates of few degrees of freedom."""
        root = np.linalg.cholesky(self.covariance + 1e-7 * np.eye(len(self.mean)))
        scale = np.sqrt(self.degrees / rng.chisquare(self.degrees, (n, 1)))
        return np.asarray(self.mean + rng.normal(size=(n, len(self.mean))) @ root.T * scale)

    def above(self, k: int) -> tuple[Floats, Floats]:
        """Differences (K) of all settings from one, and their standard errors."""
        variance = np.diag(self.covariance) + self.covariance[k, k] - 2 * self.covariance[k]
        return self.mean - self.mean[k], np.sqrt(np.maximum(variance, 0))


def prior(log_sizes: Floats, branches: Sequence[tuple[str, ...]]) -> Floats:
    """Covariance (K x K) of settings before any visit.

    Its terms are a common level and curve, wide as orders of magnitude; effects of each value of a branch, of 50 %;
    their interaction, of 20 %; roughness.
    """
    octaves, values = log_sizes / np.log(2), np.array(branches)
    curve = np.exp(-0.5 * ((octaves[:, None] - octaves) / OCTAVES) ** 2)
    same = values[:, None, :] == values[None, :, :]
    effects = 0.3 * same.sum(2) * (0.5 + 0.5 * curve) + 0.04 * same.all(2) * curve
    return np.asarray(4 + 2 * curve + effects + ROUGHNESS**2 * np.eye(len(octaves)))


def ends_and_middles(log_sizes: Floats, branches: Sequence[tuple[str, ...]]) -> set[int]:
    """Settings whose visits show the curves: three of each branch, four if it has more than six."""
    members: dict[tuple[str, ...], list[int]] = {}
    for k in np.argsort(log_sizes, kind="stable"):
        members.setdefault(branches[k], []).append(int(k))
    ranks = {branch: np.linspace(0, len(own) - 1, 4 if len(own) > 6 else 3) for branch, own in members.items()}
    return {own[round(rank)] for branch, own in members.items() for rank in ranks[branch]}


def fit(
    before: Floats, setting: Integers, process: Integers, seconds: Floats, late: Flags, value: Floats, sd: Floats
) -> Posterior:
    """The posterior of K settings by n visits.

    Args:
        before: Covariance before any visit (K x K).
        setting: Setting of each visit (n).
        process: Its process (n).
        seconds: Its measured time (n).
        late: Settings whose host is late (K).
        value: Its log quantity (n).
        sd: The standard deviation of that by the scatter of the visit's windows (n); nan is not known.
    """
    total = len(before)
    group, member = np.unique(setting * (process.max() + 1) + process, return_inverse=True)
    owner = group // (process.max() + 1)  # the setting of each group; a group is its visits in a process
    duration = np.bincount(member, seconds)
    average = np.bincount(member, seconds * value) / duration
    # variance of a second: within visits by windows of a second, and between the visits of a group
    windows = np.where(np.isfinite(sd), np.maximum(seconds - 1, 0), 0)
    squared = seconds * (value - average[member]) ** 2 + windows * seconds * np.nan_to_num(sd) ** 2
    squares = np.bincount(setting, squared, total)
    degrees = np.bincount(setting, windows + 1, total) - np.bincount(owner, minlength=total)
    second = np.empty(total)
    for kind, usual in SECOND_SD.items():
        own = late == kind
        pooled = (SECOND_DEGREES * usual**2 + squares[own].sum()) / (SECOND_DEGREES + degrees[own].sum())
        second[own] = (SECOND_DEGREES * pooled + squares[own]) / (SECOND_DEGREES + degrees[own])
    second = np.maximum(second, LEAST_SD**2)
    # variance of a process: how groups of a setting scatter beyond their seconds; of late hosts, a share of a second's
    groups = np.bincount(owner, minlength=total)
    center = np.bincount(owner, average, total) / np.maximum(groups, 1)
    excess = (average - center[owner]) ** 2 - second[owner] / duration * (1 - 1 / groups[owner])
    steady, hosts = (float(np.maximum(groups[own] - 1, 0).sum()) + PROCESS_DEGREES for own in (~late, late))
    between = PROCESS_DEGREES * PROCESS_SD**2 + max(excess[~late[owner]].sum(), 0)
    common = PROCESS_DEGREES * HOST_SHARE + (excess / second[owner])[late[owner]].sum()
    of_process = max(between / steady, LEAST_SD**2) + late * max(common / hosts, HOST_SHARE / 5) * second
    noise = np.diag(of_process[owner] + second[owner] / duration)
    gain = np.linalg.solve(noise + before[np.ix_(owner, owner)], before[owner])
    mean = average.mean() + gain.T @ (average - average.mean())
    covariance = before - before[:, owner] @ gain
    return Posterior(mean, (covariance + covariance.T) / 2, second, of_process, steady)
