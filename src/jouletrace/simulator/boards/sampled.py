"""A simulated record that samples: readings of a traced segment from momentary samples of each kernel's power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.instruments import Ring
from jouletrace.simulator.sensors import Power, SamplingSensor

_POLES_NS = (20_000.0,)
"""Time constants between the chip and the place where its power is sensed."""

_AROUND_NS = 400_000_000
"""Idle time before the first and after the last kernel that the samples cover."""


class SampledStretch:
    """A segment in which the record comes from a sensor that takes momentary samples, as Hopper's does.

    The physics of a GPU advances in cells of a millisecond; kernels are shorter. Here each kernel draws its own
    power, and the sum is the energy that the GPU drew. The record holds its readings back until all powers are known.

    Args:
        board: The GPU.
        ring: Its record; None for a GPU whose sensor averages and resolves no kernels.
        rng: Draws the sensor and its noise.
        rate_hz: The GPU's samples per second.
    """

    def __init__(self, board: Board, ring: Ring | None, rng: np.random.Generator, rate_hz: float) -> None:
        self._board, self._ring, self._rng, self._rate_hz = board, ring, rng, rate_hz

    def __enter__(self) -> SampledStretch:
        self._start_ns = self._board.clock.time_ns()
        self._rows = np.empty((0, 2), np.int64)
        if self._ring is not None:
            self._ring.hold(self._start_ns)
        return self

    def saw(self, edges_ns: NDArray[np.int64], active_w: NDArray[np.float64]) -> None:
        """Set the kernels that ran in the segment.

        Args:
            edges_ns: Start and end of each kernel in order, shape (n, 2).
            active_w: Approximate power of each over idle, shape (n,).
        """
        power = self._power(edges_ns, active_w)
        sensor = replace(SamplingSensor.draw(self._rng, power.length_ns / 1e9), rate_hz=self._rate_hz)
        rows = sensor.record(self._rng, power)
        self._rows = rows[rows[:, 0] * 1000 > self._start_ns]

    def __exit__(self, *_: object) -> None:
        if self._ring is not None:
            self._ring.release(self._board.clock.time_ns(), self._rows[:, 0] * 1000, self._rows[:, 1] / 1e3)

    def _power(self, edges_ns: NDArray[np.int64], active_w: NDArray[np.float64]) -> Power:
        """Power that is constant between edges; adjacent kernels leave no idle time between them."""
        begin, finish = int(edges_ns[0, 0]), int(edges_ns[-1, 1])
        idle = self._board.truth.idle_w(begin)
        drawn = self._board.truth.caused_energy_j(begin, finish) - idle * (finish - begin) / 1e9
        factor = drawn / float((np.diff(edges_ns, axis=1)[:, 0] * active_w).sum() / 1e9)
        edges = np.concatenate([[begin - _AROUND_NS], edges_ns.ravel(), [finish + _AROUND_NS]])
        watts = np.full(len(edges) - 1, idle)
        watts[1::2] += active_w * factor
        return Power(int(edges[0]), edges - edges[0], watts, _POLES_NS)
