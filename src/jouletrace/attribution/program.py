"""Energies of a program's spans and kinds of kernels, from readings and the timeline of its kernels.

    readings = shares * powers + slopes * what isn't known of sensor and clock + chain

Kernels of a kind have one power above idle. The chain (``chains``) has idle power, what changes slowly, and the spread
within kinds: white power, of a density that the readings show. One solve gives all energies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, vstack

from jouletrace.arrays import Floats
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.chains import Cuts, share_of
from jouletrace.attribution.look import Look, first_look, jolts_of
from jouletrace.attribution.observer import Sampled
from jouletrace.attribution.outcome import refuse_unordered
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import BLOCKS, KEPT, Energies, Problem, Solution, Unknowns, mixture, solve
from jouletrace.sensor.shares import Response, averaged, shares, slopes

SPREADS = np.geomspace(0.001, 1.0, 25)
"""Relative spreads of power between kernels of a kind: eight a decade, so that ± is off by 15 % at most."""

_ROUNDS = 2
"""Turns of powers and of the derivatives that they give."""

_BLOCK = 5
"""Readings of a block of time: as few as show by how much kernels differ from their mean there."""


@dataclass(frozen=True)
class ProgramEnergies:
    """Energies of a program's spans, and then of its kinds of kernels, with their joint distribution."""

    energies: Energies  # of the spans, then of the kinds, in J
    seconds: Floats  # time of each kind, shape (kinds,); kernels that run at once share it
    before: Floats  # covariance of the kinds' energies before the readings, in J², shape (kinds, kinds)
    after: Floats  # the same after readings whose errors are those that the chain has, and independent of each other
    by_sensor: Floats  # that part of it which sensors of the same kind share
    varies: float = 0.0  # relative standard deviation of the power of all kernels from block to block of time
    scatter: Floats | float = 0.0  # variance of a second by single kernels that differ, J²/s, shape (kinds,)

    def together(self, amounts: ArrayLike) -> Floats:
        """Weights of all energies in sums of kinds, of which ``amounts`` has the weights, shape (r, kinds)."""
        spans = self.energies.mean_j.shape[1] - len(self.seconds)
        return np.pad(np.atleast_2d(np.asarray(amounts, np.float64)), [(0, 0), (spans, 0)])


