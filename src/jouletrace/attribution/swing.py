"""Prior over swings of power that are faster than the readings: of their size and period, as readings meet them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from jouletrace.attribution.prior import Prior
from jouletrace.sensor.shares import Floats, Response

DENSITIES_S = np.array([3e-7, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3])
"""Spectral densities of scatter over the squared power above idle: from none to a swing of all of it at 60 ms."""

OFFSETS = np.array([1e-5, 0.01, 0.03, 0.1, 0.25])
"""Sizes of hidden offsets over the power above idle."""

_SPECTRA = (0.0, 1.0, 2.0)
"""Powers of 1/h with which amplitudes of harmonics fall: pulses, steps, triangles."""


def swing_prior(length_s: float, response: Response, prior: Prior, period_s: float | None) -> Floats:
    """Weights of scatter and hidden offset, shape (DENSITIES_S, OFFSETS), for a burst of ``length_s``.

    Harmonic h of amplitude a shows as a / |1 + 2 pi i f rise| in a reading. It is aliased to the
    distance of its frequency to a multiple of the readings'. Harmonics that go round there within the burst are met at
    scattered phases, and act as white noise of density 2 rise a²; the others are met at one phase, and hide an offset
    that no reading shows. sinc²(distance x length) parts the two. A period that is known only narrows the table.
    """
    sizes = prior.swing * ndtri((np.arange(12) + 12.5) / 24)  # equal shares of a half-normal distribution
    periods = np.geomspace(*prior.periods_s, 400) if period_s is None else np.array([period_s])
    h = np.arange(1, 7)
    f = h / periods[:, None]
    aliased = np.abs(f - np.maximum(np.round(f * response.period_s), 1) / response.period_s)
    power = h[:, None] ** -np.array(_SPECTRA)
    shown = power / power.sum(axis=0) / (1 + (2 * np.pi * f[..., None] * response.rise_s) ** 2)
    hidden = np.sinc(np.minimum(aliased * length_s, 1.0))[..., None] ** 2
    scatter = np.multiply.outer(2 * response.rise_s * (shown * (1 - hidden)).sum(axis=1), sizes**2).ravel()
    offset = np.multiply.outer(np.sqrt((shown * hidden).sum(axis=1)), sizes).ravel()
    table = np.zeros((len(DENSITIES_S), len(OFFSETS)))
    np.add.at(table, (_nearest(DENSITIES_S, scatter), _nearest(OFFSETS, offset)), (1 - prior.steady) / len(scatter))
    table[0, 0] += prior.steady
    return table


def spread_prior(prior: Prior) -> Floats:
    """Weights of the scatter alone, shape (DENSITIES_S, 1): where a timeline shows the swing, kernels differ within."""
    middle, factor = prior.spread
    weight = np.exp(-0.5 * (np.log(DENSITIES_S / middle) / np.log(factor)) ** 2)
    return np.asarray(weight / weight.sum())[:, None]


def _nearest(grid: Floats, value: Floats) -> NDArray[np.intp]:
    """Index of the entry of ``grid`` that is nearest in its logarithm, of the shape of ``value``, (n,)."""
    return np.asarray(np.abs(np.log(grid) - np.log(value[:, None] + 1e-9)).argmin(axis=1))
