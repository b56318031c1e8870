"""Chains: Markov sequences of small states at instants, whose stretches have energies linear in the states beside them.

A chain differs by sensor and load alone. It is a precision in local blocks of two neighbouring states, so that all of
the estimator is one banded system (``solve``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.shares import Floats, Response

FLOOR_W = 0.05
"""Noise of the sensor's state per stretch: well below a reading's, and keeps the precision finite."""

_STILL = 1e-4
"""Variance of a state that doesn't move, in W²."""


@dataclass(frozen=True)
class Chain:
    """Prior of n + 1 states of k numbers each, and the energies of the n stretches between them."""

    local: Floats  # shape (n, 2k, 2k): precision of each two neighbours, to be added up
    log_det: float  # of the precision of all, without the first state
    first: Floats  # shape (k,): precision of each number of the first state
    energy: Floats  # shape (n, 2k): mean energy of a stretch, by the states beside it, in J per unit of a state
    own: Floats  # shape (n,): variance of a stretch's energy given the states, in J²
    seen: NDArray[np.intp]  # shape (readings,): the instant of each; it shows the state's first number


def equations(size: int, *terms: tuple[Mapping[int, float | Floats], Floats]) -> tuple[NDArray[np.float64], float]:
    """Local precision (n, size, size) of scalar equations between neighbours, and the logarithm of its determinant.

    Each term says that a sum over two neighbouring states is zero, with a variance: coefficients by position, of which
    the second state's come after the first's, and variances of shape (n,).
    """
    local, log_det = np.zeros((len(terms[0][1]), size, size)), 0.0
    for coefficients, variance in terms:
        for i, one in coefficients.items():
            for j, other in coefficients.items():
                local[:, i, j] += one * other / variance
        log_det -= float(np.log(variance).sum())
    return local, log_det


def low_pass_chain(
    time_s: Floats,
    seen: NDArray[np.intp],
    response: Response,
    *,
    density: Floats,
    walk: Floats,
    jolt: Floats,
    fresh: Floats,
    idle_walk: float,
) -> Chain:
    """States (y, idle, excess) of a sensor with an exponential memory; n stretches between ``time_s``, (n + 1,).

    ``rise dy = (idle + excess + swing - y) dt``, where swing is white. Over a stretch of h, with f = exp(-h / rise),
    the noise of y and that of the energy follow from the same swing, so the energy is

        h (b + u) + g [y' - f y - (1 - f)(b + u)],  variance D (h - g (1 - f)),  g = D (1 - f) / var y

    (conditional mean and variance of two integrals of one white noise).

    Args:
        time_s: Instants, increasing; all readings' and all edges' are among them.
        seen: Instant of each reading.
        response: Of the sensor.
        density: Spectral density D of the swing in each stretch, in W² s, shape (n,).
        walk: Variance of the excess per second in W²/s, shape (n,); infinite where it ends: the next one is none.
        jolt: Variance in W² that enters y without energy, shape (n,): edges fall anywhere between two samples.
        fresh: Variance in W² of a level that begins with the first instant and after each stretch, 0 for none,
            shape (n + 1,).
        idle_walk: W per square root of a second.
    """
    h = np.diff(time_s)
    f = np.exp(-h / response.rise_s)
    variance = density * (1 - f * f) / (2 * response.rise_s) + jolt + FLOOR_W**2
    gain = density * (1 - f) / variance
    goes_on = np.isfinite(walk)
    moved = np.where(goes_on, np.where(goes_on, walk, 0.0) * h, fresh[1:]) + _STILL
    local, log_det = equations(
        6,
        ({0: -f, 1: f - 1, 2: f - 1, 3: 1.0}, variance),
        ({1: -1.0, 4: 1.0}, idle_walk**2 * h + 1e-8),
        ({2: -goes_on.astype(np.float64), 5: 1.0}, moved),
    )
    level, none = h - gain * (1 - f), np.zeros_like(h)
    first = 1 / np.array([1e6, 1e6, fresh[0] + _STILL])
    energy = np.stack([-gain * f, level, level, gain, none, none], axis=1)
    return Chain(local, log_det, first, energy, density * level, seen)
