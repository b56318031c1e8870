"""Energies of spans from a log: readings of the power itself, far apart.

Between two readings of a log nothing is seen. Power is a level with a fluctuation of exponential memory (Ornstein and
Uhlenbeck 1930); its energy between two readings has a mean, which is linear in them, and a variance of its own. Memory
and size are summed over a grid. A load that is slower than the readings and one whose cycles almost fit between them
give the same readings, but of the second they don't show what lies between. So each grid point of a short memory counts
twice, once as a load whose energies the readings don't show at all.

Jobs are analysed one by one: of a log of all, idle time would dilute what fluctuates at work. While readings hardly
change for long, energy is their mean, and what each change leaves unknown is independent of the others.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Indices, Mask
from jouletrace.attribution.chains import Chain, precision, share_of
from jouletrace.attribution.outcome import ALIASED_LOG, HOLES
from jouletrace.attribution.solve import Energies, Problem, Solution, Unknowns, Unseen, mixture, solve_each
from jouletrace.sensor.power_record import HOLE_PERIODS
from jouletrace.stats.interval import Z95

MEMORIES, SIZES = np.geomspace(0.1, 100, 16), np.geomspace(0.35, 4, 6)
"""Grid: the fluctuation's memory over the time between readings, its variance over that of the readings."""

_HIDDEN_MEMORY = 2.0
"""Memory that readings show over the time between them, below which a load may as well cycle between two of them: the
odds are even. A longer memory would be a coincidence: cycles that scatter by less than a sixth about that time. Of 444
logs with 0.1 to 2 s between readings, thinned from 34 records of real GPUs, 80 to 96 % hold by their spacing; without
such cycles 72 to 96 %."""

_RHYTHM, _MOST_PHASES, _CYCLES = 0.2, 100, 3
"""Share of the readings' variance from which on phases of a rhythm explain it, the most phases that are tried, and the
fewest cycles of it."""

_LEAST_W = 1e-3
"""Noise of a reading: the precision of all states stays finite."""

_SLIPS = 2.5
"""Standard deviations by which changes go with the moments of polls more often than by chance: one log in 160."""

_ENOUGH, _BLOCKS = 4096, 8
"""Of longer logs so many readings, in blocks, choose the grid points that count."""

_STILL, _JUMP = 256, 1 / 8
"""Power stands still while so many readings in a row change by less than this share of their range in the log."""

_LEAST = 16
"""Readings of a job from which on they show how it fluctuates: the changes of a shorter one are taken one by one."""


def fluctuation_chains(
    time_s: Floats, seen: Indices, variance: Floats, memory_s: Floats, hidden_s: Floats
) -> list[Chain]:
    """Powers of g exponential memories, as deviations from a level; n segments between ``time_s``, shape (n + 1,).

    The mean of a segment's energy is that of the bridge between its two ends. With ``hidden_s``, the longest cycle that
    fits between readings, power swings through whole cycles there: readings don't show a segment's energy, whose
    variance comes from the scatter of the cycles. An oscillation of period c whose phase is forgotten with memory m has
    the density variance x 2 m / (1 + (2 pi m / c)²) at rest, which is variance x c² / 2 pi² m for m above c. That is
    taken for shorter memories, too: with the whole formula too few intervals of periodic loads hold.

    Args:
        time_s: Instants, shape (n + 1,).
        seen: The instant that each reading shows, shape (readings,).
        variance: Of each power in W², shape (g,).
        memory_s: Of each, shape (g,).
        hidden_s: Of each, shape (g,); 0 without such cycles.
    """
    h, variance, memory_s, hidden_s = np.diff(time_s), variance[:, None], memory_s[:, None], hidden_s[:, None]
    f, reach = np.exp(-h / memory_s), memory_s * np.tanh(h / (2 * memory_s))
    moved = variance * -np.expm1(-2 * h / memory_s) + 1e-9
    band, log_det = precision(variance, ({0: -f, 1: 1.0}, moved))
    own_variance = np.where(
        hidden_s > 0,
        variance * hidden_s**2 / (2 * np.pi**2 * memory_s) * h,
        2 * variance * memory_s * (h - 2 * reach),
    )
    reach = np.where(hidden_s > 0, 0.0, reach)
    energy = np.stack([reach, reach], axis=2)
    return [Chain(*of, seen) for of in zip(band, log_det.tolist(), energy, own_variance, strict=True)]


