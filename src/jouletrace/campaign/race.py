"""The setting of least energy per sample under a limit, by racing: what to visit next, and what then holds.

Log energy and log time of a setting are smooth curves over the log of its size, one a branch, plus roughness. A visit
differs from them by the effect of its process and by the scatter of its windows. The posterior of this linear Gaussian
model (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.25) is drawn many times; the two
settings that are least in each draw are visited next (top-two sampling: Russo, Operations Research 68, 2020). The race
has chosen when the regret, the energy of the choice over the least of a draw, is at most the goal in 98 % of draws.
Then fresh processes visit winner, runner-up and reference by turns: their visits alone give the promised saving,
because those that led to the choice are low by selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log, log1p, nan, sqrt
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Outcome = Literal["chosen", "none", "undecided"]

ALPHA: Final = 0.02
"""Permitted error of each of limit and regret; with the saving's 5 %, a whole promise fails in less than a tenth."""
DRAWS: Final = 600
"""Draws of the posterior: twelve are beyond its 98 % quantile."""
ALL_BELOW: Final = 30
"""With fewer candidates every process visits all: on simulated spaces a race then saves little."""
MOST_PROCESSES: Final = 16
"""Processes after which the race ends, decided or not."""
CONFIRMING: Final = 2
"""Least number of processes after the choice; a third changes no promise on simulated spaces."""
CONTENDERS: Final = 12
"""Most candidates of a process after the first."""
PROCESS_SD: Final = 0.007
"""Prior of the standard deviation of log energy between processes, and its degrees of freedom: 0.3 to 1 % on H100s."""
PROCESS_DEGREES: Final = 6
LEAST_SD: Final = 0.003
"""Least standard deviation of a process, and of a second: below, sensors' own drift is larger."""
WINDOW_SD: Final = {False: 0.01, True: 0.12}
"""Scatter of a second of log energy before any is known: of steady settings, and of those whose host is late."""
WINDOW_DEGREES: Final = 3
HOST_SHARE: Final = 0.1
"""Share of a late host's variance of windows that a whole process has in common, before it is known."""
VISIT_S: Final = (2.0, 25.0)
"""Least and most seconds of a candidate in a process after the first."""
TOLERANCE: Final = log(1.01)
"""A limit that is missed by up to 1 % counts as met: a sharper test would need most of the time."""
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


@dataclass(frozen=True)
class TimeLimit:
    """Time per sample may be at most ``most`` times that of the reference, which always qualifies."""

    most: float = 1.03


@dataclass(frozen=True)
class Verdict:
    """Outcome of a race; energies are per sample, intervals 95 %, of this GPU and day.

    Attributes:
        outcome: ``none``: no candidate meets the limit; ``undecided``: none surely does, or the promise is unconfirmed.
        best: Index of the choice, or None.
        saving: Low and high end of the relative saving against the reference; None without a choice or a reference.
        within: The choice takes at most this fraction more than the least of all that meet the limit.
        equal: Candidates that differ from the choice by at most 2 %: abs(difference) + 2 standard errors.
        indistinct: Measured ones whose difference from the choice is within 2 standard errors but not surely small.
        undecided: Candidates that might meet the limit and take less than the choice, with their relative saving
            against the reference (nan without one); ``within`` does not cover them.
        nearest: Where none meets the limit, the candidate with the fewest iterations over it, and their share.
        processes: Number of processes.
        measured: Candidates with visits.
        failed: Candidates that failed.
    """

    outcome: Outcome
    best: int | None
    saving: tuple[float, float] | None
    within: float
    equal: tuple[int, ...]
    indistinct: tuple[int, ...]
    undecided: tuple[tuple[int, float], ...]
    nearest: tuple[int, float] | None
    processes: int
    measured: tuple[int, ...]
    failed: tuple[int, ...]


@dataclass(frozen=True)
class _Variances:
    """Variances of a log quantity of K candidates: of one second (K), of a process (K), and the latter's degrees."""

    second: Floats
    process: Floats
    degrees: float


