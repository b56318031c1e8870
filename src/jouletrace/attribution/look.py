"""A first look at readings: heights of bursts, where levels move, what a sampler's phase and a wrong response do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.attribution.chains import ANY, Chain, Course, Cuts, low_pass_chain, share_of, window_chain
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Problem, solve
from jouletrace.sensor.shares import Response, averaged

_ROUNDS, _FIRST = 3, (1e-4, 0.3, 1.0)
"""Passes until heights and places of jumps agree with each other; density in s, slow and local change of the first
look: wide, so that readings decide."""

_LEAST_W, _ANY = 5.0, 1e5
"""Height of a burst that doesn't rise above idle: sizes relative to it need one. Variance of a walk that follows all
readings, in W²/s."""

_SEEN = 4.0
"""Standard deviations of noise by which power outside of bursts was seen to move."""

_PARTS = 8
"""Of a sample, in which steps of power are one: 0.1 ms on an H100, over which a sample averages there."""


@dataclass
class Look:
    """A load as a first look at the readings shows it, by which its chains are made."""

    cuts: Cuts
    response: Response
    prior: Prior
    height_w: Floats  # shape (b,): mean power of each burst above idle
    # Variances of walks where power was seen to move, in W²/s, shape (n,): of a burst's level, and of what is taken for
    # idle power, where another load may run
    moves: Floats
    idle_moves: Floats
    jolt: Floats  # shape (n,): variance that edges put into the sensor's state, in W²
    level_w: Floats  # shape (n,): power without its swings, from the readings' first median
    unsettled_w: Floats  # shape (readings,): power at each reading's moment less what it shows
    power_w: Floats  # shape (c,): powers above idle that are unknowns
    log_evidence: float = 0.0  # of the readings under it
    # What a program's swings are relative to, if it isn't ``height_w`` squared; what samples miss of them; shape (n,)
    swing: Floats | None = None
    missed: float | Floats = 0.0

    def chain(self, density_s: float, slow: float, local: float) -> Chain:
        """The chain of one point of the grid.

        Args:
            density_s: Spectral density of the swings over a burst's squared height.
            slow: Size of a change that goes on evenly over a burst, or 1 s, over its height.
            local: Factor of ``moves``, by which the level changes where it was seen to change.
        """
        cuts = self.cuts
        height = np.where(cuts.inside, self.height_w[cuts.burst], 0.0)
        pace = np.where(cuts.inside, np.minimum(cuts.length_s, 1.0)[cuts.burst], 1.0)
        walk = np.where(cuts.goes_on, slow**2 * height**2 / pace + local * self.moves, np.inf)
        level = self.prior.level_w**2
        fresh = np.append(level if cuts.inside[0] else 0.0, np.where(np.append(cuts.opens[1:], False), level, 0.0))
        density = density_s * (height**2 if self.swing is None else self.swing)
        if self.prior.between:  # variance of a walk's integral over a segment, about the level at its start
            density = density + np.where(np.isfinite(walk), walk, 0.0) * cuts.h**2 / 3
        idle = ANY if self.prior.known_idle_w is None else self.prior.known_idle_w[1] ** 2
        # After bursts idle power dips or lags
        (size, for_s), since_s = self.prior.after, cuts.time_s[:-1] - cuts.bursts[cuts.burst, 1]
        after = ~cuts.inside & (since_s >= 0) & (since_s < for_s)
        dips = np.where(after, (size * self.height_w[cuts.burst]) ** 2 / for_s, 0.0)
        pace_w = np.sqrt(self.prior.idle_walk**2 + dips + self.idle_moves)
        course = Course(density, walk, fresh, pace_w, idle)
        if self.response.window_s:
            return window_chain(cuts.time_s, cuts.windows, course)
        return low_pass_chain(cuts.time_s, cuts.seen, self.response, course, self.jolt + density_s * self.missed)


def first_look(cuts: Cuts, problem: Problem, response: Response, prior: Prior, part_s: Floats | None = None) -> Look:
    """The load that readings show; ``part_s`` are seconds of each unknown power in each segment, if any, (n, c)."""
    n, over, h = len(cuts.h), share_of(cuts.time_s, cuts.bursts), cuts.h
    none = np.zeros(0)
    height_w = np.full(len(cuts.bursts), 300.0)
    anything = np.where(cuts.inside, 0.0, _ANY)
    look = Look(cuts, response, prior, height_w, np.zeros(n), anything, np.zeros(n), none, none, none)
    for _ in range(_ROUNDS):
        chain = look.chain(*_FIRST)
        result = solve(chain, problem)
        idle, excess = result.state.T[-2:]
        if part_s is None:
            common = np.where(cuts.inside, result.unknowns.sum(), 0.0)
            # Where another load runs outside of bursts, idle power is the least that was seen
            above = np.where(cuts.inside, result.segment_j / h - idle.min(), 0.0) + common
        else:
            common = above = part_s @ result.unknowns / h
        look.height_w = np.maximum(np.abs(over @ (above * h)) / cuts.length_s, _LEAST_W)
        look.level_w = (idle + excess)[:-1] + common
        read_w = result.state.ravel()[chain.seen] + problem.unknowns.shown @ result.unknowns
        look.unsettled_w = look.level_w[np.maximum(cuts.seen - 1, 0)] - read_w
        look.moves, look.idle_moves = _moves(cuts, excess, idle, response)
        look.power_w, look.log_evidence = result.unknowns, result.log_evidence
    return look


def _moves(cuts: Cuts, excess_w: Floats, idle_w: Floats, response: Response) -> tuple[Floats, Floats]:
    """Local variances of a burst's level and of idle power, in W²/s, shape (n,): of changes from reading to reading.

    A jump of s gives s² over all segments together: the variance of a walk whose energy is known as badly as that of a
    jump at an unknown time.
    """
    reach_s, edges = response.period_s, np.concatenate([[-np.inf], cuts.bursts.ravel(), [np.inf]])
    piece = np.where(cuts.time_s[:-1] < edges[1], 0, 2 * cuts.burst + np.where(cuts.inside, 1, 2))
    low, high = edges[piece], edges[piece + 1]
    before = np.clip(np.maximum(cuts.time_s[1:] - reach_s, low), cuts.time_s[0], None)
    after = np.minimum(cuts.time_s[1:] + reach_s, high)
    last = len(excess_w) - 2  # the last state has no segment
    old = np.clip(np.searchsorted(cuts.time_s, before, side="right") - 1, 0, last)
    # Idle power at the instant at which a burst ends may be what another load draws before it or after
    old = np.where(~cuts.inside & (before == low), np.minimum(old + 1, last), old)
    new = np.maximum(np.clip(np.searchsorted(cuts.time_s, after) - 1, 0, last), old)
    excess, idle = ((w[new] - w[old]) ** 2 / (2 * reach_s) for w in (excess_w, idle_w))
    # Noise of two readings is no change of idle power
    least_w = _SEEN * np.sqrt(2) * response.noise_w
    idle = np.where(~cuts.inside & (idle > least_w**2 / (2 * reach_s)), idle, 0.0)
    return np.where(cuts.inside, excess, 0.0), _beside(cuts, idle, idle_w, 2 * reach_s, least_w)


def _beside(cuts: Cuts, moves: Floats, idle_w: Floats, reach_s: float, least_w: float) -> Floats:
    """Moves of idle power where another load ends or begins with a burst: the lower of both sides is idle power in it.

    So power moves as the burst begins, or as it ends. On the other side it stays, as far as ``reach_s``: readings
    don't distinguish a step there that the burst takes back from none.
    """
    turns, n = np.diff([0, *cuts.inside.tolist(), 0]), len(cuts.inside)
    first, after = np.flatnonzero(turns == 1), np.flatnonzero(turns == -1)
    low, high = np.append(0, after[:-1]), np.append(first[1:], n)
    both = (first > 0) & (after < n)
    first, after, low, high = first[both], after[both], low[both], high[both]
    before = np.maximum(np.searchsorted(cuts.time_s, cuts.time_s[first - 1] - reach_s, side="right") - 1, low)
    behind = np.minimum(np.searchsorted(cuts.time_s, cuts.time_s[after] + reach_s), high)
    step_w = idle_w[behind] - idle_w[before]
    for i in np.flatnonzero(np.abs(step_w) > least_w).tolist():
        rises = step_w[i] > 0
        moves[slice(before[i], first[i]) if rises else slice(after[i], behind[i])] = 0.0
        segment = after[i] - 1 if rises else first[i] - 1  # a segment's power is that of the state before it
        moves[segment] += step_w[i] ** 2 / cuts.h[segment]
    return moves


def unlike(cuts: Cuts, level_w: Floats, response: Response) -> Floats:
    """Difference of readings of a level by a response's whole shape and by its memory or window, W, shape (readings,).

    A response has both, and a slow tail: about an edge they differ by some percent of it.
    """
    assert response.shape is not None
    moment_s = cuts.time_s[cuts.seen]
    whole = response.shape.averaged(moment_s, cuts.time_s, level_w)
    return whole - averaged(moment_s, cuts.time_s, level_w, response)


def jolts_of(cuts: Cuts, at_s: Floats, step_w: Floats, response: Response) -> Floats:
    """Variance that steps of power put into the sensor's state and not into energy, in W², shape (n,).

    Samples come every ``sample_s`` with a phase that isn't known. A step of s shifts the state by weight s (u - 1/2)
    against a continuous average, u uniform: variance (weight s)² / 12. Steps in the same ``_PARTS``th of a sample are
    one. ``at_s`` and ``step_w`` are times and sizes of the steps, shape (m,).
    """
    if not response.weight:
        return np.zeros(len(cuts.h))
    part_s, n = response.sample_s / _PARTS, len(cuts.h)
    part, group = np.unique(np.floor(at_s / part_s), return_inverse=True)
    step, middle_s = np.bincount(group, step_w), (part + 0.5) * part_s
    segment = np.clip(np.searchsorted(cuts.time_s, middle_s, side="right") - 1, 0, n - 1)
    left = np.exp(-2 * np.maximum(cuts.time_s[segment + 1] - middle_s, 0.0) / response.rise_s)
    return np.asarray(np.bincount(segment, (response.weight * step) ** 2 / 12 * left, n), np.float64)


_NODES, _WEIGHTS = (
    np.array([-2.857, -1.3556, 0.0, 1.3556, 2.857]),
    np.array([0.0112574, 0.2220759, 0.5333333, 0.2220759, 0.0112574]),
)
"""Standard deviations of what isn't known at which readings are tried, and their weights (Gauss and Hermite)."""