def log_energies(times_s: Floats, values_w: Floats, spans: ArrayLike, noise_w: float = 0.5) -> Energies:
    """Energies of spans; NaN, with the reason, if there are none. Those of equal readings have it too.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Momentary powers, shape (n,).
        spans: Starts and ends, shape (s, 2).
        noise_w: Standard deviation of a reading's noise.
    """
    spans, noise_w = np.asarray(spans, np.float64).reshape(-1, 2), max(noise_w, _LEAST_W)
    turns, last = _changes(values_w, noise_w), len(times_s) - 1
    few = len(turns) < 2
    if not few and _slips(times_s, values_w, turns):
        return _alike(np.nan, len(spans))
    moves, still, jobs = np.abs(np.diff(values_w)) > _JUMP * np.ptp(values_w), np.ones(last, bool), []
    for a, b in _jobs(moves):
        still[a:b] = False
        inside = np.clip(spans, times_s[a] if a else -np.inf, times_s[b] if b < last else np.inf)
        jobs.append(job_energies(times_s[a : b + 1], values_w[a : b + 1], inside, noise_w))
    part, own_j = _parts(times_s, values_w, spans, still)
    step_s, hole_j = np.diff(times_s), _hole_j(times_s, values_w)
    # One change lies anywhere between two readings. Where power stands still, it may also come and go there
    changed = np.diff(values_w) ** 2 * np.where(moves, 1 / 12, 1 / 2)
    still_covariance = part.multiply((changed + noise_w**2) * step_s**2 * (still & (hole_j == 0))) @ part.T
    energies = jobs.pop(0) if jobs else _alike(0.0, len(spans))
    moments = [job.moments(np.eye(len(spans))) for job in jobs]
    own_j, still_covariance = (
        own_j + sum(mean for mean, _ in moments),
        still_covariance.toarray() + sum(joint for _, joint in moments),
    )
    holes = np.flatnonzero(hole_j)
    size = np.ones((len(energies.weight), 1, len(spans)))
    return replace(
        energies,
        mean_j=energies.mean_j + own_j,
        covariance=energies.covariance + still_covariance,
        unseen=Unseen(part[:, holes].multiply(hole_j[holes]).tocsr(), size, np.ones(1), HOLES) if len(holes) else None,
        reason=ALIASED_LOG if few else "",
    )


def _alike(energy_j: float, count: int) -> Energies:
    """So many spans of one known energy; the reason is of those that are NaN."""
    each = np.full((1, count), energy_j)
    return Energies(np.ones(1), each, np.zeros((1, count, count)), reason=ALIASED_LOG)


def _jobs(moves: Mask) -> list[tuple[int, int]]:
    """First and last reading of each job: what is left where power stands still, without the changes into that.

    ``moves`` is true for changes from reading to reading that count, shape (n - 1,).
    """
    n, at = len(moves), np.flatnonzero(moves)
    edges = np.unique(np.concatenate([[0, n], at, at + 1]))
    still = np.flatnonzero(np.diff(edges) >= _STILL)
    first, last = edges[np.append(0, still + 1)], edges[np.append(still, len(edges) - 1)]
    begin, end = first + (first > 0), last - (last < n)
    if not len(still):
        return [(0, n)]
    return [(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True) if b - a >= _LEAST]


def _parts(times_s: Floats, values_w: Floats, spans: Floats, some: Mask) -> tuple[csr_matrix, Floats]:
    """Shares of steps from reading to reading in spans, shape (s, n - 1), and energies of ``some`` of them there, (s,).

    Power is linear in a step; beyond the ends, in the first and last one, it stays.
    """
    cuts = np.unique(np.concatenate([times_s, spans.ravel()]))
    step = np.clip(np.searchsorted(times_s, cuts[:-1], side="right") - 1, 0, len(some) - 1)
    h, within, power_w = np.diff(cuts), share_of(cuts, spans), np.interp(cuts, times_s, values_w)
    energy_j = within @ (h * (power_w[1:] + power_w[:-1]) / 2 * some[step])
    shares = csr_matrix((h / np.diff(times_s)[step], step, np.arange(len(cuts))), (len(h), len(some)))
    return (within @ shares).tocsr(), energy_j


def _hole_j(times_s: Floats, values_w: Floats) -> Floats:
    """Standard uncertainties of the energy in each step that is a hole, 0 in others, in J, shape (n - 1,).

    Power there may be any that the log shows, for all of the hole: the interval about the mean of what is beside it
    reaches as far.
    """
    step_s, low_w, high_w = np.diff(times_s), values_w.min(), values_w.max()
    unsure_j = np.zeros(len(step_s))
    for i in np.flatnonzero(step_s > HOLE_PERIODS * np.median(step_s)).tolist():
        around = values_w[max(i + 1 - _LEAST, 0) : i + 1], values_w[i + 1 : i + 1 + _LEAST]
        beside_w = sum(float(side.mean()) for side in around) / 2
        unsure_j[i] = max(high_w - beside_w, beside_w - low_w) * step_s[i] / Z95
    return unsure_j


