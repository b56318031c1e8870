"""The record around the ends of windows: what posteriors are computed of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.posterior import Posterior, Problems, Target, fit, solve
from jouletrace.sensor.windows.segments import Stretches
from jouletrace.sensor.windows.varied import noise_sd

Floats = NDArray[np.float64]

CHUNK = 128
"""Neighbourhoods that are solved at once, which bounds memory."""

_MAX_EDGES = 24


class Neighbourhoods:
    """The record around the ends of windows, for one response."""

    def __init__(
        self, time_s: Floats, time_sd: Floats, power_w: Floats, between: Stretches, response: StepResponse
    ) -> None:
        self.time, self.power, self.between, self.response = time_s, power_w, between, response
        period = response.period_s
        self.margin = response.reach_s
        self.bin = min(period, max(response.seen_s, period / 2)) / 8
        # A reading stands for the time nearest to the middle of what it saw.
        middle = time_s - response.delay_s
        inner = (middle[1:] + middle[:-1]) / 2
        self.cells = np.concatenate([[middle[0] - period / 2], inner, [middle[-1] + period / 2]])
        self.running = np.append(0.0, np.cumsum(np.diff(self.cells) * power_w))
        self.change = np.gradient(power_w) if len(power_w) > 1 else np.zeros(len(power_w))
        # Readings that still remember an edge are off by what the shape gets wrong of its jump.
        jumps = np.append(0.0, np.cumsum(np.abs(between.jump_w)))
        recent = jumps[between.index(time_s)] - jumps[between.index(time_s - response.memory_s)]
        shape_error = response.misfit_relative * recent
        unseen = between.unseen_w[between.index(time_s)]
        mistimed = time_sd / period * self.change
        self.noise = np.sqrt(noise_sd(response, power_w) ** 2 + mistimed**2 + shape_error**2 + unseen**2)

    def plain_sum(self, start_s: Floats, end_s: Floats) -> Floats:
        """Joules of [start, end] by summing readings over their cells."""
        low, high = (np.interp(x, self.cells, self.running) for x in (start_s, end_s))
        return np.asarray(high - low)

    def whole(self, a: Floats, b: Floats) -> tuple[Posterior, NDArray[np.bool_]]:
        """Windows short against the margin: everything from before one end to after the other."""
        problems, crowded, _ = self._cut(a - self.margin, b + self.margin, (a + b) / 2)
        target = Target(a, b, np.zeros_like(problems.time_s))
        return solve(problems, self.response, target), crowded

    def ends(self, a: Floats, b: Floats) -> tuple[Posterior, NDArray[np.bool_]]:
        """Long windows: a plain sum, and the posterior of what it misses at each end."""
        reach = self.margin - self.response.memory_s
        # The correction at an end stops between two cells, where a sum has nothing to correct.
        inner_a = self.cells[np.searchsorted(self.cells, a + reach) - 1]
        inner_b = self.cells[np.searchsorted(self.cells, b - reach)]
        left, crowded_left = self._missed(a, a, inner_a)
        right, crowded_right = self._missed(b, inner_b, b)
        mean = self.plain_sum(a, b) + left.mean + right.mean
        variance = left.variance + right.variance + self.between.sum_variance(inner_a, inner_b)
        misfit, strain = np.maximum(left.misfit, right.misfit), np.maximum(left.strain, right.strain)
        return Posterior(mean, variance, misfit, strain), crowded_left | crowded_right

    def fit(self, edge: Floats, other: StepResponse) -> tuple[Floats, Floats]:
        """Misfit and log likelihood of the readings around each edge if the response were another one; same shape."""
        parts = (edge[i : i + CHUNK] for i in range(0, len(edge), CHUNK))
        cuts = (self._cut(part - self.margin, part + self.margin, part)[0] for part in parts)
        misfit, likelihood = zip(*(fit(problems, other) for problems in cuts), strict=True)
        return np.concatenate(misfit), np.concatenate(likelihood)

    def _missed(self, edge: Floats, start: Floats, end: Floats) -> tuple[Posterior, NDArray[np.bool_]]:
        """Energy of [start, end] less the plain sum over it, around one edge."""
        problems, crowded, index = self._cut(edge - self.margin, edge + self.margin, edge)
        low, high = self.cells[index], self.cells[index + 1]
        share = np.clip(np.minimum(high, end[:, None]) - np.maximum(low, start[:, None]), 0, None)
        share = np.where(np.isfinite(problems.noise_w), share, 0.0)
        return solve(problems, self.response, Target(start, end, share)), crowded

    def _cut(self, left: Floats, right: Floats, centre: Floats) -> tuple[Problems, NDArray[np.bool_], NDArray[np.intp]]:
        """Readings, edges and fluctuation of [left, right], padded to one size."""
        response, between = self.response, self.between
        bins = int(np.ceil(float((right - left).max()) / self.bin))
        # Only readings all of whose memory lies in the grid. Where stamps lead, it lies after the stamp.
        first = np.searchsorted(self.time, left + response.memory_s + min(response.lag_s, 0.0))
        last = np.searchsorted(self.time, right + response.lag_s)
        index = first[:, None] + np.arange(max(int((last - first).max()), 1))
        real = index < last[:, None]
        safe = np.clip(index, 0, len(self.time) - 1)

        begin = np.searchsorted(between.edges_s, left)
        until = np.searchsorted(between.edges_s, right)
        crowded = until - begin > _MAX_EDGES
        nearest = np.searchsorted(between.edges_s, centre) - _MAX_EDGES // 2
        begin = np.where(crowded, np.clip(nearest, begin, until - _MAX_EDGES), begin)
        until = np.minimum(until, begin + _MAX_EDGES)
        edge = begin[:, None] + np.arange(max(int((until - begin).max()), 1))
        known = edge < until[:, None]
        edge = np.minimum(edge, len(between.edges_s))

        middle = left[:, None] + self.bin * (np.arange(bins) + 0.5)
        power = self.power[safe]
        spread = np.where(real, power, -np.inf).max(1) - np.where(real, power, np.inf).min(1)
        scale = 2 * np.maximum(spread, 0) + np.where(real, power, 0).max(1) + 1.0
        problems = Problems(
            left_s=left,
            bin_s=self.bin,
            bins=bins,
            time_s=self.time[safe],
            power_w=power,
            noise_w=np.where(real, self.noise[safe], np.inf),
            change_w=self.change[safe],
            edge_s=np.where(known, np.append(between.edges_s, np.nan)[edge], np.nan),
            jump_w=np.where(known, np.append(between.jump_w, 0.0)[edge], 0.0),
            wander_w=between.wander_w[between.index(middle)],
            tau_s=response.noise_tau_s,
            scale_w=scale,
        )
        return problems, np.asarray(crowded), np.where(real, index, 0)
