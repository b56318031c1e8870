"""The setting of least energy per sample under a limit, by racing: which to visit next, and what then holds.

Log energy and log time of a setting are a curve over the log of its size, one a branch, plus roughness. A visit differs
from them by the effect of its process and the scatter of its windows. The posterior of this linear Gaussian model
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.23 and 2.24) is drawn many times. The two
settings that are least in each draw are visited next (top-two sampling: Russo, Operations Research 68, 2020). The race
has chosen when the regret, the energy of the choice over the least of a draw, is at most the goal in 98 % of draws.
Then fresh processes visit winner, runner-up and reference by turns, so that the promise does not rest on the luck that
chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, inf, log, log1p, nan, sqrt
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Outcome = Literal["chosen", "none", "undecided"]

# Numbers without another source are those by which benchmarks/tune_sim.py meets its goals on spaces of seed 0.
ALPHA: Final = 0.02  # error permitted to limit and regret each; with the saving's 5 %, a promise fails in under a tenth
DRAWS: Final = 600  # twelve are beyond the 98 % quantile
ALL_BELOW: Final = 30  # with fewer candidates each process visits all: a race saves little
MOST_PROCESSES: Final = 16  # then the race ends as it stands
MOST_FOR_LIMIT: Final = 5  # processes after which a candidate's limit counts as undecidable
CONFIRMING: Final = 2  # processes after the choice; a third makes no promise truer
CONTENDERS: Final = 12
PROCESS_SD, PROCESS_DEGREES = 0.007, 6  # prior of the standard deviation of log energy between processes
WINDOW_SD: Final = {False: 0.01, True: 0.12}  # prior of that of a second: of steady settings, and of late hosts
WINDOW_DEGREES: Final = 3
LEAST_SD: Final = 0.003  # of a process and of a second: sensors drift by as much
HOST_SHARE: Final = 0.1  # prior share of a late host's variance that all windows of a process have in common
VISIT_S: Final = (2.0, 25.0)  # of a candidate in a process after the first
TOLERANCE: Final = log(1.01)  # a limit counts as met if times 1 % lower met it: a sharper test takes most of the time
SAVING_HALF_WIDTH: Final = 0.02
EQUAL: Final = 0.02


@dataclass(frozen=True)
class Candidate:
    """A setting: ``size`` is its ordered dimension (batch; 1.0 without one), ``branch`` its values of the others."""

    size: float
    branch: tuple[str, ...]


@dataclass(frozen=True)
class Visit:
    """A candidate measured once in a process.

    Attributes:
        candidate: Index of the candidate.
        process: Number of the process, from 0.
        seconds: Measured time.
        log_energy: Natural logarithm of joules per sample.
        sd_energy: Its standard deviation by the scatter of the visit's windows alone; nan if there was one window.
        log_time: Natural logarithm of seconds per sample.
        sd_time: Its standard deviation, likewise.
        counts: Per block of iterations: how many, of them over the limit, and over it by more than 1 %.
        host_bound: True if the GPU waits for the host.
    """

    candidate: int
    process: int
    seconds: float
    log_energy: float
    sd_energy: float
    log_time: float
    sd_time: float
    counts: tuple[tuple[int, int, int], ...] = ()
    host_bound: bool = False


@dataclass(frozen=True)
class ShareLimit:
    """At most this share of iterations may take longer than ``bound_s`` (p99: a share of 0.01)."""

    bound_s: float
    share: float = 0.01

    @property
    def iterations(self) -> int:
        """Iterations of which none may be over the limit, to show the share with 95 %: 299 for p99."""
        return ceil(log(0.05) / log1p(-self.share))

    def draws(self, rng: np.random.Generator, counts: NDArray[np.int64]) -> tuple[Flags, Flags]:
        """Flags (DRAWS each): the limit is met, and it is met within the tolerance, by counts (blocks x 3).

        Shares are drawn by Jeffreys' prior. Iterations over a limit come together: counts are divided by the variance
        between blocks over the binomial's, at least 1 (McCullagh and Nelder, Generalized Linear Models, 1989, 4.5).
        """
        blocks, (total, *over) = counts[:, 0], counts.sum(0)
        share, dispersion = (over[0] + 0.5) / (total + 1), 1.0
        if len(counts) > 2:
            squares = ((counts[:, 1] - share * blocks) ** 2 / (blocks * share * (1 - share))).sum()
            dispersion = max(1.0, (squares + 2) / (len(counts) + 1))  # as if by two further blocks that scatter by 1
        strict, tolerant = (
            rng.beta(n / dispersion + 0.5, (total - n) / dispersion + 0.5, DRAWS) < self.share for n in over
        )
        return strict, tolerant & (total >= self.iterations)


@dataclass(frozen=True)
class TimeLimit:
    """Time per sample may be at most ``most`` times that of the reference, which always qualifies."""

    most: float = 1.03


@dataclass(frozen=True)
class Verdict:
    """Outcome of a race; energies are per sample, intervals 95 %, of this GPU now.

    Attributes:
        outcome: ``none`` if no candidate meets the limit, ``undecided`` if no candidate surely does.
        processes: Number of processes.
        measured: Candidates with visits.
        failed: Candidates that failed.
        best: Index of the choice, or None.
        saving: Ends of the relative saving of the choice against the reference; None if either is missing.
        within: The choice takes at most this fraction more than the least of all that meet the limit; nan without one.
        equal: Candidates that differ from the choice by at most 2 %: abs(difference) + 2 standard errors.
        indistinct: Other measured ones whose difference from the choice is within 2 standard errors.
        undecided: Candidates whose limit is undecided, with their relative saving against the reference (nan if that
            failed); beside a choice those that would take less, which ``within`` does not cover.
        nearest: Where none meets the limit: the candidate with the smallest share of iterations over it, and the share.
    """

    outcome: Outcome
    processes: int
    measured: tuple[int, ...]
    failed: tuple[int, ...]
    best: int | None = None
    saving: tuple[float, float] | None = None
    within: float = nan
    equal: tuple[int, ...] = ()
    indistinct: tuple[int, ...] = ()
    undecided: tuple[tuple[int, float], ...] = ()
    nearest: tuple[int, float] | None = None


@dataclass(frozen=True)
class _Posterior:
    """A log quantity of K candidates: mean (K), covariance (K x K); variance of a second and of a process (K each)."""

    mean: Floats
    covariance: Floats
    second: Floats
    process: Floats
    degrees: float

    def draws(self, rng: np.random.Generator) -> Floats:
        """Student's draws (DRAWS x K): the variances are estimates of few degrees of freedom."""
        root = np.linalg.cholesky(self.covariance + 1e-7 * np.eye(len(self.mean)))
        scale = np.sqrt(self.degrees / rng.chisquare(self.degrees, (DRAWS, 1)))
        return np.asarray(self.mean + rng.normal(size=(DRAWS, len(self.mean))) @ root.T * scale)

    def above(self, k: int) -> tuple[Floats, Floats]:
        """Differences (K) of all candidates from one, and their standard errors."""
        variance = np.diag(self.covariance) + self.covariance[k, k] - 2 * self.covariance[k]
        return self.mean - self.mean[k], np.sqrt(np.maximum(variance, 0))


