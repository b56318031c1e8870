"""Energies from means over windows that meet, as an H100 logs them: the sum of readings, and what its ends leave open.

Where windows meet their sum leaves out nothing. At the end of a span one window holds power of both sides, and a change
there may lie on either. Readings beside it, which a Gaussian power explains, place the change (a regression of the
energy on the readings; Rasmussen and Williams 2006, 2.2). A swing whose periods fit into a window leaves no trace in
any reading.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Floats, Indices
from jouletrace.attribution.chains import ANY
from jouletrace.attribution.solve import Energies
from jouletrace.run.readings import Readings
from jouletrace.sensor.shares import Response

_WITHIN = 3.0
"""Most that power swings about a window's mean, over the change to the next window, where half of the mean isn't less:
of swings that last a sixteenth of a window, which change means by a quarter of themselves (1 / sqrt(16))."""

_SWINGS, _SEEN, _AROUND = 1 / 12, 2.0, 8
"""Standard deviation of what a swing that no window shows leaves unknown at the end of a span, over the window's length
and the power above rest: of a load that is on for half of a period of up to a window. Most of it over the median change
from window to window, among so many on each side: where readings hardly change, nothing swings."""


class _Side(NamedTuple):
    """How power changes about a time, or between two edges."""

    change: float  # mean square change from reading to reading, W²
    white: float  # share of it that a white power makes
    swing_w: float  # standard deviation of what a swing that no window shows leaves unknown, over the window's length

    @classmethod
    def of(cls, value: Floats, response: Response, above_w: float) -> _Side:
        """That of some readings, of power up to ``above_w`` above rest."""
        lag = _lag(response)
        moved_w = np.abs(value[lag:] - value[:-lag])
        seen_w = _SEEN * float(np.median(moved_w)) if len(moved_w) else np.inf
        change = float(np.mean(np.diff(value) ** 2))
        return cls(change, _white(value, response), min(_SWINGS * above_w, seen_w))


def mean_energies(record: Readings, response: Response, spans: Floats, edges_s: Floats) -> Energies:
    """Energies of spans, shape (s, 2), from means over windows that meet.

    At ``edges_s``, in order, loads begin and end: power may jump there, and changes in another way beyond. When it
    changes otherwise no one knows.
    """
    end_s, value = record.time_s - response.delay_s, record.value
    gap_s, reach = np.diff(end_s, prepend=end_s[0] - response.period_s), (_AROUND + 6) * _lag(response) + 12
    # What is before the readings near an edge, whose first one has the usual distance there
    before_j = np.append(0.0, np.cumsum(value * gap_s)[:-1]) + value * (gap_s - response.period_s)
    ends, rest_w = np.empty((len(spans), 2, 2)), float(value.min())
    for i, edge_s in enumerate(spans.ravel().tolist()):
        at = int(np.searchsorted(end_s, edge_s))
        some = slice(max(at - reach, 0), at + reach)
        energy, variance = _up_to(edge_s, end_s[some], value[some], response, edges_s, rest_w)
        ends[divmod(i, 2)] = energy + before_j[some.start], variance
    energy_j = np.diff(ends[..., 0])[:, 0]
    step_s, overlap = response.period_s, response.window_s / response.period_s % 1
    lag = min(_lag(response), len(value) - 1)
    moved_w = np.abs(value[lag:] - value[:-lag])
    moved_w = np.append(np.full(len(value) - 1 - len(moved_w), moved_w[0]), moved_w)
    swing_w = np.minimum(value[1:] / 2, _WITHIN * moved_w)
    # Ages of readings differ, alike within a window: they move changes, and what lies between windows isn't seen
    aged = response.jitter_s**2 * (1.5 * moved_w**2 / lag + 2 * swing_w**2 / lag**2)
    # At some times more windows overlap than at others
    aged += _white(value, response) * step_s**2 * overlap * (1 - overlap) / 2 * np.diff(value) ** 2
    joints = np.append(0.0, np.cumsum(aged + (response.noise_w * np.diff(end_s)) ** 2))
    at_w, joined = (np.diff(np.interp(spans, end_s - response.middle_s, values))[:, 0] for values in (value, joints))
    moved_j = at_w * response.delay_sd_s
    covariance = np.diag(joined + ends[..., 1].sum(axis=1)) + np.outer(moved_j, moved_j)
    return Energies(np.ones(1), energy_j[None], covariance[None])


def _lag(response: Response) -> int:
    """Readings from one window to the next that meets it."""
    return max(round(response.window_s / response.period_s), 1)


def _moves(late_s: float, width_s: float) -> Floats:
    """Mean square change of a mean over a window in some time, W², of a walk and a white power of density 1."""
    both_s = min(late_s, width_s)
    return np.array([both_s**2 / width_s * (1 - both_s / (3 * width_s)) + late_s - both_s, 2 * both_s / width_s**2])


def _white(value: Floats, response: Response) -> float:
    """Share of the mean square change from reading to reading that a white power makes; a walk makes the rest."""
    once, twice = (_moves(k * response.period_s, response.window_s) for k in (1, 2))
    walk, white = twice / once
    grows = np.square(value[2:] - value[:-2]).sum() / max(np.square(np.diff(value)).sum(), 1e-9)
    return float(np.clip((walk - grows) / (walk - white), 0.0, 1.0))


def _up_to(
    edge_s: float, end_s: Floats, value: Floats, response: Response, edges_s: Floats, rest_w: float
) -> tuple[float, float]:
    """Energy up to a time, in J but for a constant of the log, and its variance, from means over windows.

    The sum of the readings is that of the power before the last windows. There power is taken for a walk and a white
    fluctuation, which together make the change from reading to reading about that time, on each side of a known edge
    by itself. Windows before the first, which no reading shows, are in the constant: without them a span that begins
    in the first one lacks its beginning.
    """
    width_s, step_s, lag = response.window_s, response.period_s, _lag(response)
    before = int(np.ceil(width_s / step_s)) + 4
    every_s = np.append(end_s[0] + step_s * np.arange(-before, 0), end_s)
    at = int(np.searchsorted(every_s - width_s / 2, edge_s))
    near_s = edge_s + width_s * np.array([-0.5, 1.5]) + 2.5 * step_s * np.array([-1, 1])
    first, last = np.clip(np.searchsorted(every_s, near_s), [0, at + 1], [at - 2, len(every_s)])  # rare ones, too
    ends_s, gap_s, shown = every_s[first:last], np.diff(every_s, prepend=-np.inf)[first:last], np.arange(first, last)
    shown, summed = shown >= before, shown < at
    grid_s = np.arange(ends_s[0] - width_s, ends_s[-1], min(width_s, step_s) / 8)
    jumps_s = edges_s[(edges_s > grid_s[0]) & (edges_s < ends_s[-1])]
    cuts_s = np.unique(np.concatenate([grid_s, ends_s, ends_s - width_s, [edge_s], jumps_s]))
    h, middle_s = np.diff(cuts_s), (cuts_s[1:] + cuts_s[:-1]) / 2
    since_s = middle_s - cuts_s[0]
    share = ((middle_s > ends_s[:, None] - width_s) & (middle_s < ends_s[:, None])) * h / width_s
    left = (middle_s < edge_s) * h - gap_s[summed] @ share[summed]
    left[middle_s < ends_s[0]] = 0.0
    share, ends_s, shown_w = share[shown], ends_s[shown], value[max(first - before, 0) : last - before]
    around = slice(max(at - before - _AROUND * lag, 0), at - before + _AROUND * lag)
    about = np.abs(end_s[1:] - (step_s + width_s) / 2 - edge_s) < step_s + width_s / 2
    top_w = shown_w[np.abs(ends_s - width_s / 2 - edge_s) < width_s + step_s / 2].max(initial=rest_w)
    every = _Side.of(value[around], response, top_w - rest_w)
    every = every._replace(change=float(np.mean(np.diff(value)[about | ~about.any()] ** 2)))
    sides, pieces = [every], np.searchsorted(edges_s, grid_s[0], "right") + np.arange(len(jumps_s) + 1)
    if len(jumps_s):
        in_piece = _piece(end_s[around], width_s, edges_s)
        each_w = [value[around][in_piece == k] for k in pieces.tolist()]
        sides = [_Side.of(side_w, response, np.ptp(side_w)) if len(side_w) > lag + 1 else every for side_w in each_w]
    piece, of_window = np.searchsorted(jumps_s, middle_s), _piece(ends_s, width_s, jumps_s)
    change, white, swing_w = np.array(sides).T
    pace, density = change * np.array([1 - white, white]) / _moves(step_s, width_s)[:, None]
    walk = pace[piece] * np.minimum.outer(since_s, since_s)
    power = (walk + ANY) * np.equal.outer(piece, piece) + np.diag(density[piece] / h)
    # A reading of unknown age: by what power does within its piece, or by the jump that its window holds
    number = np.arange(first, last)[shown] - before
    jump_w = value[np.minimum(number + lag, len(value) - 1)] - value[np.maximum(number - lag, 0)]
    aged = response.jitter_s**2 * change[of_window] / step_s**2
    aged_jump = (response.jitter_s**2 + response.delay_sd_s**2) * jump_w**2 / width_s**2
    noise_variance = response.noise_w**2 + np.where(of_window < 0, aged_jump, aged)
    seen = power @ share.T
    solved = np.linalg.solve(share @ seen + np.diag(noise_variance), seen.T)
    base_w = shown_w.mean()
    # Of two sides whose edge is known the calmer one says what is left for the other
    swings_w = min(swing_w[np.searchsorted(jumps_s, edge_s, side)] for side in ("left", "right"))
    own_s = (
        edge_s - every_s[at - 1] + (width_s - step_s) / 2
    )  # what is left of any power, of which windows have all else
    sum_j = value[: at - before] @ np.diff(end_s, prepend=end_s[0] - step_s)[: at - before]
    energy_j = sum_j + left @ solved.T @ (shown_w - base_w) + own_s * base_w
    variance = left @ (power - seen @ solved) @ left + (width_s * swings_w) ** 2
    return float(energy_j), float(variance)


def _piece(end_s: Floats, width_s: float, jumps_s: Floats) -> Indices:
    """Number of the piece between jumps in which each window lies; -1 of those that hold one."""
    first, last = (np.searchsorted(jumps_s, at_s) for at_s in (end_s - width_s, end_s))
    return np.where(first == last, last, -1)