@dataclass(frozen=True)
class _State:
    """What the visits so far imply: log energies with standard errors, and what meets the limit.

    ``regret`` is the 98 % quantile of the best's log energy over the least of all that meet the limit;
    ``regret_of_decided`` leaves out measured candidates of which that is undecided.
    """

    mean: Floats
    covariance: Floats
    variances: _Variances
    time: Floats
    seen: Flags
    sure: Flags
    maybe: Flags
    best: int | None
    regret: float
    regret_of_decided: float
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
        self._size = np.log([candidate.size for candidate in candidates])
        self._prior = _prior(self._candidates)
        self._visits: list[Visit] = []
        self._bad = np.zeros(len(candidates), bool)
        self._finalists: tuple[int, ...] = ()
        self._since = 0  # the first process that confirms them
        self._known: tuple[tuple[int, int], _State] | None = None

    def plan(self) -> list[tuple[int, float]]:
        """Visits of the next process in their order, as (candidate, seconds); empty when the race is decided."""
        rng = np.random.default_rng([self._seed, len(self._visits), 1])
        if not self._visits:
            return [(int(k), 1.0) for k in rng.permutation(self._first()) if not self._bad[k]]
        wanted = self._wanted()
        if wanted and not self._bad[self._reference]:
            wanted = wanted | {self._reference}
        order = [int(k) for k in rng.permutation(sorted(wanted))]
        seconds = {k: self._seconds(k, len(order)) / 2 for k in order}
        return [(k, seconds[k]) for k in order + order[::-1]]  # there and back: a linear drift cancels

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
        counts = np.bincount([visit.candidate for visit in self._visits], minlength=len(self._bad))
        measured, failed = np.flatnonzero((counts > 0) & ~self._bad), np.flatnonzero(self._bad)
        about = (len({visit.process for visit in self._visits}), _indices(measured), _indices(failed))
        if not len(measured):
            return Verdict("none" if self._bad.all() else "undecided", None, None, nan, (), (), (), None, *about)
        state, saving = self._state(), None
        open_ = state.maybe & state.seen & ~state.sure
        if (best := state.best) is None:
            if not state.maybe.any():
                return Verdict("none", None, None, nan, (), (), (), self._nearest(_indices(measured)), *about)
            undecided = tuple((int(k), self._saves(state, int(k))) for k in np.flatnonzero(open_))
            return Verdict("undecided", None, None, nan, (), (), undecided, None, *about)
        difference = state.mean - state.mean[best]
        variance = np.diag(state.covariance) + state.covariance[best, best] - 2 * state.covariance[best]
        error = np.sqrt(np.maximum(variance, 0))
        others = state.maybe & state.seen & (np.arange(len(self._bad)) != best)
        equal = others & (np.abs(difference) + 2 * error <= EQUAL)
        indistinct = others & ~equal & (np.abs(difference) <= 2 * error)
        unsettled = state.regret > self._goal
        undecided = tuple(
            (int(k), self._saves(state, int(k))) for k in np.flatnonzero(open_ & (difference < 0)) if unsettled
        )
        within = expm1(state.regret_of_decided if undecided else state.regret)
        if not self._bad[self._reference]:
            saving = self._saving(best)
        outcome: Outcome = "undecided" if saving is None and not self._bad[self._reference] else "chosen"
        return Verdict(outcome, best, saving, within, _indices(equal), _indices(indistinct), undecided, None, *about)

    def _first(self) -> list[int]:
        """Candidates of the first process: ends and middle of each branch, the reference; all if they are few."""
        if len(self._candidates) < ALL_BELOW:
            return list(range(len(self._candidates)))
        branches: dict[tuple[str, ...], list[int]] = {}
        for k in np.argsort(self._size, kind="stable"):
            branches.setdefault(self._candidates[k].branch, []).append(int(k))
        chosen = {self._reference}
        for members in branches.values():
            chosen |= {members[round(i)] for i in np.linspace(0, len(members) - 1, 4 if len(members) > 6 else 3)}
        return sorted(chosen)

    def _wanted(self) -> set[int]:
        """Candidates of the next process besides the reference; none when the race is decided."""
        state, failed = self._state(), bool(self._bad[self._reference])
        if len({visit.process for visit in self._visits}) >= MOST_PROCESSES or self._bad.all():
            return set()
        if isinstance(self._limit, TimeLimit) and failed:
            return set()  # nothing to compare times with
        if not state.maybe.any():  # the fastest by the curves shows that none meets the limit
            fastest = int(np.argmin(np.where(self._bad, inf, state.time + self._size)))
            return set() if state.seen[fastest] else {fastest}
        if state.best is None or state.regret > self._goal:
            few = len(self._candidates) < ALL_BELOW
            return set(np.flatnonzero(state.maybe)) if few else set(state.contenders)
        if state.best not in self._finalists:
            rivals = [k for k in state.contenders if k != state.best]
            self._finalists, self._since = (state.best, *rivals[:1]), self._visits[-1].process + 1
        confirmed = {v.process for v in self._visits if v.candidate == state.best and v.process >= self._since}
        low, high = (0.0, 0.0) if failed else self._saving(state.best) or (-inf, inf)
        alone = {state.best} == {self._reference} | set(self._finalists)
        done = len(confirmed) >= CONFIRMING and (high - low) / 2 <= SAVING_HALF_WIDTH
        return set() if done or alone else set(self._finalists)

    def _seconds(self, k: int, together: int) -> float:
        """Seconds of a candidate in a process that visits so many: the optimum of nested sampling.

        The variance per second of cost is least where seconds are the root of the variance of a second over that of
        a process, times the cost of a process' start (Cochran, Sampling Techniques, 1977, eq. 10.27).
        """
        state = self._state()
        variances = state.variances
        seconds = ceil(sqrt(variances.second[k] / variances.process[k] * self._start_s / together))
        if isinstance(self._limit, ShareLimit) and state.seen[k] and state.maybe[k] and not state.sure[k]:
            seconds = max(
                seconds, ceil(1.3 * self._needed() * exp(state.time[k] + self._size[k] + self._per_iteration()))
            )
        return float(min(max(seconds, VISIT_S[0]), VISIT_S[1]))

    def _state(self) -> _State:
        """What the visits so far imply; computed once for the same visits and failures."""
        key = (len(self._visits), int(self._bad.sum()))
        if self._known is None or self._known[0] != key:
            self._known = key, self._computed()
        return self._known[1]

    def _computed(self) -> _State:
        rng = np.random.default_rng([self._seed, len(self._visits), 0])
        mean, covariance, variances = self._fit([visit.log_energy for visit in self._visits], self._sd("energy"))
        time, of_time, variances_of_time = self._fit([visit.log_time for visit in self._visits], self._sd("time"))
        energies = _draws(rng, mean, covariance, variances.degrees)
        times = _draws(rng, time, of_time, variances_of_time.degrees)
        strict, tolerant = (flags & ~self._bad for flags in self._meets(rng, times))
        seen = np.bincount([visit.candidate for visit in self._visits], minlength=len(self._bad)) > 0
        sure, maybe = seen & (tolerant.mean(0) >= 1 - ALPHA), strict.mean(0) > ALPHA / 4
        low = np.where(strict, energies, inf)
        best, regret, regret_of_decided = None, inf, inf
        if sure.any():
            choices = np.flatnonzero(sure)
            regrets = [_regret(energies[:, k], low) for k in choices]
            i = np.lexsort((mean[choices], np.round(regrets, 4)))[0]
            best, regret = int(choices[i]), regrets[i]
            regret_of_decided = _regret(energies[:, best], np.where(sure | ~seen, low, inf))
        least = np.argsort(low, axis=1)[np.isfinite(low.min(1)), :2]
        votes = np.bincount(least.ravel(), np.tile([1.0, 0.5], len(least))[: least.size], len(self._bad))
        contenders = [int(k) for k in np.argsort(-votes)[:CONTENDERS] if votes[k] > ALPHA * DRAWS / 4]
        contenders += [best] if best is not None and best not in contenders else []
        return _State(mean, covariance, variances, time, seen, sure, maybe, best, regret, regret_of_decided, contenders)

    def _sd(self, quantity: str) -> list[float]:
        return [getattr(visit, f"sd_{quantity}") for visit in self._visits]

    def _fit(self, values: Sequence[float], deviations: Sequence[float]) -> tuple[Floats, Floats, _Variances]:
        """Posterior means (K) and covariance (K x K) of a log quantity from its values in the visits, and variances."""
        total = len(self._bad)
        candidate = np.array([visit.candidate for visit in self._visits])
        process = np.array([visit.process for visit in self._visits])
        seconds = np.array([visit.seconds for visit in self._visits])
        host = np.zeros(total, bool)
        host[[visit.candidate for visit in self._visits if visit.host_bound]] = True
        value, deviation = np.array(values), np.array(deviations)
        group, member = np.unique(candidate * (process.max() + 1) + process, return_inverse=True)
        owner = group // (process.max() + 1)  # the candidate of each group: its visits in a process
        duration = np.bincount(member, seconds)
        average = np.bincount(member, seconds * value) / duration
        # scatter of a second: within visits, by windows of a second, and between visits in a process
        within = np.where(np.isfinite(deviation), np.maximum(seconds - 1, 0), 0)
        squares = seconds * (value - average[member]) ** 2 + within * seconds * np.nan_to_num(deviation) ** 2
        squares = np.bincount(candidate, squares, total)
        degrees = np.bincount(candidate, within + 1, total) - np.bincount(owner, minlength=total)
        second = np.empty(total)
        for late, usual in WINDOW_SD.items():
            own = host == late
            pooled = (WINDOW_DEGREES * usual**2 + squares[own].sum()) / (WINDOW_DEGREES + degrees[own].sum())
            second[own] = (WINDOW_DEGREES * pooled + squares[own]) / (WINDOW_DEGREES + degrees[own])
        second = np.maximum(second, LEAST_SD**2)
        groups = np.bincount(owner, minlength=total)
        center = np.bincount(owner, average, total) / np.maximum(groups, 1)
        excess = (average - center[owner]) ** 2 - second[owner] / duration * (1 - 1 / groups[owner])
        free = {late: float(np.maximum(groups[host == late] - 1, 0).sum()) for late in (False, True)}
        between = PROCESS_DEGREES * PROCESS_SD**2 + max(excess[~host[owner]].sum(), 0)
        common = PROCESS_DEGREES * HOST_SHARE + (excess / second[owner])[host[owner]].sum()
        share = max(common / (PROCESS_DEGREES + free[True]), HOST_SHARE / 5)
        of_process = max(between / (PROCESS_DEGREES + free[False]), LEAST_SD**2) + host * share * second
        noise = np.diag(of_process[owner] + second[owner] / duration)
        gain = np.linalg.solve(noise + self._prior[np.ix_(owner, owner)], self._prior[owner])
        covariance = self._prior - self._prior[:, owner] @ gain
        mean = average.mean() + gain.T @ (average - average.mean())
        return mean, (covariance + covariance.T) / 2, _Variances(second, of_process, PROCESS_DEGREES + free[False])

    def _meets(self, rng: np.random.Generator, times: Floats) -> tuple[Flags, Flags]:
        """Flags (draws x K): the limit is met, and it is met within the tolerance."""
        strict, tolerant = np.ones((2, *times.shape), bool)
        if isinstance(self._limit, TimeLimit):
            over = times - times[:, [self._reference]] - log(self._limit.most)
            over[:, self._reference] = -inf
            strict, tolerant = over <= 0, (over <= TOLERANCE) & ~self._bad[self._reference]
        elif self._limit is not None:
            strict = times + self._size + self._per_iteration() < log(self._limit.bound_s)  # p99 is above the mean
            tolerant = strict.copy()
            for k, counts in self._counts().items():
                blocks, deflation = counts.sum(0), _overdispersion(counts)
                for flags, over in ((strict, blocks[1]), (tolerant, blocks[2])):
                    hits, misses = over / deflation + 0.5, (blocks[0] - over) / deflation + 0.5
                    flags[:, k] = rng.beta(hits, misses, len(times)) < self._limit.share  # Jeffreys' prior
                tolerant[:, k] &= blocks[0] >= self._needed()
        return strict, tolerant

    def _needed(self) -> int:
        """Iterations of which none may be over a limit, to show a share with 95 %: 299 for p99."""
        assert isinstance(self._limit, ShareLimit)
        return ceil(log(0.05) / log1p(-self._limit.share))

    def _counts(self) -> dict[int, Counts]:
        """Counts of iterations by candidate, blocks x (all, over, over by more than 1 %)."""
        blocks: dict[int, list[tuple[int, int, int]]] = {}
        for visit in self._visits:
            if visit.counts:
                blocks.setdefault(visit.candidate, []).extend(visit.counts)
        return {k: np.array(counts) for k, counts in blocks.items()}

    def _per_iteration(self) -> float:
        """Log of samples per iteration over size: 0 where the size is the batch."""
        iterations = [(visit, sum(block[0] for block in visit.counts)) for visit in self._visits if visit.counts]
        logs = [log(v.seconds / n) - v.log_time - self._size[v.candidate] for v, n in iterations]
        return float(np.median(logs)) if logs else 0.0

    def _nearest(self, measured: tuple[int, ...]) -> tuple[int, float]:
        """The candidate with the least share of iterations over the limit, and of these the fastest; and the share."""
        counts = self._counts()
        shares = {k: float(counts[k][:, 1].sum() / counts[k][:, 0].sum()) for k in measured if k in counts}
        pace = self._state().time + self._size
        nearest = min(shares, key=lambda k: (shares[k], pace[k]))
        return int(nearest), shares[nearest]

    def _saves(self, state: _State, k: int) -> float:
        """Relative saving of energy per sample by a candidate against the reference; nan if that failed."""
        return nan if self._bad[self._reference] else -expm1(state.mean[k] - state.mean[self._reference])

    def _saving(self, best: int) -> tuple[float, float] | None:
        """Relative saving against the reference (95 %); None without confirming visits of both.

        It comes from processes after the choice alone: those before it made the choice look low.
        """
        if best == self._reference:
            return 0.0, 0.0
        state, totals = self._state(), []
        for k in (best, self._reference):
            weights, weighted = 0.0, 0.0
            for process in {visit.process for visit in self._visits if visit.process >= self._since}:
                own = [v for v in self._visits if (v.candidate, v.process) == (k, process)]
                if seconds := sum(visit.seconds for visit in own):
                    weight = 1 / (state.variances.process[k] + state.variances.second[k] / seconds)
                    weights += weight
                    weighted += weight * sum(visit.log_energy * visit.seconds for visit in own) / seconds
            if not weights:
                return None
            totals.append((weighted / weights, 1 / weights))
        difference, error = totals[0][0] - totals[1][0], sqrt(totals[0][1] + totals[1][1])
        half = student(0.975, state.variances.degrees) * error
        return -expm1(difference + half), -expm1(difference - half)


