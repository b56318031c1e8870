"""Prior over swings of power that are faster than the readings: of their size and period, as readings meet them.

The chain takes a swing for white noise of a density that readings show as scatter. A periodic swing isn't white: its
energy may be known better than that or worse, at worst when its period is a multiple of the readings' and they meet it
at one phase. So each swing has two numbers: the density that its readings look like, and the error of the energy that
such a density leaves unexplained, an offset that no reading shows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from jouletrace.attribution.prior import Prior
from jouletrace.sensor.shares import Floats, Response

DENSITIES_S = np.array([3e-7, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3])
"""Spectral densities of scatter over the squared power above idle: from none to a swing of all of it at 60 ms."""

OFFSETS = np.append(0.0, np.geomspace(1e-3, 0.4, 12))
"""Sizes of hidden offsets over the power above idle."""

_SPECTRA = np.array([0.0, 1.0, 2.0])
"""Powers of 1/h with which amplitudes of harmonics fall: pulses, steps, triangles."""

_LONGEST_S = 1.0
"""Of a burst or span here: at the cost of a matrix as large as its readings."""


def swing_prior(span_s: float, burst_s: float, response: Response, prior: Prior, period_s: float | None) -> Floats:
    """Weights of density and hidden offset, shape (DENSITIES_S, OFFSETS), for a span in the middle of a burst.

    A period that is known only narrows the table.
    """
    sizes = prior.swing * ndtri((np.arange(12) + 12.5) / 24)  # equal shares of a half-normal distribution
    periods = np.geomspace(*prior.periods_s, 400) if period_s is None else np.array([period_s])
    harmonics = np.arange(1, 7)
    power = harmonics[:, None] ** -_SPECTRA
    span_s, burst_s = min(span_s, _LONGEST_S), min(burst_s, _LONGEST_S)
    density, error, usual = _met(harmonics / periods[:, None], span_s, max(span_s, burst_s), response)
    shares = power / power.sum(axis=0)
    scatter = np.multiply.outer(density @ shares, sizes**2).ravel()
    excess = np.multiply.outer(np.maximum(error - usual * density, 0.0) @ shares, sizes**2).ravel()
    table = np.zeros((len(DENSITIES_S), len(OFFSETS)))
    place = _nearest(DENSITIES_S, scatter), _nearest(OFFSETS, np.sqrt(excess) / span_s)
    np.add.at(table, place, (1 - prior.steady) / len(scatter))
    table[0, 0] += prior.steady
    return table


def spread_prior(prior: Prior) -> Floats:
    """Weights of the density alone, shape (DENSITIES_S, OFFSETS): where a timeline is known, kernels differ within."""
    middle, factor = prior.spread
    weight = np.exp(-0.5 * (np.log(DENSITIES_S / middle) / np.log(factor)) ** 2)
    return np.multiply.outer(weight / weight.sum(), OFFSETS == 0)


def _met(frequency_hz: Floats, span_s: float, burst_s: float, response: Response) -> tuple[Floats, Floats, float]:
    """How an estimator that takes a swing for white noise meets sinusoids of unit variance and any phase.

    The burst has one unknown level P. Readings y have ``y = a P + noise`` with covariance ``D C``, and the span's energy
    has covariance ``D c`` with them, for white noise of density D:

        a_i = ∫ k_i,  C_ij = ∫ k_i k_j over the burst,  c_i = ∫ k_i over the span,  k_i(t) = exp(-(t_i - t) / rise) / rise

    Generalised least squares give the energy w·y. With the residual form Q = C^-1 - C^-1 a a^T C^-1 / (a^T C^-1 a), the
    likelihood's best D is y^T Q y / (n - 1).

    Returns:
        The density in s and the squared error of the energy in s² per unit of variance, of the shape of
        ``frequency_hz``; the squared error for white noise of density 1, in s. Means over phases of the readings.
    """
    rise, begin = response.rise_s, (burst_s - span_s) / 2
    turn = 2j * np.pi * frequency_hz
    density, error, usual = np.zeros(frequency_hz.shape), np.zeros(frequency_hz.shape), 0.0
    for phase in _PHASES:
        t = np.arange(phase, burst_s / response.period_s + 3) * response.period_s
        inside = np.minimum(t, burst_s)
        a = np.exp(-(t - inside) / rise) - np.exp(-t / rise)
        both = np.minimum.outer(inside, inside)
        sum_t = np.add.outer(t, t)
        cov = (np.exp(-(sum_t - 2 * both) / rise) - np.exp(-sum_t / rise)) / (2 * rise) + _NOISE * np.eye(len(t))
        edges = (np.clip(begin, 0, t), np.clip(begin + span_s, 0, t))
        c = np.exp(-(t - edges[1]) / rise) - np.exp(-(t - edges[0]) / rise)
        solved = np.linalg.solve(cov, np.stack([a, c], axis=1))
        level = solved[:, 0] / (a @ solved[:, 0])
        weights = solved[:, 1] + (span_s - a @ solved[:, 1]) * level
        # What readings show of exp(turn t), and its integral over the span
        at = np.exp(turn[..., None] * inside - (t - inside) / rise) - np.exp(-t / rise)
        shown = at / (1 + turn[..., None] * rise)
        energy = (np.exp(turn * (begin + span_s)) - np.exp(turn * begin)) / turn
        flat = shown.reshape(-1, len(t))
        left = flat - np.multiply.outer(flat @ level, a)
        form = (left.conj() * np.linalg.solve(cov, left.T).T).real.sum(axis=1) / (len(t) - 1)
        density += form.reshape(frequency_hz.shape) / len(_PHASES)
        error += np.abs(energy - shown @ weights) ** 2 / len(_PHASES)
        usual += (span_s - 2 * weights @ c + weights @ cov @ weights) / len(_PHASES)
    return density, error, usual


_PHASES = (0.2, 0.5, 0.8)
"""Of the readings against the burst's start."""

_NOISE = 0.01
"""Variance of a reading's noise over that of white noise of density 1 s, which readings show as 1 / (2 rise): little."""


def _nearest(grid: Floats, value: Floats) -> NDArray[np.intp]:
    """Index of the entry of ``grid`` that is nearest in its logarithm, of the shape of ``value``, (n,)."""
    edges = np.sqrt(np.maximum(grid[1:], 1e-30) * np.maximum(grid[:-1], grid[1] ** 2 / grid[2]))
    return np.searchsorted(edges, value)