def job_energies(times_s: Floats, values_w: Floats, spans: Floats, noise_w: float) -> Energies:
    """Energies of spans from readings of one load, of which each shows ``noise_w`` of noise or more.

    Other arguments are those of ``log_energies``.
    """
    noise_w = max(noise_w, _LEAST_W)
    step_s, level_w = float(np.median(np.diff(times_s))), float(values_w.mean())
    scatter = max(float(values_w.var()), noise_w**2)
    points = [point for point in product((0.0, step_s), MEMORIES, SIZES) if not point[0] or point[1] < _HIDDEN_MEMORY]
    odds = max(_partial(values_w), -500.0)  # of cycles: the exponential is still above zero

    def solved(some: slice | Indices, wanted: Floats) -> list[Solution]:
        """Energies by some readings at each point."""
        times, deviations = times_s[some], values_w[some] - level_w
        time_s = np.unique(np.concatenate([times, wanted.ravel()]))
        mean, variance = np.zeros(1), np.array([100 * scatter + 1e4])
        unknowns = Unknowns(np.ones((len(times), 1)), np.diff(wanted), mean, variance)
        problem = Problem(deviations, np.full(len(times), noise_w), share_of(time_s, wanted), unknowns)
        seen = np.searchsorted(time_s, times)
        hidden_s, memory, size = np.array(points).T
        return solve_each(fluctuation_chains(time_s, seen, size * scatter, memory * step_s, hidden_s), problem)

    if len(times_s) > _ENOUGH:
        first = np.linspace(0, len(times_s) - _ENOUGH // _BLOCKS, _BLOCKS).astype(np.intp)
        tried = solved((first[:, None] + np.arange(_ENOUGH // _BLOCKS)).ravel(), times_s[None, [0, -1]])
        evidence = [
            solution.log_evidence + odds * (point[0] > 0) for solution, point in zip(tried, points, strict=True)
        ]
        points = [point for likely, point in zip(evidence, points, strict=True) if likely > max(evidence) - 12]
    energies = mixture(solved(slice(None), spans), np.exp([odds * (point[0] > 0) for point in points]))
    lasts_s, phases = np.diff(spans)[:, 0], _phases(values_w) if len(_changes(values_w, noise_w)) else 0
    # An edge of each cycle lies anywhere between the same two phases
    alike_j = lasts_s * np.ptp(values_w) / (phases * np.sqrt(6)) if phases else 0 * lasts_s
    covariance = energies.covariance + np.outer(alike_j, alike_j)
    return replace(energies, mean_j=energies.mean_j + level_w * lasts_s, covariance=covariance)


def _changes(values_w: Floats, noise_w: float) -> Indices:
    """Readings before which power crosses the middle between least and most; none if all are equal within noise.

    Of n readings noise alone makes least and most differ by about 2 sqrt(2 ln n) of its standard deviations.
    """
    if np.ptp(values_w) < 2 * np.sqrt(2 * np.log(len(values_w))) * noise_w:
        return np.empty(0, np.intp)
    return np.flatnonzero(np.diff(values_w > (values_w.max() + values_w.min()) / 2)) + 1


def _slips(times_s: Floats, values_w: Floats, turns: Indices) -> bool:
    """True if power rises where a poll is late and falls where it is early, or the reverse, change for change.

    So it is while an edge of a load in the log's rhythm lies among the moments of the polls. Of other loads half of the
    changes do as the one before.
    """
    late = np.diff(times_s) - np.median(np.diff(times_s))
    goes_with = np.sign(late[turns - 1]) * np.sign(np.diff(values_w)[turns - 1])
    alike = goes_with[1:] * goes_with[:-1]
    return bool(alike.mean() > max(0.5, _SLIPS / np.sqrt(len(alike))))


def _phases(values_w: Floats) -> int:
    """Number of readings after which power repeats itself all through the log, 0 if it doesn't.

    Of n readings without a rhythm q phases explain (q - 1) / n, by more than ``chance`` in one log of 10,000.
    """
    n, high = len(values_w), values_w > (values_w.max() + values_w.min()) / 2
    off, free = high - high.mean(), np.arange(1, min(n // _CYCLES, _MOST_PHASES))
    if not len(free) or not off.any():
        return 0
    phases = (np.arange(n) % count for count in free + 1)
    explained = np.array([(np.bincount(phase, off) ** 2 / np.bincount(phase)).sum() for phase in phases]) / (off @ off)
    chance = (4 * np.sqrt(2 * free) + 8) / n
    beyond = np.where(explained > np.maximum(_RHYTHM, free / n + chance), explained - free / n, 0.0)
    return int(free[beyond > beyond.max() / 2][0]) + 1 if beyond.any() else 0


def _partial(values_w: Floats) -> float:
    """Logarithm of how likely the readings' partial autocorrelation at lag 2 is under an exponential memory, below it.

    Cycles that slip against the readings by chance have none. Changes at distances of several readings that are nearly
    alike have a negative one, so power doesn't cycle between readings.
    """
    d = values_w - values_w.mean()
    if not d.any():
        return 0.0
    first, second = (float(d[k:] @ d[:-k] / (d @ d)) for k in (1, 2))
    partial = (second - first**2) / (1 - first**2)
    return -0.5 * min(partial, 0.0) ** 2 * len(values_w)