def timing(cuts: Cuts, level_w: Floats, response: Response, unsure_s: Floats) -> tuple[Floats, Floats]:
    """Readings' debt to an unknown delay and width, by statistical linearisation, W (Gelb 1974, section 6.2).

    It is slopes by the delay (W/s) and by the logarithm of rise or window (W), shape (readings, 2), and the standard
    deviation of what isn't in proportion, and of single readings' times, (readings,).

    Where an edge enters a window readings don't change in proportion: slopes are regressions over what isn't known, and
    what is left is noise of each reading. They are taken of the level without swings, ``level_w`` (n,): of deconvolved
    readings they would fit the swings themselves. Times of single readings are known to ``unsure_s``, (readings,), and
    to the response's jitter: what they would show at other times is noise, too. Between reads of a counter even a
    constant power reads wrong.
    """
    moment_s = cuts.time_s[cuts.seen]

    def moved(late_s: Floats | float, by: float = 1.0) -> Floats:
        altered = response.widened(by)
        return averaged(moment_s + response.delay_s - altered.delay_s - late_s, cuts.time_s, level_w, altered)

    usual, slopes, left = moved(0.0), [], np.zeros(len(moment_s))
    for size, tried in (
        (max(response.delay_sd_s, 1e-9), moved),
        (max(response.width_sd, 1e-9), lambda x: moved(0.0, float(np.exp(x)))),
    ):
        change = np.array([tried(size * node) for node in _NODES]) - usual
        slope = (_WEIGHTS * _NODES) @ change  # over a standard deviation
        slopes.append(slope / size)
        left += _WEIGHTS @ (change - np.outer(_NODES, slope)) ** 2
    if response.back_to_back:
        last_w = level_w[np.maximum(cuts.seen - 1, 0)]
        left += 2 * (last_w * response.jitter_s / (moment_s - cuts.time_s[cuts.windows.begun])) ** 2
    else:
        jitter_s = np.hypot(response.jitter_s, unsure_s)
        left += _WEIGHTS @ (np.array([moved(jitter_s * node) for node in _NODES]) - usual) ** 2
    return np.stack(slopes, axis=1), np.sqrt(left)