def _prior(candidates: Sequence[Candidate]) -> Floats:
    """Covariance (K x K) of log energies before any is known, in units of e-folds squared.

    A common level and a common curve over log size, effects of each value of a branch, their interaction, and roughness
    of 3 % (kernels are chosen by size). Sizes correlate over three octaves.
    """
    octaves = np.log2([candidate.size for candidate in candidates])
    curve = np.exp(-0.5 * ((octaves[:, None] - octaves) / 3) ** 2)
    branches = np.array([candidate.branch for candidate in candidates])
    same = branches[:, None, :] == branches[None, :, :]
    effects = 0.3 * same.sum(2) * (0.5 + 0.5 * curve)
    return np.asarray(4 + 2 * curve + effects + 0.04 * same.all(2) * curve + 0.03**2 * np.eye(len(candidates)))


def _draws(rng: np.random.Generator, mean: Floats, covariance: Floats, degrees: float) -> Floats:
    """Student's draws (DRAWS x K) of a posterior: its variances are estimates of few degrees of freedom."""
    root = np.linalg.cholesky(covariance + 1e-7 * np.eye(len(mean)))
    scale = np.sqrt(degrees / rng.chisquare(degrees, (DRAWS, 1)))
    return np.asarray(mean + rng.normal(size=(DRAWS, len(mean))) @ root.T * scale)


def _regret(own: Floats, low: Floats) -> float:
    """The quantile of a candidate's draws over the least of each draw."""
    return float(np.quantile(np.maximum(own - low.min(1), 0), 1 - ALPHA))


def _overdispersion(counts: Counts) -> float:
    """Variance of blocks' counts over the binomial's, at least 1: iterations over a limit come together."""
    if len(counts) < 3:
        return 1.0
    blocks, over = counts[:, 0], counts[:, 1]
    share = (over.sum() + 0.5) / (blocks.sum() + 1)
    squares = ((over - share * blocks) ** 2 / (blocks * share * (1 - share))).sum()
    return float(max(1.0, (squares + 2) / (len(counts) + 1)))


def _indices(values: NDArray[np.intp] | Flags) -> tuple[int, ...]:
    """Indices, or those of flags that are set, as a tuple."""
    return tuple(int(k) for k in (np.flatnonzero(values) if values.dtype == bool else values))