def attribute_program(
    times_s: Floats,
    values_w: Floats,
    spans: ArrayLike,
    activity: Activity,
    *,
    response: Response,
    sampled: Sampled | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
    times_sd_s: Floats | None = None,
) -> ProgramEnergies:
    """Energies of spans and of kinds of kernels.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2): of iterations, layers, or all of the program.
        activity: What ran when.
        response: What a reading shows of power.
        sampled: The sensor with the times of its samples, if these are known (``lock``): kernels far shorter than a
            sample are then known as well as long ones.
        prior: What is believed of power.
        times_sd_s: Standard deviations of the readings' times, shape (n,), where stamps came late (``Grid.unsure_s``).
    """
    refuse_unordered(times_s, values_w)
    if not response.width_s:
        raise ValueError("momentary readings can't distinguish kernels: take energies of spans by attribute")
    unsure_s = np.zeros(len(times_s)) if times_sd_s is None else times_sd_s
    times_s, values_w, unsure_s = (each[:: response.stride] for each in (times_s, values_w, unsure_s))
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if sampled is not None:  # samples from all that the first reading shows to the last reading
        track = sampled.track.over(float(times_s[0]) - 10 * response.rise_s, float(times_s[-1]))
        sampled, nominal = replace(sampled, track=track), sampled.sensor
        at_rate = Response.sampled(nominal, response.period_s, sampled.track.rate_hz)
        response = replace(response, rise_s=at_rate.rise_s, weight=at_rate.weight, delay_s=at_rate.delay_s)
    moment_s = times_s - response.delay_s
    whole = np.array([[activity.begin_s, activity.finish_s]])
    # Kernels show what is faster than readings
    cuts = Cuts.from_readings(moment_s, response.begins(moment_s), np.vstack([whole, spans]), whole, np.inf)
    columns = Columns.from_activity(
        activity, prior.power_w, prior.power_w[0] * np.array([prior.ends, prior.repeats, 0.0])
    )
    part_s = activity.timeline.seconds(cuts.time_s)
    cover = vstack([share_of(cuts.time_s, spans), csr_matrix((part_s @ activity.shares / cuts.h[:, None]).T)]).tocsr()
    # Of powers a kind's row has nothing of other kinds, which run at other times in its segments; of what the chain
    # adds it has its share of the segment's time
    wanted = np.vstack([cover[: len(spans)] @ part_s, (part_s.sum(axis=0)[:, None] * activity.shares).T])
    if sampled is None:
        shape, timeline = response.shape, activity.timeline
        shown = shape.shares(moment_s, timeline) if shape else shares(moment_s, timeline, response)
    else:
        none = np.zeros(len(activity.column))
        shown = sampled.observe(activity, times_s, none, none).shares[:, :-1]
    powers = Unknowns(shown @ columns.made, wanted @ columns.made, columns.mean_w, columns.sd_w**2)
    base_w, noise_w = prior.base_w(values_w), np.full(len(times_s), response.noise_w)
    problem = Problem(values_w - base_w, noise_w, cover, powers)
    look = first_look(cuts, problem, response, replace(prior, level_w=prior.rest_w), part_s @ columns.made)
    above_w = columns.made @ look.power_w
    powers = replace(powers, variance=columns.sds(look.power_w) ** 2)
    if sampled is None:
        noise_w = _late(cuts, activity, look, above_w, shown, response, unsure_s)
    for _ in range(_ROUNDS):
        look.swing, look.missed = _spread(cuts, activity, part_s, above_w, response)
        others = _sensor(times_s, cuts, cover, activity, above_w, response, sampled, prior)
        problem = replace(problem, noise_w=noise_w, unknowns=powers.beside(others))
        chain = look.chain(prior.spread[0] ** 2, *prior.slow[0][:2])
        seen = solve(chain, problem)
        above_w = columns.made @ seen.unknowns[: columns.made.shape[1]]
    middle, factor = prior.spread
    weight = np.exp(-0.5 * (np.log(SPREADS / middle) / np.log(factor)) ** 2)
    sizes = np.outer(weight / weight.sum(), [share for *_, share in prior.slow])
    points = _likely(lambda d, s: solve(look.chain(float(SPREADS[d]) ** 2, *prior.slow[s][:2]), problem), sizes)
    energies = mixture(likely := list(points.values()), np.array([sizes[point] for point in points]), blocks=BLOCKS)
    energies = replace(energies, mean_j=energies.mean_j + base_w * np.asarray(cover @ cuts.h))
    # If delay or response, and the rise, were known, which sensors of a kind may have in common
    kinds, shared = powers.wanted[len(spans) :], 2 if sampled is None else len(sampled.change) + 1
    by = seen.inverse[:, -shared:]
    settled = seen.inverse - by @ np.linalg.solve(by[-shared:], by.T)
    after, apart = (covariance[len(spans) :, len(spans) :] for covariance in (seen.covariance, seen.around(settled)))
    best, spread = likely[energies.kept[energies.weight.argmax()]], SPREADS[[point[0] for point in points]]
    return ProgramEnergies(
        energies=energies,
        seconds=part_s.sum(axis=0) @ activity.shares,
        before=(kinds * powers.variance) @ kinds.T,
        after=after,
        by_sensor=after - apart,
        varies=_varies(cuts, activity, part_s, above_w, best, prior, best.unknowns[len(powers.mean)], response.period_s)
        / float(energies.weight @ energies.mean_j[:, len(spans) :].sum(axis=1)),
        scatter=_scatter(activity, above_w) * float(energies.weight @ spread[energies.kept] ** 2),
    )


