"""Energy of a unit of what a load does: tokens read, steps of a scheduler, sequences in a batch.

    readings = shares of amounts * energy of a unit + chain

Amounts have rates, each over a time of its own, and a unit of each costs the same energy wherever it occurs. The chain
(``chains``) has idle power, which wanders, and white swings while the load runs, of a density that the readings show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix, vstack

from jouletrace.arrays import Floats
from jouletrace.attribution.chains import Cuts
from jouletrace.attribution.look import first_look
from jouletrace.attribution.outcome import refuse_unordered
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import BLOCKS, Problem, Unknowns, jackknife_width, solve
from jouletrace.sensor.shares import Response, Timeline, shares, slopes
from jouletrace.stats.one_thread import one_thread

_DENSITIES_S = np.geomspace(1e-7, 1.0, 15)
"""Spectral densities of swings over the squared power of the load: from none to some tenths of a second of all of it.
They only weigh readings of the load against those of idle power, so that two a decade do."""

_MOMENT, _STILL, _MOST_W = 1e-3, 1e-4, 1e4
"""Memory of momentary readings over the time between them; sizes of change, in W and relative, that are none; standard
deviation of the power by any kind of amount before the readings: nothing is known of it."""

_PRIOR = replace(Prior(), level_w=_STILL, slow=((_STILL, 0.0, 1.0),), idle_walk=0.1, after=(0.0, 1.0))
"""Power that doesn't go with amounts is that of idle, which goes on as in pauses: an H200's falls from 129.9 to 128 W
within two minutes of four loads (serving-rates-a-h200). All else that lasts is a part of what goes with amounts."""


@dataclass(frozen=True)
class AmountEnergies:
    """Idle power and energies of a unit of each kind of amount, with their joint covariance; all but idle at least 0.

    The covariance is that without the limit: near 0 it is too wide, never too narrow.
    """

    value: Floats  # shape (1 + kinds,): idle power in W, then J per unit
    covariance: Floats  # shape (1 + kinds, 1 + kinds)
    shown: Floats  # shape (n, 1 + kinds): what each reading shows of 1, and of each kind
    residual_w: float  # root mean square of what the readings have beside it

    def __add__(self, other: AmountEnergies) -> AmountEnergies:
        """Of two devices with the same load together."""
        both = self.value + other.value, self.covariance + other.covariance
        return AmountEnergies(*both, self.shown, float(np.hypot(self.residual_w, other.residual_w)))


@one_thread
def attribute_amounts(
    times_s: Floats,
    values_w: Floats,
    timeline: Timeline,
    *,
    response: Response,
    bursts: ArrayLike,
    before: tuple[Floats, Floats] | None = None,
) -> AmountEnergies:
    """Idle power and energies of a unit of each kind.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        timeline: Rates of the amounts, in units per second, by kind.
        response: What a reading shows of power.
        bursts: Disjoint segments in which the load runs, in order, shape (b, 2): outside of them the GPU is idle.
        before: Energies of a unit of each of the first kinds before the readings, and their standard deviations; of
            others nothing is known.
    """
    refuse_unordered(times_s, values_w)
    times_s, values_w = times_s[:: response.stride], values_w[:: response.stride]
    if not response.width_s:  # the power of a moment
        response = replace(response, rise_s=_MOMENT * response.period_s)
    bursts = np.asarray(bursts, np.float64).reshape(-1, 2)
    moment_s = times_s - response.delay_s
    cuts = Cuts.from_readings(moment_s, response.begins(moment_s), bursts, bursts, np.inf)
    part, shown = timeline.seconds(cuts.time_s), shares(moment_s, timeline, response)
    load = csr_matrix(cuts.inside / (cuts.inside @ cuts.h))
    rows = vstack([load, csr_matrix((timeline.kinds, len(part)))]).tocsr()
    mean, sd = np.zeros(timeline.kinds), _MOST_W / _size(shown)
    if before is not None:
        mean[: len(before[0])], sd[: len(before[0])] = before
    units = Unknowns(shown, np.eye(timeline.kinds + 1)[:, 1:], mean, sd**2)
    base_w = float(np.median(values_w[:5]))
    noise_w = np.full(len(times_s), max(response.noise_w, 0.01))
    problem = Problem(values_w - base_w, noise_w, rows, units)
    look = first_look(cuts, problem, response, _PRIOR, part)
    look.moves = look.idle_moves = np.zeros(len(part))
    load_w = part @ look.power_w / cuts.h
    runs = cuts.inside | part.any(axis=1)  # others may send requests before and after
    look.swing = np.where(runs, np.average(load_w**2, weights=cuts.h * runs), 0.0)
    chains = [look.chain(density, _STILL, 0.0) for density in _DENSITIES_S.tolist()]
    evidence = [solve(chain, problem).log_evidence for chain in chains]
    chain = chains[int(np.argmax(evidence))]
    # Its segments have the energy of idle power alone, not that of the swings
    k, energy = chain.energy.shape[1] // 2, np.zeros_like(chain.energy)
    energy[:, [k - 2, 2 * k - 2]] = cuts.h[:, None] / 2
    chain = replace(chain, energy=energy, own_variance=np.zeros_like(chain.own_variance))
    solution = solve(chain, problem)
    around = solution.left_out()
    for slope_w in slopes(times_s, timeline, solution.unknowns, response).T:
        moved = solve(chain, replace(problem, values_w=slope_w)).unknowns
        around += np.outer(moved, moved)
    value = _positive(solution.mean_j + base_w * rows @ cuts.h, solution.covariance)
    every = np.column_stack([np.ones(len(shown)), shown])
    residual_w = float(np.sqrt(np.mean((values_w - every @ value) ** 2)))
    return AmountEnergies(value, solution.around(around), every, residual_w)


def _size(columns: Floats) -> Floats:
    return np.asarray(np.maximum(np.sqrt((columns**2).mean(axis=0)), 1e-12))


def of_known(amounts: Floats, energies_j: Floats) -> tuple[Floats, Floats]:
    """Energies of a unit of each kind, at least 0, shape (c,), and their covariance, from energies that are known.

    Args:
        amounts: Of each kind in each span, shape (n, c), in order of time.
        energies_j: Of the spans, shape (n,).
    """
    size, block = _size(amounts), np.arange(len(amounts)) * BLOCKS // len(amounts)
    scaled = amounts / size
    inverse: Floats = np.asarray(np.linalg.inv(scaled.T @ scaled), np.float64)
    every = [
        np.linalg.lstsq(scaled[block != left_out], energies_j[block != left_out], rcond=None)[0]
        for left_out in range(BLOCKS)
    ]
    away = (np.stack(every) - inverse @ (scaled.T @ energies_j)) / size * jackknife_width(BLOCKS)
    return _positive(inverse @ (scaled.T @ energies_j), inverse) / size, away.T @ away


def _positive(mean: Floats, covariance: Floats) -> Floats:
    """The likeliest values that are not below 0, shape (c,)."""
    from scipy.optimize import nnls  # a quarter of a second to import

    scale = np.sqrt(np.diag(covariance))
    size, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    root = (axes / np.sqrt(np.maximum(size, 1e-9))).T  # amounts may go with each other entirely
    return np.asarray(nnls(root, root @ (mean / scale))[0] * scale)
