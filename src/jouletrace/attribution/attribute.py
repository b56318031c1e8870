"""Energies of any spans from readings of power: the one estimator.

    readings = shares * powers + level + swing + noise

Time is cut where readings and spans have edges. A chain (``chains``) says how power and the sensor's state go on from
cut to cut; one banded system (``solve``) then gives all energies with their joint covariance. Sizes that aren't known,
of swings and of slow change, are summed over a grid, weighed by prior and readings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, vstack

from jouletrace.attribution.chains import Chain, low_pass_chain
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, mixture, solve
from jouletrace.attribution.swing import CHANCES, DENSITIES_S, spread_prior, swing_prior
from jouletrace.sensor.shares import Floats, Response, Timeline, forgetting, shares

STEP_S = 0.005
"""Longest segment inside a burst: a level that walks is resolved at less than half of the sensor's memory."""

_ROUNDS = 3
"""Passes by which heights of bursts and places of jumps are determined."""

FIRST = (1e-4, 0.3, 1.0)
_PARTS = 8
"""Of a sample, in which steps of power are one: 0.1 ms on an H100, over which a sample averages there."""

_LIKELY = 2e-3
"""Grid points with less of the prior's weight are left out."""


def attribute(
    times_s: Floats,
    values_w: Floats,
    spans: ArrayLike,
    *,
    response: Response,
    bursts: ArrayLike | None = None,
    timeline: Timeline | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
    period_s: float | None = None,
    rows: bool = False,
) -> Energies:
    """Energies of spans from the readings of a sensor with an exponential memory.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2).
        response: What a reading shows of power.
        bursts: Disjoint segments with a level of their own, in order, shape (b, 2): the spans, or all of the timeline,
            if None.
        timeline: What ran when, without overlap; powers of its kinds are unknowns.
        prior: What is believed of power.
        period_s: Period of the swing in the bursts, if it is known: the length of an iteration.
        rows: Whether energies of the timeline's kinds come after those of the spans.
    """
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if bursts is None:
        bursts = spans if timeline is None else [[timeline.start_s[0], timeline.end_s.max()]]
    step_s = STEP_S if timeline is None else response.period_s  # a timeline shows what is faster
    cuts = Cuts.of(times_s - response.delay_s, spans, np.asarray(bursts, np.float64).reshape(-1, 2), step_s)
    base = float(np.median(values_w[:5]))
    cover, total = share_of(cuts.time_s, spans), np.diff(spans)[:, 0]
    unknowns = _none(len(times_s), len(spans))
    part: Floats | None = None
    if timeline is not None:
        part = timeline.seconds(cuts.time_s)
        wanted = cover @ part
        if rows:
            cover = vstack([cover, csr_matrix((part / cuts.h[:, None]).T)]).tocsr()
            total, wanted = np.append(total, part.sum(axis=0)), np.vstack([wanted, np.diag(part.sum(axis=0))])
        mean, sd = (np.full(timeline.kinds, value) for value in prior.power_w)
        unknowns = Unknowns(shares(cuts.time_s[cuts.seen], timeline, response), wanted, mean, sd**2)
        prior = replace(prior, level_w=1.0)  # the powers are unknowns of their own
    problem = Problem(values_w - base, np.full(len(times_s), response.noise_w), cover, unknowns)
    model = _first_look(cuts, problem, response, prior, part)
    unsettled_w = model.unsettled_w
    if timeline is not None:
        unsettled_w = (timeline.running(cuts.time_s[cuts.seen]) - unknowns.shown) @ model.power_w
    model.jolt = _jolts(cuts, model, response, timeline)
    slope = Unknowns(
        _derivatives(cuts, model.level_w, response),
        np.zeros((len(total), 2)),
        np.zeros(2),
        np.array([response.delay_sd_s**2, response.rise_sd**2]),
    )
    noise_w = np.hypot(response.noise_w, unsettled_w * response.weight / np.sqrt(12))
    problem = replace(problem, noise_w=noise_w, unknowns=unknowns.beside(slope))
    hidden = csr_matrix(cover.multiply(cuts.h) @ share_of(cuts.time_s, cuts.bursts).T)  # seconds of a burst in a span
    burst_s = float(np.median(cuts.length_s))
    if timeline is not None:
        weights, offsets = spread_prior(prior), None
    else:
        seconds = np.asarray(hidden.sum(axis=1)).ravel() / np.maximum(np.diff(hidden.indptr), 1)
        lengths_s, which = _classes(np.where(seconds > 0, seconds, burst_s))
        weights, offsets = swing_prior(lengths_s, burst_s, response, prior, period_s)
        offsets = offsets[:, :, which]
    points = [
        (d, slow, local, weight * share)
        for d, weight in enumerate(weights.tolist())
        if weight > _LIKELY
        for slow, local, share in prior.slow
    ]
    unseen = None
    if offsets is not None:
        sizes = offsets[[d for d, *_ in points]]
        unseen = Unseen(csr_matrix(hidden.multiply(model.height_w)), sizes, CHANCES)
    chains = [model.chain(float(DENSITIES_S[d]), slow, local) for d, slow, local, _ in points]
    result = mixture(chains, np.array([weight for *_, weight in points]), problem, unseen)
    return replace(result, mean_j=result.mean_j + base * total, tried_j=result.tried_j + base * total)