@dataclass(frozen=True)
class _State:
    """What the visits so far imply; flags (K) of limits that are surely met, may be met, remain undecided."""

    energy: _Posterior
    time: _Posterior
    sure: Flags
    maybe: Flags
    open: Flags
    best: int | None
    regret: float
    contenders: list[int]


class Race:
    """A race of candidates against a reference; the same visits in the same order give the same plans.

    Args:
        candidates: All settings.
        reference: Index of the setting with which the choice is compared.
        limit: What the choice has to meet.
        seed: Of the draws and of the order of visits.
        start_s: Seconds that a process takes before its first visit.
        goal: The choice is to be within this fraction of the least.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        reference: int,
        *,
        limit: ShareLimit | TimeLimit | None = None,
        seed: int = 0,
        start_s: float = 10.0,
        goal: float = 0.01,
    ) -> None:
        self._candidates, self._reference, self._limit = tuple(candidates), reference, limit
        self._seed, self._start_s, self._goal = seed, start_s, log1p(goal)
        self._log_size = np.log([candidate.size for candidate in candidates])
        self._prior = _prior(self._candidates)
        self._visits: list[Visit] = []
        self._bad = np.zeros(len(candidates), bool)
        self._finalists: tuple[int, ...] = ()  # winner and runner-up
        self._since = 0  # the first process after they were chosen
        self._known: tuple[tuple[int, int], _State] | None = None

    def plan(self) -> list[tuple[int, float]]:
        """Visits of the next process in their order, as (candidate, seconds); empty when the race is decided."""
        rng = np.random.default_rng([self._seed, len(self._visits), 1])
        seen = {visit.candidate for visit in self._visits}
        if seen <= {self._reference} and (first := [k for k in self._first() if not self._bad[k] and k not in seen]):
            return [(int(k), 1.0) for k in rng.permutation(first)]
        wanted = self._wanted()
        if wanted and not self._bad[self._reference]:
            wanted = wanted | {self._reference}
        order = [int(k) for k in rng.permutation(sorted(wanted))]
        return [(k, self._seconds(k, len(order))) for k in order]

    def add(self, visit: Visit) -> None:
        """Take in a visit."""
        if self._visits and visit.process > self._visits[-1].process:
            self._wanted()  # a resumed race, whose plans are not made again, chooses finalists as before
        self._visits.append(visit)

    def fail(self, candidate: int) -> None:
        """Leave out a candidate that ran out of memory or failed."""
        self._bad[candidate] = True

    def verdict(self) -> Verdict:
        """Outcome by the visits so far."""
        seen, lost = self._seen(), bool(self._bad[self._reference])
        about = len({visit.process for visit in self._visits}), _indices(seen > 0), _indices(self._bad)
        if not seen.any():
            return Verdict("none" if self._bad.all() else "undecided", *about)
        state = self._state()
        saves = -np.expm1(state.energy.above(self._reference)[0])
        if (best := state.best) is None and not state.maybe.any():
            return Verdict("none", *about, nearest=self._nearest())
        difference, error = state.energy.above(self._reference if best is None else best)
        open_ = state.open & (difference < 0) if best is not None else (seen > 0) & state.maybe
        undecided = tuple((k, nan if lost else float(saves[k])) for k in _indices(open_))
        if best is None:
            return Verdict("undecided", *about, undecided=undecided)
        others = state.maybe & (seen > 0) & (np.arange(len(seen)) != best)
        equal = others & (np.abs(difference) + 2 * error <= EQUAL)
        indistinct = others & ~equal & (np.abs(difference) <= 2 * error)
        saving = None if lost else self._saving(best)
        within = expm1(state.regret)
        return Verdict("chosen", *about, best, saving, within, _indices(equal), _indices(indistinct), undecided)

    def _seen(self) -> NDArray[np.int64]:
        """Processes (K) that visited each candidate; 0 of those that failed."""
        pairs = {(visit.candidate, visit.process) for visit in self._visits}
        return np.where(self._bad, 0, np.bincount([k for k, _ in pairs], minlength=len(self._bad)))

    def figures(self, candidate: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and standard deviation of the logarithms of energy and of time per sample of a candidate."""
        state = self._state()
        energy, time = (
            (float(one.mean[candidate]), sqrt(one.covariance[candidate, candidate]))
            for one in (state.energy, state.time)
        )
        return energy, time

    def _first(self) -> list[int]:
        """Candidates of the first process: ends and middle of each branch, the reference; all if they are few."""
        if len(self._candidates) < ALL_BELOW:
            return list(range(len(self._candidates)))
        branches: dict[tuple[str, ...], list[int]] = {}
        for k in np.argsort(self._log_size, kind="stable"):
            branches.setdefault(self._candidates[k].branch, []).append(int(k))
        first = {self._reference}
        for members in branches.values():
            first |= {members[round(i)] for i in np.linspace(0, len(members) - 1, 4 if len(members) > 6 else 3)}
        return sorted(first)

    def _wanted(self) -> set[int]:
        """Candidates of the next process, the reference apart; none when the race is decided."""
        state, seen, lost = self._state(), self._seen(), bool(self._bad[self._reference])
        process = self._visits[-1].process + 1
        if process >= MOST_PROCESSES or self._bad.all() or (lost and isinstance(self._limit, TimeLimit)):
            return set()
        if not state.maybe.any():  # the fastest by the curves has to show that none meets the limit
            fastest = int(np.argmin(np.where(self._bad, inf, state.time.mean + self._log_size)))
            return set() if seen[fastest] else {fastest}
        if (best := state.best) is None or state.regret > self._goal:
            return set(state.contenders)
        if best not in self._finalists:
            rivals = [k for k in state.contenders if k != best]
            self._finalists, self._since = (best, *rivals[:1]), process
        if {*self._finalists, self._reference} == {best}:
            return set()
        confirmed = {v.process for v in self._visits if v.candidate == best and v.process >= self._since}
        low, high = (0.0, 0.0) if lost else self._saving(best)
        done = len(confirmed) >= CONFIRMING and high - low <= 2 * SAVING_HALF_WIDTH
        return set() if done else set(self._finalists)

    def _seconds(self, k: int, together: int) -> float:
        """Seconds of a candidate in a process that visits so many candidates.

        The variance for the cost is least where seconds are the root of the variance of a second over that of a
        process, times a visit's part of the start (Cochran, Sampling Techniques, 1977, eq. 10.26).
        """
        state = self._state()
        seconds = sqrt(state.energy.second[k] / state.energy.process[k] * self._start_s / together)
        if isinstance(self._limit, ShareLimit) and k in state.contenders and state.maybe[k] and not state.sure[k]:
            iteration_s = np.exp(state.time.mean[k] + self._log_size[k] + self._per_iteration())
            seconds = max(seconds, 1.3 * self._limit.iterations * iteration_s)
        return float(np.clip(ceil(seconds), *VISIT_S))

    def _state(self) -> _State:
        """What the visits so far imply; computed once for the same visits and failures."""
        key = len(self._visits), int(self._bad.sum())
        if self._known is None or self._known[0] != key:
            self._known = key, self._computed()
        return self._known[1]

    def _computed(self) -> _State:
        rng, seen = np.random.default_rng([self._seed, len(self._visits), 0]), self._seen()
        energy = self._fit([(visit.log_energy, visit.sd_energy) for visit in self._visits])
        time = self._fit([(visit.log_time, visit.sd_time) for visit in self._visits])
        draws = energy.draws(rng)
        strict, tolerant = (flags & ~self._bad for flags in self._meets(rng, time.draws(rng)))
        sure, maybe = (seen > 0) & (tolerant.mean(0) >= 1 - ALPHA), strict.mean(0) > ALPHA / 4
        open_ = maybe & ~sure & (seen >= MOST_FOR_LIMIT)
        low = np.where(strict & ~open_, draws, inf)
        best, regret = None, inf
        if sure.any():
            choices = np.flatnonzero(sure)
            excess = np.maximum(draws[:, choices] - low.min(1, keepdims=True), 0)
            regrets = np.quantile(excess, 1 - ALPHA, axis=0)
            i = np.lexsort((energy.mean[choices], np.round(regrets, 4)))[0]
            best, regret = int(choices[i]), float(regrets[i])
        least = np.argsort(low, axis=1)[np.isfinite(low.min(1)), :2]
        votes = np.bincount(least.ravel(), np.tile([1.0, 0.5], len(least))[: least.size], len(seen))
        contenders = [int(k) for k in np.argsort(-votes)[:CONTENDERS] if votes[k] > ALPHA * DRAWS / 4]
        contenders += [best] if best is not None and best not in contenders else []
        return _State(energy, time, sure, maybe, open_, best, regret, contenders)

    def _fit(self, values: Sequence[tuple[float, float]]) -> _Posterior:
        """The posterior of a log quantity by its values in the visits and their standard deviations."""
        total = len(self._bad)
        value, deviation = np.array(values).T
        candidate, process = np.array([(visit.candidate, visit.process) for visit in self._visits]).T
        seconds = np.array([visit.seconds for visit in self._visits])
        host = np.zeros(total, bool)
        host[[visit.candidate for visit in self._visits if visit.host_bound]] = True
        group, member = np.unique(candidate * (process.max() + 1) + process, return_inverse=True)
        owner = group // (process.max() + 1)  # the candidate of each group, its visits in a process
        duration = np.bincount(member, seconds)
        average = np.bincount(member, seconds * value) / duration
        # variance of a second: by windows of a second within visits, and by visits within a process
        windows = np.where(np.isfinite(deviation), np.maximum(seconds - 1, 0), 0)
        squares = seconds * (value - average[member]) ** 2 + windows * seconds * np.nan_to_num(deviation) ** 2
        squares = np.bincount(candidate, squares, total)
        degrees = np.bincount(candidate, windows + 1, total) - np.bincount(owner, minlength=total)
        second = np.empty(total)
        for late, usual in WINDOW_SD.items():
            own = host == late
            pooled = (WINDOW_DEGREES * usual**2 + squares[own].sum()) / (WINDOW_DEGREES + degrees[own].sum())
            second[own] = (WINDOW_DEGREES * pooled + squares[own]) / (WINDOW_DEGREES + degrees[own])
        second = np.maximum(second, LEAST_SD**2)
        # variance of a process: what groups of a candidate scatter by beyond their seconds
        groups = np.bincount(owner, minlength=total)
        center = np.bincount(owner, average, total) / np.maximum(groups, 1)
        excess = (average - center[owner]) ** 2 - second[owner] / duration * (1 - 1 / groups[owner])
        steady, bound = (float(np.maximum(groups[own] - 1, 0).sum()) + PROCESS_DEGREES for own in (~host, host))
        between = PROCESS_DEGREES * PROCESS_SD**2 + max(excess[~host[owner]].sum(), 0)
        common = PROCESS_DEGREES * HOST_SHARE + (excess / second[owner])[host[owner]].sum()
        of_process = max(between / steady, LEAST_SD**2) + host * max(common / bound, HOST_SHARE / 5) * second
        noise = np.diag(of_process[owner] + second[owner] / duration)
        gain = np.linalg.solve(noise + self._prior[np.ix_(owner, owner)], self._prior[owner])
        mean = average.mean() + gain.T @ (average - average.mean())
        covariance = self._prior - self._prior[:, owner] @ gain
        return _Posterior(mean, (covariance + covariance.T) / 2, second, of_process, steady)

    def _meets(self, rng: np.random.Generator, times: Floats) -> tuple[Flags, Flags]:
        """Flags (DRAWS x K): the limit is met, and it is met within the tolerance."""
        strict, tolerant = np.ones((2, *times.shape), bool)
        if isinstance(self._limit, TimeLimit):
            over = times - times[:, [self._reference]] - log(self._limit.most)
            over[:, self._reference] = -inf
            strict, tolerant = over <= 0, (over <= TOLERANCE) & ~self._bad[self._reference]
        elif self._limit is not None:  # of unmeasured ones only the mean is known, which is below a high percentile
            strict = times + self._log_size + self._per_iteration() < log(self._limit.bound_s)
            tolerant = strict.copy()
            for k, counts in self._counts().items():
                strict[:, k], tolerant[:, k] = self._limit.draws(rng, counts)
        return strict, tolerant

    def _counts(self) -> dict[int, NDArray[np.int64]]:
        """Counts of iterations by candidate, blocks x (all, over, over by more than 1 %)."""
        blocks: dict[int, list[tuple[int, int, int]]] = {}
        for visit in self._visits:
            blocks.setdefault(visit.candidate, []).extend(visit.counts)
        return {k: np.array(counts) for k, counts in blocks.items() if counts}

    def _per_iteration(self) -> float:
        """Log of samples per iteration over size: 0 where the size is the batch."""
        known = [(visit, sum(block[0] for block in visit.counts)) for visit in self._visits if visit.counts]
        logs = [log(v.seconds / n) - v.log_time - self._log_size[v.candidate] for v, n in known]
        return float(np.median(logs)) if logs else 0.0

    def _nearest(self) -> tuple[int, float] | None:
        """The candidate with the smallest share of iterations over the limit, of equal ones the fastest; the share."""
        shares = {k: float(c[:, 1].sum() / c[:, 0].sum()) for k, c in self._counts().items() if not self._bad[k]}
        pace = self._state().time.mean + self._log_size
        nearest = min(shares, key=lambda k: (shares[k], pace[k]), default=None)
        return None if nearest is None else (nearest, shares[nearest])

    def _saving(self, best: int) -> tuple[float, float]:
        """Relative saving against the reference (95 %), by all visits.

        That the least of several was picked makes it look low: the interval is simultaneous over the last contenders
        (Bonferroni), which on simulated spaces is narrower than that of the confirming visits alone, and as true.
        """
        state = self._state()
        difference, error = state.energy.above(self._reference)
        half = student(1 - 0.025 / len(state.contenders), state.energy.degrees) * error[best]
        return -expm1(difference[best] + half), -expm1(difference[best] - half)


def _prior(candidates: Sequence[Candidate]) -> Floats:
    """Covariance (K x K) of log quantities before any visit.

    A common level and curve over log size, effects of each value of a branch, their interaction, and roughness of 3 %
    (kernels are chosen by size). Curves have a length of three octaves.
    """
    octaves = np.log2([candidate.size for candidate in candidates])
    curve = np.exp(-0.5 * ((octaves[:, None] - octaves) / 3) ** 2)
    branches = np.array([candidate.branch for candidate in candidates])
    same = branches[:, None, :] == branches[None, :, :]
    effects = 0.3 * same.sum(2) * (0.5 + 0.5 * curve) + 0.04 * same.all(2) * curve
    return np.asarray(4 + 2 * curve + effects + 0.03**2 * np.eye(len(candidates)))


def _indices(flags: Flags) -> tuple[int, ...]:
    return tuple(int(k) for k in np.flatnonzero(flags))