@dataclass(frozen=True)
class Columns:
    """Powers above idle of an activity's columns by independent unknowns.

    Columns of the same kinds have a power in common. Heads and tails of kernels differ from it, and so do repetitions
    in place, each by an unknown of its own.
    """

    made: Floats  # shape (columns, unknowns): power of a column by the unknowns
    mean_w: Floats  # shape (unknowns,)
    sd_w: Floats
    like: NDArray[np.intp]  # shape (unknowns,): for that of a repetition the one of its kernel's power, else its own

    @classmethod
    def from_activity(cls, activity: Activity, power_w: tuple[float, float], apart_w: ArrayLike) -> Columns:
        """Unknowns of ``power_w``, mean and standard deviation, and of what columns have apart.

        ``apart_w`` are standard deviations: of heads and tails, of repetitions, and of others; none of those of 0.
        """
        ends_w, repeats_w, others_w = np.asarray(apart_w, np.float64).tolist()
        count = len(activity.members)
        together = {kinds: unknown for unknown, kinds in enumerate(dict.fromkeys(activity.originals))}
        apart = np.where(np.array(activity.part) > 0, ends_w, np.where(activity.repeated, repeats_w, others_w))
        some, (mean_w, sd_w) = apart > 0, power_w
        common = np.array([together[kinds] for kinds in activity.originals])
        like = np.where(activity.repeated, common, len(together) + np.cumsum(some) - 1)[some]
        return cls(
            made=np.hstack([np.eye(len(together))[common], np.eye(count)[:, some]]),
            mean_w=np.append(np.full(len(together), mean_w), np.zeros(int(some.sum()))),
            sd_w=np.append(np.full(len(together), sd_w), apart[some]),
            like=np.append(np.arange(len(together)), like),
        )

    def sds(self, power_w: Floats) -> Floats:
        """Standard deviations once powers are roughly known: what repetitions draw goes with what their kernel does."""
        more, repeats = np.ones(len(self.like)), np.flatnonzero(self.like < np.arange(len(self.like)))
        more[repeats] = np.maximum(power_w[self.like[repeats]] / self.mean_w[self.like[repeats]], 1.0)
        return self.sd_w * more


def _spread(
    cuts: Cuts, activity: Activity, part_s: Floats, above_w: Floats, response: Response
) -> tuple[Floats, Floats]:
    """Density of the spread within kinds, and the variance of what samples make of it, for a relative spread of 1.

    Kernels that last L have density power² L. With samples every S apart, those shorter than S are seen in proportion
    to their length, and then as if they lasted S: readings scatter by a density of power² S, of which L / S is energy.
    """
    lasts_s = _lasts_s(activity)
    density = part_s @ (above_w**2 * lasts_s) / cuts.h
    if not response.weight:
        return density, np.zeros(len(density))
    missed = part_s @ (above_w**2 * np.maximum(response.sample_s - lasts_s, 0.0)) / cuts.h
    return density, missed * (1 - np.exp(-2 * cuts.h / response.rise_s)) / (2 * response.rise_s)


def _lasts_s(activity: Activity) -> Floats:
    """Mean length of the intervals of each column, s, shape (columns,)."""
    count = np.bincount(activity.column, minlength=len(activity.members))
    return np.asarray(activity.seconds[:-1] / np.maximum(count, 1))


def _scatter(activity: Activity, above_w: Floats) -> Floats:
    """Variance of a second of each kind by single kernels, for a relative spread of 1, J²/s, shape (kinds,)."""
    second, seconds = above_w**2 * _lasts_s(activity), activity.seconds[:-1]
    return np.asarray((second * seconds) @ activity.shares / np.maximum(seconds @ activity.shares, 1e-12))