@dataclass(frozen=True)
class Cuts:
    """Instants at which time is cut, and what lies between them: n segments."""

    time_s: Floats  # shape (n + 1,)
    seen: NDArray[np.intp]  # shape (readings,): the instant of each
    bursts: Floats  # shape (b, 2)
    burst: NDArray[np.intp]  # shape (n,): the last burst that began before each segment
    inside: NDArray[np.bool_]  # shape (n,): whether the segment lies in it
    opens: NDArray[np.bool_]  # shape (n,): whether the burst begins with it

    @classmethod
    def of(cls, read_s: Floats, spans: Floats, bursts: Floats, step_s: float) -> Cuts:
        """Cuts at the moments that readings show, at edges, and at least every ``step_s`` inside bursts."""
        fine = [np.linspace(a, b, int(np.ceil((b - a) / step_s)) + 1) for a, b in bursts]
        time_s = np.unique(np.concatenate([read_s, spans.ravel(), bursts.ravel(), *fine]))
        low, high = min(read_s[0], spans.min()), max(read_s[-1], spans.max())
        time_s = time_s[(time_s >= low) & (time_s <= high)]
        begin = time_s[:-1]
        burst = np.maximum(np.searchsorted(bursts[:, 0], begin, side="right") - 1, 0)
        inside = (begin >= bursts[burst, 0]) & (begin < bursts[burst, 1])
        opens = inside & np.isin(begin, bursts[:, 0])
        return cls(time_s, np.searchsorted(time_s, read_s), bursts, burst, inside, opens)

    @property
    def h(self) -> Floats:
        """Lengths of the segments in s, shape (n,)."""
        return np.diff(self.time_s)

    @property
    def length_s(self) -> Floats:
        """Lengths of the bursts, shape (b,)."""
        return np.diff(self.bursts)[:, 0]

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """Whether a segment's level goes on into the next, shape (n,)."""
        return np.append(self.inside[1:] & ~self.opens[1:], False)


def share_of(time_s: Floats, spans: Floats) -> csr_matrix:
    """Share of each segment between ``time_s`` in each span, 0 or 1: edges of spans are instants."""
    first, last = np.searchsorted(time_s, spans[:, 0]), np.searchsorted(time_s, spans[:, 1])
    count = np.maximum(last - first, 0)
    start = np.append(0, np.cumsum(count))
    place = np.arange(start[-1]) - np.repeat(start[:-1] - first, count)
    return csr_matrix((np.ones(len(place)), place, start), shape=(len(spans), len(time_s) - 1))


@dataclass
class _Model:
    """What a first look at the readings shows of a load, by which its chains are made."""

    cuts: Cuts
    response: Response
    prior: Prior
    height_w: Floats  # shape (b,): mean power of each burst above idle
    moves: Floats  # shape (n,): variance of the level's walk where it was seen to move, in W²/s
    jolt: Floats  # shape (n,): variance that edges put into the sensor's state, in W²
    level_w: Floats  # shape (n,): power without its swings, from the readings' first median
    unsettled_w: Floats  # shape (readings,): power at each reading's moment less what it shows
    power_w: Floats  # shape (kinds,): powers of the timeline's kinds above idle

    def chain(self, density_s: float, slow: float, local: float) -> Chain:
        """The chain of swings of a density, slow change of a size and a hidden offset, relative to the heights."""
        cuts, n = self.cuts, len(self.cuts.h)
        height = np.where(cuts.inside, self.height_w[cuts.burst], 0.0)
        pace = np.where(cuts.inside, np.minimum(cuts.length_s, 1.0)[cuts.burst], 1.0)
        walk = np.where(cuts.goes_on, slow**2 * height**2 / pace + local * self.moves, np.inf)
        level = self.prior.level_w**2
        fresh = np.append(level if cuts.inside[0] else 0.0, np.where(np.append(cuts.opens[1:], False), level, 0.0))
        return low_pass_chain(
            cuts.time_s,
            cuts.seen,
            self.response,
            density=density_s * height**2,
            walk=walk,
            jolt=self.jolt,
            fresh=fresh,
            idle_walk=self.prior.idle_walk,
        )


