"""A sensor's response (a mean over time before its stamp) and the errors of its readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.simulator.boards.trace import ENERGY, Trace

_PIECES_PER_RISE = 10
_RISES = 10
_MOST_PIECES = 1000
_SHORTEST_S = 1e-6
_SAMPLES_AVERAGED = 16
_SAMPLES_KEPT = 160
_SAMPLE_NS = 160_000
"""Window of a sample; the response of a real one has the same standard deviation."""


@dataclass(frozen=True)
class Response:
    """A weighted mean of the power over pieces of time before the stamp.

    Attributes:
        bounds_s: Bounds of the pieces, as times before the stamp, increasing; negative where the stamp is early.
            Shape (n + 1,).
        weights: Weight of the mean power of each piece; they sum to 1. Shape (n,).
    """

    bounds_s: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def ahead_ns(self) -> int:
        """Time from a stamp to the earliest moment at which its reading can be computed."""
        return max(0, -round(self.bounds_s[0] * 1e9))

    def power_w(self, trace: Trace, stamp_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Noiseless readings with the given stamps, shape as ``stamp_ns``."""
        before_ns = np.rint(np.array(self.bounds_s) * 1e9).astype(np.int64)
        energy = trace.reached(ENERGY, stamp_ns[:, None] - before_ns)
        mean = -np.diff(energy, axis=1) / (np.diff(before_ns) / 1e9)
        return np.asarray(mean @ np.array(self.weights), dtype=np.float64)


def smoothed(window_s: float, lag_s: float, rise_s: float = 0.0) -> Response:
    """A boxcar that ends ``lag_s`` before the stamp, smeared by an exponential of mean ``rise_s``.

    The exponential is approximated by pieces in which it hardly changes, so that its step response is smooth.
    """
    window_s = max(window_s, _SHORTEST_S)
    if rise_s <= _SHORTEST_S:
        return Response((lag_s, lag_s + window_s), (1.0,))
    end_s = window_s + _RISES * rise_s
    pieces = min(int(np.ceil(end_s / rise_s * _PIECES_PER_RISE)), _MOST_PIECES)
    delay = np.linspace(0.0, end_s, pieces + 1)
    past = np.maximum(delay - window_s, 0.0)
    shown = (delay - past + rise_s * (np.exp(-delay / rise_s) - np.exp(-past / rise_s))) / window_s
    weights = np.diff(shown) / (shown[-1] - shown[0])
    return Response(tuple((lag_s + delay).tolist()), tuple(weights.tolist()))


@dataclass(frozen=True)
class Sampled:
    """Momentary samples in a recursive average, on a clock of their own, as in Hopper's record.

    A reading is the average's state ``lag_s`` before its stamp. Power between two samples has no effect.

    Attributes:
        rate_hz: Samples per second.
        phase: Phase of the first sample after the trace's start, in samples.
        lag_s: Time from the moment whose state is read to the stamp.
    """

    rate_hz: float
    phase: float
    lag_s: float

    ahead_ns = 0

    def power_w(self, trace: Trace, stamp_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Noiseless readings with the given stamps, shape as ``stamp_ns``."""
        last = np.floor(((stamp_ns - trace.start_ns) / 1e9 - self.lag_s) * self.rate_hz - self.phase)
        since_ns = (last[:, None] - np.arange(_SAMPLES_KEPT) + self.phase) / self.rate_hz * 1e9
        instant_ns = trace.start_ns + np.rint(since_ns).astype(np.int64)
        energy = trace.reached(ENERGY, np.stack([instant_ns - _SAMPLE_NS, instant_ns]))
        weights = (1 - 1 / _SAMPLES_AVERAGED) ** np.arange(_SAMPLES_KEPT)
        return np.asarray(np.diff(energy, axis=0)[0] @ weights / weights.sum() / (_SAMPLE_NS / 1e9), np.float64)


@dataclass(frozen=True)
class Faults:
    """Hidden errors of a reading after the response.

    Attributes:
        gain: True factor on the power.
        noise_w: Standard deviation of white noise.
    """

    gain: float = 1.0
    noise_w: float = 0.0

    def apply(self, power_w: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Readings, rounded to whole milliwatts, of true powers."""
        noisy = power_w * self.gain + self.noise_w * rng.standard_normal(len(power_w))
        return np.asarray(np.round(np.maximum(noisy, 0.0), 3), dtype=np.float64)
