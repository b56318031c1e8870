"""The track of a sampler's samples through a recording, by dynamic programming over their phase."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Activity
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Sensor
from jouletrace.sensor.phases import GRID_S, SETTLE_S, Places, designs, responded
from jouletrace.sensor.sampler import Track

Array = NDArray[np.float64]

BLOCK_S = 1.0
BINS = 80
"""Phases of a sample period in the dynamic programme, per block."""


def follow(
    sensor: Sensor, activity: Activity, readings: Readings, rate_hz: float, idle_w: float, above_w: Array
) -> Track:
    """The track through a recording of roughly known powers, whose blocks of ``BLOCK_S`` fit the readings best.

    It is the path of phases with the least sum of squares among those whose rate changes slowly. Neighbours bridge a
    block with little information (nothing ran) or a misleading one. ``above_w`` is that of each interval above idle.
    """
    start, end = activity.begin_s, activity.finish_s
    blocks = max(1, int((end - start - SETTLE_S) / BLOCK_S))
    begins = start + SETTLE_S + BLOCK_S * np.arange(blocks, dtype=np.float64)
    phases = np.arange(BINS) / BINS
    cost = np.zeros((blocks, BINS))
    for b, begin in enumerate(begins):
        mine = readings.between(begin, begin + BLOCK_S)
        if mine.sum() < 5:
            continue
        zero = start + np.floor((begin - SETTLE_S - start) * rate_hz) / rate_hz  # whole samples after the start
        edges = np.arange(zero - 1e-3, begin + BLOCK_S, GRID_S)
        seen = responded(sensor.response, idle_w + activity.power(edges, above_w)[:, None])
        times = readings.time_s[mine]
        read = designs(sensor, seen, edges[0], rate_hz, phases, Places.from_times(times, float(zero)))[:, :, 0]
        wrong = read - readings.value[mine]
        cost[b] = ((wrong - wrong.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    path = _cheapest(cost)
    straight = Track.straight(start, end, rate_hz, start)
    number = (begins + BLOCK_S / 2 - start) * rate_hz
    taken = straight.start_s + (number + path / BINS) / rate_hz
    return straight.through(number, np.asarray(taken, np.float64))


def _cheapest(cost: Array) -> NDArray[np.int64]:
    """The cheapest path through (blocks, phases), unwound, of slowly changing rate; shape (blocks,).

    A state is a phase and its step per block: two bins times a number that changes by at most one, that is by
    0.025 Hz per second, up to 0.4 Hz.
    """
    moves = 2 * np.arange(-16, 17)
    total = np.broadcast_to(cost[0], (len(moves), cost.shape[1])).copy()
    came = np.zeros((len(cost), *total.shape), np.int64)
    wall = np.full((1, cost.shape[1]), np.inf)
    for b in range(1, len(cost)):
        options = np.stack([np.vstack([wall, total[:-1]]), total, np.vstack([total[1:], wall])])
        came[b] = np.argmin(options, axis=0)  # which neighbour's rate was there before the move
        best = np.take_along_axis(options, came[b][None], axis=0)[0]
        total = np.stack([np.roll(row, move) for row, move in zip(best, moves, strict=True)]) + cost[b]
    rate, phase = (int(i) for i in np.unravel_index(int(np.argmin(total)), total.shape))
    path = [phase]
    for b in range(len(cost) - 1, 0, -1):
        phase -= int(moves[rate])
        rate += int(came[b][rate, phase % cost.shape[1]]) - 1
        path.append(phase)
    return np.array(path[::-1])
