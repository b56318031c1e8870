"""How a sensor sees power: a boxcar, or a mixture of delayed ones, and what spoils its readings."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.simulated.trace import ENERGY, Trace

_QUANTILES = 8
_FINE_QUANTILES = 48


@dataclass(frozen=True)
class Response:
    """Mean power over a window that ends some time before the stamp, averaged over ``delays_s``.

    Attributes:
        window_s: Length of the boxcar.
        delays_s: Times from the end of the boxcar to the stamp, equally weighted; negative where
            the stamp is early.
    """

    window_s: float
    delays_s: tuple[float, ...]

    @property
    def ahead_ns(self) -> int:
        """How long after its stamp a reading can be known at the earliest."""
        return max(0, -round(min(self.delays_s) * 1e9))

    def power_w(self, trace: Trace, stamp_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Noiseless readings with the given stamps, shape as ``stamp_ns``."""
        ends = stamp_ns[:, None] - np.rint(np.array(self.delays_s) * 1e9).astype(np.int64)
        window_ns = max(round(self.window_s * 1e9), 1)
        energy = trace.reached(ENERGY, ends) - trace.reached(ENERGY, ends - window_ns)
        mean: NDArray[np.float64] = energy.mean(axis=1) / (window_ns / 1e9)
        return mean


def boxcar(window_s: float, lag_s: float, rise_s: float = 0.0) -> Response:
    """A boxcar that ends ``lag_s`` before the stamp, smeared by an exponential of mean ``rise_s``."""
    return Response(window_s, _delays(lag_s, rise_s, _QUANTILES if rise_s > 0 else 1))


def exponential(time_s: float, lag_s: float) -> Response:
    """A first-order low pass: no boxcar fits it."""
    return Response(1e-3, _delays(lag_s, time_s, _FINE_QUANTILES))


def _delays(lag_s: float, mean_s: float, count: int) -> tuple[float, ...]:
    """Midpoints of ``count`` equally likely parts of an exponential distribution, its mean kept."""
    parts = -np.log(1 - (np.arange(count) + 0.5) / count)
    return tuple((lag_s + mean_s * parts / parts.mean()).tolist()) if mean_s > 0 else (lag_s,)


@dataclass(frozen=True)
class Faults:
    """What spoils a reading after the response. All of it is hidden.

    Attributes:
        gain: True factor on the power.
        noise_w: Standard deviation of white noise.
        drift: Amplitude of a slow wander of the gain; 0 on a sensor that a model can describe.
        drift_w: Amplitude of a slow wander of the zero.
        drift_s: Period of both.
        phase: Their phase.
        dropped: Share of readings that go missing.
    """

    gain: float = 1.0
    noise_w: float = 0.0
    drift: float = 0.0
    drift_w: float = 0.0
    drift_s: float = 60.0
    phase: float = 0.0
    dropped: float = 0.0

    def apply(
        self, power_w: NDArray[np.float64], time_s: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Readings in whole milliwatts of true powers at times since some start."""
        turn = 2 * pi * time_s / self.drift_s + self.phase
        gain = self.gain * (1 + self.drift * np.sin(turn))
        noisy = power_w * gain + self.drift_w * np.cos(0.7 * turn) + self.noise_w * rng.standard_normal(len(power_w))
        return np.asarray(np.round(np.maximum(noisy, 0.0), 3), dtype=np.float64)
