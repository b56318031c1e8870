"""The setting of least energy per sample under a limit, by racing: which to visit next, and what then holds.

The posterior of log energy (``mixed``) is drawn many times; the two settings that are least in each draw are visited
next (top-two sampling: Russo, Operations Research 68, 2020). The race has chosen when the regret, the energy of the
choice over the least of a draw, is at most the goal in 98 % of draws. Then further processes visit winner, runner-up
and reference by turns, so that the promise does not rest on the luck that chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import ceil, exp, expm1, inf, log, log1p, nan, sqrt
from typing import Final, Literal

import numpy as np

from jouletrace.campaign.limits import FAR, Counts, log_evidence, summed
from jouletrace.campaign.mixed import Flags, Floats, Integers, Posterior, ends_and_middles, fit, prior
from jouletrace.stats.quantiles import student

# Numbers without another source are those by which benchmarks/tune_sim.py meets its goals on spaces of seeds 0 and 2.
EVIDENCE: Final = log(20)  # from which a share meets its limit: wrong of 5 % of settings at most, over all looks
ALPHA: Final = 0.02  # error permitted to limit and regret each; with the saving's 5 %, a promise fails in under a tenth
DRAWS: Final = 600  # twelve are beyond the 98 % quantile
ALL_BELOW: Final = 30  # fewer candidates are all visited in the first process
MOST_PROCESSES: Final = 20  # then the race ends as it stands
MOST_FOR_LIMIT: Final = 12  # processes after which a candidate's limit counts as undecidable
CONFIRMING: Final = 2  # processes after the choice; a third makes no promise truer
CONTENDERS: Final = 12  # of a process
VISIT_S: Final = (2.0, 25.0)  # of a candidate in a process after the first
TOLERANCE: Final = log1p(FAR)  # a limit counts as met if times 1 % lower met it: a sharper test takes most of the time
OF_SAVING: Final = 0.1  # half-width of a large saving, as a share of it: of 50 % it decides no more than 5 points do
EQUAL: Final = 0.02  # largest difference of equals, and half-width of the saving


@dataclass(frozen=True)
class Candidate:
    """A setting: ``size`` is its ordered dimension (batch; 1.0 without one), ``branch`` its values of the others."""

    size: float
    branch: tuple[str, ...]


@dataclass(frozen=True)
class Visit:
    """A candidate measured once in a process; logarithms are natural ones."""

    candidate: int
    process: int  # number of the process, from 0
    seconds: float  # measured time
    log_energy: float  # of joules per sample
    sd_energy: float  # its standard deviation by the scatter of the visit's windows alone; nan if there was one window
    log_time: float  # of seconds per sample
    sd_time: float
    counts: Counts = ()  # of iterations over the limit
    host_bound: bool = False  # the GPU waits for the host
    timed_s: float = 0.0  # of the iterations that are counted; 0: those of the visit


@dataclass(frozen=True)
class ShareLimit:
    """At most this share of iterations may take longer than ``bound_s`` (p99: a share of 0.01)."""

    bound_s: float
    share: float = 0.01

    @cached_property
    def iterations(self) -> int:
        """Iterations of which none may be over the limit, to show that it is met: 377 for p99."""
        return next(n for n in count(1) if log_evidence(0, n, self.share) >= EVIDENCE)

    def judge(self, rng: np.random.Generator, records: Sequence[Counts]) -> tuple[Flags, bool]:
        """Flags (DRAWS) that the limit is met, by Jeffreys' prior; and whether it surely is within the tolerance.

        Counts are divided by their overdispersion.
        """
        (n, *overs), dispersion = summed(records)
        over, far = np.array(overs) / dispersion
        drawn = rng.beta(over + 0.5, n / dispersion - over + 0.5, DRAWS) < self.share
        return np.asarray(drawn), log_evidence(far, n / dispersion - far, self.share) >= EVIDENCE


@dataclass(frozen=True)
class TimeLimit:
    """Time per sample may be at most ``most`` times that of the reference, which always qualifies."""

    most: float = 1.03


@dataclass(frozen=True)
class Verdict:
    """Outcome of a race, in indices of candidates; energies are per sample, intervals 95 %, of this GPU now.

    The outcome is ``none`` if no candidate meets the limit and ``undecided`` if none surely does. ``undecided`` names
    candidates whose limit is undecided, with their relative saving against the reference (nan if that failed); beside a
    choice only those that would take less, which ``within`` does not cover.
    """

    outcome: Literal["chosen", "none", "undecided"]
    processes: int
    measured: tuple[int, ...]
    failed: tuple[int, ...]
    best: int | None = None
    saving: tuple[float, float] | None = None  # relative, of the choice against the reference, unless that failed
    within: float = nan  # the choice takes at most this fraction more than the least of all that meet the limit
    equal: tuple[int, ...] = ()  # differ from the choice by at most 2 %: abs(difference) + 2 standard errors
    indistinct: tuple[int, ...] = ()  # other measured ones that differ from it by at most 2 standard errors
    undecided: tuple[tuple[int, float], ...] = ()
    nearest: tuple[int, float] | None = None  # with "none": the one with the least share of iterations over; that share


@dataclass(frozen=True)
class _RaceState:
    """State of knowledge by the visits; flags (K) of limits that are surely met, may be met, remain undecided."""

    energy: Posterior
    time: Posterior
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
        visit_s: Seconds that a visit takes beside those that are measured: building, warming up.
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
        visit_s: float = 4.0,
        goal: float = 0.01,
    ) -> None:
        self._candidates, self._reference, self._limit = tuple(candidates), reference, limit
        self._seed, self._start_s, self._visit_s, self._goal = seed, start_s, visit_s, log1p(goal)
        self._log_size = np.log([one.size for one in candidates])
        self._prior = prior(self._log_size, [one.branch for one in candidates])
        self._visits: list[Visit] = []
        self._bad = np.zeros(len(candidates), bool)
        self._finalists: tuple[int, ...] = ()  # winner and runner-up
        self._since = 0  # the first process after they were chosen
        self._known: _RaceState | None = None

    def plan(self) -> list[tuple[int, float]]:
        """Visits of the next process in their order, as (candidate, seconds); empty when the race is decided."""
        rng = np.random.default_rng([self._seed, len(self._visits), 1])
        seen = {visit.candidate for visit in self._visits}
        if seen <= {self._reference} and (first := [k for k in self._first() if k not in seen]):
            return [(int(k), 1.0) for k in rng.permutation(first)]
        if not self._visits:
            return []
        wanted = self._wanted()
        if wanted and not self._bad[self._reference]:
            wanted |= {self._reference}
        order = [int(k) for k in rng.permutation(sorted(wanted))]
        return [(k, self._seconds(k, len(order))) for k in order]

    def add(self, visit: Visit) -> None:
        """Take in a visit."""
        if self._visits and visit.process > self._visits[-1].process:
            self._wanted()  # a resumed race, whose plans are not made again, chooses finalists as before
        self._visits.append(visit)
        self._known = None

    def fail(self, candidate: int) -> None:
        """Leave out a candidate that ran out of memory or failed."""
        self._bad[candidate] = True
        self._known = None

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
        equal = others & state.sure & (np.abs(difference) + 2 * error <= EQUAL)
        indistinct = others & ~equal & (np.abs(difference) <= 2 * error)
        saving, equals = None if lost else self._saving(best), (_indices(equal), _indices(indistinct))
        return Verdict("chosen", *about, best, saving, expm1(state.regret), *equals, undecided)

    def _seen(self) -> Integers:
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
        left = set(_indices(~self._bad))
        first = left & {self._reference, *ends_and_middles(self._log_size, [one.branch for one in self._candidates])}
        return sorted(left if len(self._bad) < ALL_BELOW or not first else first)

    def _wanted(self) -> set[int]:
        """Candidates of the next process, the reference apart; none when the race is decided."""
        state, lost, process = self._state(), bool(self._bad[self._reference]), self._visits[-1].process + 1
        if process >= MOST_PROCESSES or self._bad.all() or (lost and isinstance(self._limit, TimeLimit)):
            return set()
        if not state.maybe.any():  # the fastest by the curves has to show that none meets the limit
            fastest = int(np.argmin(np.where(self._bad, inf, state.time.mean + self._log_size)))
            return set() if self._seen()[fastest] else {fastest}
        if (best := state.best) is None or state.regret > self._goal:
            return set(state.contenders)
        if best not in self._finalists:
            self._finalists, self._since = (best, *[k for k in state.contenders if k != best][:1]), process
        if len(self._finalists) == 1 and (lost or best == self._reference):
            return set()  # nothing to compare with
        confirmed = {v.process for v in self._visits if v.candidate == best and v.process >= self._since}
        low, high = (0.0, 0.0) if lost else self._saving(best)
        known = high - low <= 2 * max(EQUAL, OF_SAVING * (low + high) / 2)
        done = len(confirmed) >= CONFIRMING and known
        return set() if done else set(self._finalists)

    def _seconds(self, k: int, together: int) -> float:
        """Seconds of a candidate in a process that visits so many candidates.

        The variance for the cost is least where seconds are the root of the variance of a second over that of a
        process, times what a visit costs besides (Cochran, Sampling Techniques, 1977, eq. 10.26).
        """
        state = self._state()
        own_s = self._visit_s + self._start_s / together
        seconds = sqrt(state.energy.second[k] / state.energy.process[k] * own_s)
        if isinstance(self._limit, ShareLimit) and k in state.contenders and state.maybe[k] and not state.sure[k]:
            iteration_s = exp(state.time.mean[k] + self._log_size[k] + self._per_iteration())
            seconds = max(seconds, 1.3 * self._limit.iterations * iteration_s)
        return float(np.clip(ceil(seconds), *VISIT_S))

    def _state(self) -> _RaceState:
        """State of knowledge by the visits so far, computed once."""
        if self._known is not None:
            return self._known
        rng, seen = np.random.default_rng([self._seed, len(self._visits), 0]), self._seen()
        energy = self._fit([visit.log_energy for visit in self._visits], [visit.sd_energy for visit in self._visits])
        time = self._fit([visit.log_time for visit in self._visits], [visit.sd_time for visit in self._visits])
        draws = energy.draws(rng, DRAWS)
        strict, sure = (flags & ~self._bad for flags in self._meets(rng, time.draws(rng, DRAWS)))
        sure &= seen > 0
        strict |= sure  # within the tolerance of the limit is met
        maybe = strict.mean(0) > ALPHA / 4
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
        least_votes = 0 if best is None else ALPHA * DRAWS / 4
        contenders = [int(k) for k in np.argsort(-votes)[:CONTENDERS] if votes[k] > least_votes]
        contenders += [best] if best is not None and best not in contenders else []
        self._known = _RaceState(energy, time, sure, maybe, open_, best, regret, contenders)
        return self._known

    def _fit(self, value: Sequence[float], sd: Sequence[float]) -> Posterior:
        """The posterior of a log quantity by its values in the visits and their standard deviations."""
        setting, process = np.array([(visit.candidate, visit.process) for visit in self._visits]).T
        seconds = np.array([visit.seconds for visit in self._visits])
        late = np.zeros(len(self._bad), bool)
        late[[visit.candidate for visit in self._visits if visit.host_bound]] = True
        return fit(self._prior, setting, process, seconds, late, np.array(value), np.array(sd))

    def _meets(self, rng: np.random.Generator, times: Floats) -> tuple[Flags, Flags]:
        """Flags that the limit is met (DRAWS x K), and that it is surely met within the tolerance (K)."""
        strict, sure = np.ones(times.shape, bool), np.ones(times.shape[1], bool)
        if isinstance(self._limit, TimeLimit):
            over = times - times[:, [self._reference]] - log(self._limit.most)
            over[:, self._reference] = -inf
            lost = self._bad[self._reference]
            strict, sure = (over <= 0) | lost, ((over <= TOLERANCE).mean(0) >= 1 - ALPHA) & ~lost
        elif self._limit is not None:  # of unmeasured ones only the mean is known, which is below a high percentile
            strict = times + self._log_size + self._per_iteration() < log(self._limit.bound_s)
            sure[:] = False
            for k, records in self._records().items():
                strict[:, k], sure[k] = self._limit.judge(rng, records)
        return strict, sure

    def _records(self) -> dict[int, list[Counts]]:
        """Counts of iterations by candidate, of each of its visits."""
        records: dict[int, list[Counts]] = {}
        for visit in self._visits:
            if visit.counts:
                records.setdefault(visit.candidate, []).append(visit.counts)
        return records

    def _per_iteration(self) -> float:
        """Log of samples per iteration over size: 0 where the size is the batch."""
        known = [(visit, sum(block[0] for block in visit.counts)) for visit in self._visits if visit.counts]
        logs = [log((v.timed_s or v.seconds) / n) - v.log_time - self._log_size[v.candidate] for v, n in known]
        return float(np.median(logs)) if logs else 0.0

    def _nearest(self) -> tuple[int, float] | None:
        """The candidate with the smallest share of iterations over the limit, of equal ones the fastest; the share."""
        totals = {k: np.concatenate(records).sum(0) for k, records in self._records().items() if not self._bad[k]}
        pace = self._state().time.mean + self._log_size
        shares = [(float(over / n), pace[k], k) for k, (n, over, _) in totals.items()]
        return min(shares)[::-2] if shares else None

    def _saving(self, best: int) -> tuple[float, float]:
        """Relative saving against the reference (95 %), by all visits.

        Picked as the least, the choice looks low: the interval is simultaneous over the last contenders (Bonferroni).
        On simulated spaces it is narrower than that of confirming visits alone, and true more often.
        """
        state = self._state()
        difference, error = state.energy.above(self._reference)
        half = student(1 - 0.025 / len(state.contenders), state.energy.degrees) * error[best]
        return 1 - exp(difference[best] + half), 1 - exp(difference[best] - half)


def _indices(flags: Flags) -> tuple[int, ...]:
    return tuple(int(k) for k in np.flatnonzero(flags))
