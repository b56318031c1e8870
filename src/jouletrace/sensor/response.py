"""The response of one sample: the weights of the power around its nominal time, within 0.2 ms.

The response of readings, within tens of milliseconds, is in ``sensor.windows.response``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

STEP_S = 5e-6
"""Spacing of a response's table."""

BIN_S = 10e-6
BINS_S = np.arange(-15, 32) * BIN_S
"""Edges, as lags, of the bins in which a response may differ from the nominal one."""


@dataclass(frozen=True)
class Response:
    """Weight of the power before a sample (positive lags) and after it (negative lags).

    The origin is a convention: a shift of all lags is a shift of the phase.

    Attributes:
        first_s: Lag of the first entry of ``weight``.
        weight: Shape (m,), every ``STEP_S``, in 1/entry: sums to 1.
    """

    first_s: float
    weight: NDArray[np.float64]
    _padded: NDArray[np.float64] = field(init=False, repr=False)
    _sum: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weight = np.asarray(self.weight, np.float64)
        weight = weight / weight.sum()
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "_padded", np.concatenate([[0.0], weight, [0.0]]))
        object.__setattr__(self, "_sum", np.concatenate([[0.0, 0.0], np.cumsum(weight)]))

    @property
    def earliest_s(self) -> float:
        """Smallest lag of the response, negative."""
        return self.first_s - STEP_S / 2

    @property
    def latest_s(self) -> float:
        """Largest lag of the response."""
        return self.earliest_s + STEP_S * len(self.weight)

    def plus(self, change: NDArray[np.float64]) -> Response:
        """The response with ``change`` added to the weights of the bins of ``BINS_S``, shape (bins,)."""
        edges = np.arange(BINS_S[0], BINS_S[-1] + STEP_S / 2, STEP_S)
        half = round(BIN_S / STEP_S)
        weight = np.diff(self.within(edges)) + np.repeat(change, half) / half
        return Response(float(edges[0] + STEP_S / 2), weight)

    def within(self, lag_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Total weight of lags below ``lag_s``: from 0 to 1; same shape."""
        return self.at(lag_s)[0]

    def density(self, lag_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weight per second at ``lag_s``, 0 outside; same shape."""
        return self.at(lag_s)[1]

    def at(self, lag_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``within`` and ``density``, whose place in the table is the same."""
        place = lag_s - (self.earliest_s - STEP_S)  # one entry of weight 0 comes first, one last
        place /= STEP_S
        np.clip(place, 0, len(self._padded) - 1e-9, out=place)
        entry = place.astype(np.int64)
        weight = self._padded[entry]
        place -= entry
        place *= weight
        place += self._sum[entry]
        weight /= STEP_S
        return place, weight
