"""Models of power sensors for the regression: one that takes momentary samples, one whose readings are means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jouletrace.arrays import Floats

STEP_S = 5e-6
"""Spacing of a response's table."""

BIN_S = 10e-6
BINS_S = np.arange(-15, 32) * BIN_S
"""Edges, as lags, of the bins in which a response may differ from the nominal one."""


@dataclass(frozen=True)
class SampleResponse:
    """Weight of the power before a sample (positive lags) and after it (negative lags).

    The origin is a convention: a shift of all lags is a shift of the phase.
    """

    first_s: float  # lag of the first entry of ``weight``
    weight: Floats  # shape (m,), every ``STEP_S``, in 1/entry: sums to 1
    _padded: Floats = field(init=False, repr=False)
    _sum: Floats = field(init=False, repr=False)

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

    def plus(self, change: Floats) -> SampleResponse:
        """The response with ``change`` added to the weights of the bins of ``BINS_S``, shape (bins,)."""
        edges = np.arange(BINS_S[0], BINS_S[-1] + STEP_S / 2, STEP_S)
        half = round(BIN_S / STEP_S)
        weight = np.diff(self.within(edges)) + np.repeat(change, half) / half
        return SampleResponse(float(edges[0] + STEP_S / 2), weight)

    def within(self, lag_s: Floats) -> Floats:
        """Total weight of lags below ``lag_s``: from 0 to 1; same shape."""
        return self.at(lag_s)[0]

    def at(self, lag_s: Floats) -> tuple[Floats, Floats]:
        """``within``, and the weight per second at ``lag_s``, 0 outside; same shapes."""
        entry_s = lag_s - (self.earliest_s - STEP_S)  # one entry of weight 0 comes first, one last
        entry_s /= STEP_S
        np.clip(entry_s, 0, len(self._padded) - 1e-9, out=entry_s)
        entry = entry_s.astype(np.int64)
        weight = self._padded[entry]
        entry_s -= entry
        entry_s *= weight
        entry_s += self._sum[entry]
        weight /= STEP_S
        return entry_s, weight


RATE_NEAR_HZ = 2.0
"""Range around a stored sample rate in which a GPU's rate is searched: it falls by about 0.3 Hz as a die warms."""

READOUT_HZ = 50.0
"""Readings per second: with a rate that is off by so much each has a sample more or less, at nearly the same times."""


@dataclass(frozen=True)
class Sensor:
    """A sensor that takes momentary samples: properties that hold for all recordings of a GPU."""

    response: SampleResponse  # response of one sample
    averages: int = 16  # length of the recursive average: ``y += (x - y) / averages`` at each sample
    delay_s: float = 3.4e-3  # from the moment at which the average is read to the reading's place on the grid
    delay_sd_s: float = 0.2e-3  # its standard deviation between GPUs
    noise_w: float = 0.3  # standard deviation of readings of a constant load
    rates_hz: tuple[float, float] = (1200.0, 1260.0)  # range of sample rates to search
    any_rate_hz: tuple[float, float] = (1150.0, 1310.0)  # wider range, for GPUs whose rate isn't in the first one
    aliased: bool = False  # whether rates that could be taken for those of ``rates_hz`` are searched, too

    @property
    def ranges_hz(self) -> list[tuple[float, float]]:
        """All ranges to search."""
        low, high = self.rates_hz
        return [(low + by, high + by) for by in (0.0, -READOUT_HZ, READOUT_HZ)[: 3 if self.aliased else 1]]

    def around(self, rate_hz: float, aliased: bool = False) -> Sensor:
        """The sensor with the range around a rate to search."""
        return replace(self, rates_hz=(rate_hz - RATE_NEAR_HZ, rate_hz + RATE_NEAR_HZ), aliased=aliased)

    def searches(self, known_hz: float | None) -> list[Sensor]:
        """The sensor with each range to search: near the rate of an earlier recording, the usual one, any."""
        ranges = [self, replace(self, rates_hz=self.any_rate_hz)]
        if known_hz is not None and self.any_rate_hz[0] <= known_hz <= self.any_rate_hz[1]:
            ranges.insert(0, self.around(known_hz))
        return ranges


@dataclass(frozen=True)
class Means:
    """A sensor whose readings are means over windows that end some delay before them."""

    window_s: float  # length of a window
    # Delay, and its standard deviation between GPUs
    delay_s: float = 3e-3
    delay_spread_s: float = 1.5e-3
    stretch_spread: float = 0.015  # relative standard deviation of the window's length between GPUs