def _first_look(cuts: Cuts, problem: Problem, response: Response, prior: Prior, part: Floats | None) -> _Model:
    """Heights of the bursts, and where their levels move; ``part`` are seconds of each kind in each segment."""
    n, over, h = len(cuts.h), share_of(cuts.time_s, cuts.bursts), cuts.h
    none = np.zeros(0)
    model = _Model(cuts, response, prior, np.full(len(cuts.bursts), 300.0), np.zeros(n), np.zeros(n), none, none, none)
    fade = np.exp(-h / response.rise_s)
    for _ in range(_ROUNDS):
        result = solve(model.chain(*FIRST), problem, covariance=False)
        y, idle, excess = result.state.T
        if part is None:
            above = np.where(cuts.inside, (y[1:] - fade * y[:-1]) / (1 - fade) - idle[:-1], 0.0)
        else:
            above = part @ result.unknowns / h
        model.height_w = np.maximum(np.abs(over @ (above * h)) / cuts.length_s, 5.0)
        model.level_w = (idle + excess)[:-1] + (0.0 if part is None else above)
        model.unsettled_w = model.level_w[np.maximum(cuts.seen - 1, 0)] - y[cuts.seen]
        model.moves = _moves(cuts, excess, response.period_s)
        model.power_w = result.unknowns
    return model


def _classes(seconds: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Lengths apart by factors of 1.5 that stand for ``seconds``, and the index of each one's."""
    step = np.log(1.5)
    _, which = np.unique(np.round(np.log(seconds) / step), return_inverse=True)
    lengths = np.bincount(which, seconds) / np.bincount(which)
    return lengths, which


def _moves(cuts: Cuts, level_w: Floats, reach_s: float) -> Floats:
    """Local variance of a level, in W²/s, shape (n,): of its change from ``reach_s`` before a cut to as much after it.

    A jump of s within gives s² over all segments together.
    """
    after_s, level_w = cuts.time_s[1:], level_w[:-1]
    low, high = cuts.bursts[cuts.burst].T
    before, after = np.maximum(after_s - reach_s, low), np.minimum(after_s + reach_s, high)
    middle = (cuts.time_s[1:] + cuts.time_s[:-1]) / 2
    inside = cuts.inside
    low_m, high_m = (np.clip(edge, cuts.time_s[0], None) for edge in (before, after))
    place = [
        np.clip(np.searchsorted(cuts.time_s, x, side=side) - 1, 0, len(level_w) - 1)
        for x, side in ((low_m, "right"), (high_m, "left"))
    ]
    return np.where(
        inside & (after > before), (level_w[place[1]] - level_w[place[0]]) ** 2 / np.maximum(after - before, 1e-3), 0.0
    )


def _jolts(cuts: Cuts, model: _Model, response: Response, timeline: Timeline | None) -> Floats:
    """Variance that steps of power put into the sensor's state and not into energy, in W², shape (n,).

    Samples come every ``sample_s`` with a phase that isn't known. A step of s shifts the state by weight s (u - 1/2)
    against a continuous average, u uniform: variance (weight s)² / 12. A second step, of s' and d samples later, has
    the covariance weight² s s' (1 - 6 d (1 - d)) / 12 with it for d below 1 (the second Bernoulli polynomial). Steps in
    the same ``_PARTS``th of a sample are one.
    """
    at_s, step_w = cuts.bursts.ravel(), np.outer(model.height_w, [1.0, -1.0]).ravel()
    if timeline is not None:
        above = model.power_w[timeline.kind]
        at_s, step_w = np.append(timeline.start_s, timeline.end_s), np.append(above, -above)
    part_s = response.sample_s / _PARTS
    place, group = np.unique(np.floor(at_s / part_s), return_inverse=True)
    step, middle_s = np.bincount(group, step_w), (place + 0.5) * part_s
    variance = step**2 / 12
    for later in range(1, min(_PARTS, len(step))):
        gap = (place[later:] - place[:-later]) / _PARTS
        shared = step[later:] * step[:-later] * (1 - 6 * gap * (1 - gap)) / 6
        variance[later:] += np.where(gap < 1, shared, 0.0)
    n = len(cuts.h)
    segment = np.clip(np.searchsorted(cuts.time_s, middle_s, side="right") - 1, 0, n - 1)
    left = np.exp(-2 * np.maximum(cuts.time_s[segment + 1] - middle_s, 0.0) / response.rise_s)
    return np.maximum(np.bincount(segment, response.weight**2 * variance * left, n), 0.0)


def _derivatives(cuts: Cuts, level_w: Floats, response: Response) -> Floats:
    """Derivatives of the readings by delay (W/s) and by the logarithm of the rise (W), shape (readings, 2).

    ``rise y' + y = level`` and ``rise lag' + lag = y - level``. They are taken of the level without swings: of
    deconvolved readings they would fit the swings themselves.
    """
    h, rise = cuts.h, response.rise_s
    f = np.exp(-h / rise)
    y = forgetting(np.append(level_w[0], (1 - f) * level_w), f)
    lag = forgetting(np.append(0.0, h / rise * f * (y[:-1] - level_w)), f)
    return np.stack([(y - np.append(level_w, y[-1]))[cuts.seen] / rise, lag[cuts.seen]], axis=1)


def _none(readings: int, spans: int) -> Unknowns:
    """No unknowns."""
    return Unknowns(np.zeros((readings, 0)), np.zeros((spans, 0)), np.zeros(0), np.zeros(0))
