"""Chains: Markov sequences of small states at instants, whose segments have energies linear in the states beside them.

A chain differs by sensor and load alone. Its precision is banded, and energies aren't states, so that all of the
estimator is one narrow banded system (``solve``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.shares import Floats, Response

FLOOR_W = 0.05
"""Noise of the sensor's state per segment: well below a reading's, and keeps the precision finite."""

_STILL = 1e-4
"""Variance of a state that doesn't move, in W²."""

_ANY = 1e6
"""Variance of a state of which nothing is known, in W²."""


@dataclass(frozen=True)
class Chain:
    """Prior of n + 1 states of k numbers each, and the energies of the n segments between them."""

    band: Floats  # shape (2k, (n + 1) k): precision of all states, in LAPACK's lower bands
    log_det: float  # logarithm of its determinant
    energy: Floats  # shape (n, 2k): mean energy of a segment by the states beside it, in J per unit of a state
    own: Floats  # shape (n,): variance of a segment's energy given the states, in J²
    seen: NDArray[np.intp]  # shape (readings,), distinct: the instant of each; it shows the state's first number


Equation = tuple[Mapping[int, float | Floats], Floats]
"""A sum over the numbers of two neighbouring states that is zero but for noise: coefficients by position, those of the
second state after the first's, and the variance, shape (n,)."""


def precision(first: Floats, *equations: Equation) -> tuple[Floats, float]:
    """Precision of a chain's states in lower bands, (2k, (n + 1) k), and the logarithm of its determinant.

    ``first`` is the variance of each number of the first state, shape (k,). Each of the k equations of a segment has
    coefficient 1 for one of the second state's numbers and none for those of later equations.
    """
    k, n = len(first), len(equations[0][1])
    band = np.zeros((2 * k, (n + 1) * k))
    band[0, :k] = 1 / first
    log_det = -float(np.log(first).sum())
    for coefficients, variance in equations:
        for i, one in coefficients.items():
            for j, other in coefficients.items():
                if i >= j:
                    band[i - j, j : j + n * k : k] += one * other / variance
        log_det -= float(np.log(variance).sum())
    return band, log_det


def low_pass_chain(
    time_s: Floats,
    seen: NDArray[np.intp],
    response: Response,
    *,
    density: Floats,
    walk: Floats,
    jolt: Floats,
    fresh: Floats,
    idle_walk: Floats | float,
) -> Chain:
    """States (y, idle, excess) of a sensor with an exponential memory; n segments between ``time_s``, (n + 1,).

    ``rise dy = (idle + excess + swing - y) dt``, where swing is white. Over a segment of h, with f = exp(-h / rise),
    the noise of y and that of the energy follow from the same swing, so the energy is

        h (b + u) + g [y' - f y - (1 - f)(b + u)],  variance D (h - g (1 - f)),  g = D (1 - f) / var y

    (conditional mean and variance of two integrals of one white noise).

    Args:
        time_s: Instants, increasing; all readings' and all edges' are among them.
        seen: Instant of each reading.
        response: Of the sensor.
        density: Spectral density D of the swing in each segment, in W² s, shape (n,).
        walk: Variance of the excess per second in W²/s, shape (n,); infinite where it ends: the next one is none.
        jolt: Variance in W² that enters y without energy, shape (n,): edges fall anywhere between two samples.
        fresh: Variance in W² of a level that begins with the first instant and after each segment, 0 for none,
            shape (n + 1,).
        idle_walk: W per square root of a second, shape (n,) or the same for all.
    """
    h = np.diff(time_s)
    f = np.exp(-h / response.rise_s)
    variance = density * (1 - f * f) / (2 * response.rise_s) + jolt + FLOOR_W**2
    gain = density * (1 - f) / variance
    goes_on = np.isfinite(walk)
    moved = np.where(goes_on, np.where(goes_on, walk, 0.0) * h, fresh[1:]) + _STILL
    band, log_det = precision(
        np.array([_ANY, _ANY, fresh[0] + _STILL]),
        ({0: -f, 1: f - 1, 2: f - 1, 3: 1.0}, variance),
        ({1: -1.0, 4: 1.0}, idle_walk**2 * h + 1e-8),
        ({2: -goes_on.astype(np.float64), 5: 1.0}, moved),
    )
    level, none = h - gain * (1 - f), np.zeros_like(h)
    energy = np.stack([-gain * f, level, level, gain, none, none], axis=1)
    return Chain(band, log_det, energy, density * level, seen)