def _varies(
    cuts: Cuts,
    activity: Activity,
    part_s: Floats,
    above_w: Floats,
    solution: Solution,
    prior: Prior,
    clock: float,
    period_s: float,
) -> float:
    """Standard deviation of what kernels draw in blocks of time beyond their mean, J over all of their time.

    Beyond the powers of their columns they draw what the ``clock`` adds, an unknown in prior standard deviations, and
    the chain's excess over idle power: that goes to kernels and to the time between them by the variance that each may
    have.
    """
    busy_s = part_s.sum(axis=1)
    slower_j = np.diff(activity.integral(cuts.time_s, above_w[activity.column] * activity.slowness))
    kernels_j, rest_j = prior.spread[0] * part_s @ above_w, prior.excess_w * (cuts.h - busy_s)
    of_kernels = kernels_j**2 / np.maximum(kernels_j**2 + rest_j**2, 1e-18)
    extra_j = (solution.segment_j - solution.state[:-1, -2] * cuts.h) * of_kernels + prior.clock * clock * slower_j
    extra_w = extra_j / np.maximum(busy_s, 1e-12)
    beyond_j = extra_j - part_s @ (part_s.T @ extra_w / np.maximum(part_s.sum(axis=0), 1e-12))
    block = ((cuts.time_s[:-1] - cuts.time_s[0]) // (_BLOCK * period_s)).astype(int)
    each_j, each_s = np.bincount(block, beyond_j), np.bincount(block, busy_s)
    return float(np.sqrt((each_j**2 / np.maximum(each_s, 1e-12)).sum() * busy_s.sum()))


def _sensor(
    times_s: Floats,
    cuts: Cuts,
    cover: csr_matrix,
    activity: Activity,
    above_w: Floats,
    response: Response,
    sampled: Sampled | None,
    prior: Prior,
) -> Unknowns:
    """Unknowns of clock and sensor, by derivatives about the nominal ones in standard deviations.

    Power at a power limit goes with the clock, which durations of kernels show: with an exponent. Of a sampler the
    times of samples and their response follow, where they are known, else the delay; and then the rise.
    """
    power_w, kinds = above_w[activity.column], len(activity.kinds)
    clock_w = power_w * activity.slowness
    clock_j = np.diff(activity.integral(cuts.time_s, clock_w))
    by_column_j = np.bincount(activity.column, clock_w * (activity.end_s - activity.start_s), len(above_w))
    by_sensor = slopes(times_s, activity.timeline, above_w, response)
    if sampled is None:
        value_w = averaged(cuts.time_s[cuts.seen], cuts.time_s, clock_j / cuts.h, response)
        shown, mean = by_sensor, np.zeros(2)
    else:
        seen = sampled.observe(activity, times_s, clock_w, power_w, shape=True)
        now, before = sampled.unknowns(shape=True)
        # by independent unknowns of variance 1, in place of changes from now
        orthogonal, triangle = np.linalg.qr(before.rows)
        value_w, by_place = seen.value, seen.shift @ np.linalg.inv(triangle)
        shown = np.column_stack([by_place, by_sensor[:, 1:]])
        mean = np.append(orthogonal.T @ (before.target - before.rows @ now), 0.0)
    wanted = np.zeros((cover.shape[0], len(mean) + 1))
    wanted[:, 0] = prior.clock * np.append(cover[:-kinds] @ clock_j, by_column_j @ activity.shares)
    shown = np.column_stack([prior.clock * value_w, shown])
    return Unknowns(shown, wanted, np.append(0.0, mean), np.ones(len(mean) + 1))


def _late(
    cuts: Cuts, activity: Activity, look: Look, above_w: Floats, shown: Floats, response: Response, unsure_s: Floats
) -> Floats:
    """Noise of the readings, shape (readings,), where the samples' times are unknown; ``look`` gets its jolts.

    The last sample falls anywhere before a reading's moment: uniform, times what the state still lacks. Times of single
    readings are known to ``unsure_s``, and to the response's jitter.
    """
    power_w = above_w[activity.column]
    edges = np.append(activity.start_s, activity.end_s), np.append(power_w, -power_w)
    look.jolt = jolts_of(cuts, *edges, response)
    lacks_w = (activity.timeline.running(cuts.time_s[cuts.seen]) - shown) @ above_w
    noise_w, jitter_s = np.hypot(response.noise_w, lacks_w * response.weight / np.sqrt(12)), response.jitter_s
    if not response.back_to_back and (jitter_s or unsure_s.any()):
        moment_s, late_s = cuts.time_s[cuts.seen], np.hypot(jitter_s, unsure_s)
        later, earlier = (shares(moment_s + by * late_s, activity.timeline, response) for by in (1, -1))
        noise_w = np.hypot(noise_w, (later - earlier) @ above_w / 2)
    return np.asarray(noise_w)


def _likely(solved: Callable[[int, int], Solution], prior: Floats) -> dict[tuple[int, int], Solution]:
    """Solutions of the grid points that count, by point; ``prior`` has the shape of the grid.

    The evidence has one summit along the first axis, so that points beside unlikely ones needn't be tried.
    """
    tried: dict[tuple[int, int], Solution] = {}
    last, others = len(prior) - 1, range(prior.shape[1])

    def weight(point: tuple[int, int]) -> float:
        return tried[point].log_evidence + float(np.log(prior[point]))

    def untried(points: list[tuple[int, int]]) -> set[tuple[int, int]]:
        """Those next to these along the first axis, then along the second one."""
        beside = {(min(max(d + step, 0), last), s) for d, s in points for step in (-1, 1)} - tried.keys()
        return beside or {(d, s) for d, _ in points for s in others} - tried.keys()

    new = {(int(prior.sum(axis=1).argmax()), other) for other in others}
    while new:
        tried |= {point: solved(*point) for point in new}
        best = max(tried, key=weight)  # the summit before its surroundings
        near = [point for point in tried if weight(point) > weight(best) + np.log(KEPT)]
        new = untried([best]) or untried(near)
    return {point: tried[point] for point in near}
