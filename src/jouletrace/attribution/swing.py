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

CHANCES = np.array([0.5, 0.25, 0.125, 0.075, 0.03, 0.02])
"""Shares of the swings of one density, in the order of their hidden offsets: finer where these are large."""

_SPECTRA = np.array([0.0, 1.0, 2.0])
"""Powers of 1/h with which powers of harmonics fall: short pulses, steps, smoother ones."""

_HARMONICS, _PERIODS, _SIZES, _DRAWS = np.arange(1, 13), 200, 12, (8, 200)
"""Resolution of the prior; draws of a waveform where the period is drawn too, and where it is known."""

_LONGEST_S = 1.0
"""Of a burst or span here: at the cost of a matrix as large as its readings."""


def swing_prior(
    lengths_s: Floats, burst_s: float, response: Response, prior: Prior, period_s: float | None
) -> tuple[Floats, Floats]:
    """Prior over swings in a burst: their densities, and what they hide from spans in the middle of it.

    A period that is known only narrows it. Harmonics of a waveform have random sizes: squares are exponential, around
    a spectrum that falls.

    Args:
        lengths_s: Lengths of spans, shape (l,).
        burst_s: Length of the burst.
        response: Of the sensor.
        prior: Size and period of the swings.
        period_s: Their period, if it is known.

    Returns:
        Weight of each of ``DENSITIES_S``, shape (d,), and the hidden offset over the power above idle, root mean square
        in each of ``CHANCES``, shape (d, chances, l).
    """
    sizes = prior.swing * ndtri((np.arange(_SIZES) + _SIZES + 0.5) / (2 * _SIZES))  # a half-normal's equal shares
    periods = np.geomspace(*prior.periods_s, _PERIODS) if period_s is None else np.array([period_s])
    generator, shape = np.random.default_rng(0), (2, len(_HARMONICS), _DRAWS[period_s is not None], 1)
    real, imaginary = generator.standard_normal(shape) * _HARMONICS[:, None, None] ** -_SPECTRA
    wave = (real + 1j * imaginary).reshape(len(_HARMONICS), -1)
    wave /= np.sqrt((np.abs(wave) ** 2).sum(axis=0))
    result = []
    for length_s in np.minimum(lengths_s, _LONGEST_S).tolist():
        whole_s = max(length_s, min(burst_s, _LONGEST_S))
        density, excess = _met(_HARMONICS / periods[:, None], wave, length_s, whole_s, response)
        scatter, hidden = (np.multiply.outer(one, sizes**2).ravel() for one in (density, excess))
        result.append(_table(scatter, np.sqrt(hidden) / length_s, prior.steady))
    return result[0][0], np.stack([offset for _, offset in result], axis=-1)


def _table(scatter: Floats, offset: Floats, steady: float) -> tuple[Floats, Floats]:
    """Weights of densities, and offsets in ``CHANCES`` of each, shape (d, chances), of draws of equal weight."""
    edges = np.sqrt(DENSITIES_S[1:] * DENSITIES_S[:-1])
    place, one = np.searchsorted(edges, scatter), (1 - steady) / len(scatter)
    weights, offsets = np.zeros(len(DENSITIES_S)), np.zeros((len(DENSITIES_S), len(CHANCES)))
    for d in range(len(DENSITIES_S)):
        values = np.sort(offset[place == d])
        none = steady if d == 0 else 0.0  # loads without swing have the least density and no offset
        weights[d] = none + one * len(values)
        if weights[d] > 0:
            # Each value's part of each chance, by where its weight lies among all of this density
            upto = np.concatenate([[0.0], none + one * np.arange(len(values) + 1)]) / weights[d]
            squares = np.concatenate([[0.0, 0.0], np.cumsum(values**2) * one]) / weights[d]
            limits = np.append(0.0, np.cumsum(CHANCES))
            offsets[d] = np.sqrt(np.maximum(np.diff(np.interp(limits, upto, squares)), 0.0) / CHANCES)
    return weights, offsets


def _met(
    frequency_hz: Floats, wave: NDArray[np.complex128], span_s: float, burst_s: float, response: Response
) -> tuple[Floats, Floats]:
    """Periodic swings of unit variance, met by an estimator that takes them for white noise.

    The burst has one unknown level P. Readings y have ``y = a P + noise`` with covariance ``D C``, and the energy of a
    span in its middle has covariance ``D c`` with them, for white noise of density D and
    k_i(t) = exp(-(t_i - t) / rise) / rise:

        a_i = ∫ k_i,  C_ij = ∫ k_i k_j over the burst,  c_i = ∫ k_i over the span

    Generalised least squares give the energy w·y, with an error of variance D v. With the residual form
    Q = C^-1 - C^-1 a a^T C^-1 / (a^T C^-1 a), the likelihood's best D is y^T Q y / (n - 1): readings meet the swing at
    one phase. The error of its energy is a mean over phases.

    Args:
        frequency_hz: Of harmonics, shape (periods, h).
        wave: Their complex amplitudes, shape (h, draws).
        span_s: Length of the span.
        burst_s: Length of the burst.
        response: Of the sensor.

    Returns:
        D in s, and by how much the squared error of the energy exceeds D v, in s², each of shape (3, periods, draws).
    """
    rise, begin = response.rise_s, (burst_s - span_s) / 2
    turn, power = 2j * np.pi * frequency_hz[..., None], np.abs(wave) ** 2
    density, excess = [], []
    for phase in _PHASES:
        t = np.arange(phase, burst_s / response.period_s + 3) * response.period_s
        inside = np.minimum(t, burst_s)
        a = np.exp(-(t - inside) / rise) - np.exp(-t / rise)
        both, total = np.minimum.outer(inside, inside), np.add.outer(t, t)
        covariance = (np.exp(-(total - 2 * both) / rise) - np.exp(-total / rise)) / (2 * rise)
        covariance += _NOISE * np.eye(len(t))
        first, last = (np.clip(edge, 0.0, t) for edge in (begin, begin + span_s))
        c = np.exp(-(t - last) / rise) - np.exp(-(t - first) / rise)
        solved = np.linalg.solve(covariance, np.stack([a, c], axis=1))
        level = solved[:, 0] / (a @ solved[:, 0])
        weights = solved[:, 1] + (span_s - a @ solved[:, 1]) * level
        usual = span_s - 2 * weights @ c + weights @ covariance @ weights
        # A reading of exp(turn t) in the burst, and its integral over the span
        shown = (np.exp(turn * inside - (t - inside) / rise) - np.exp(-t / rise)) / (1 + turn * rise)
        energy = ((np.exp(turn * (begin + span_s)) - np.exp(turn * begin)) / turn)[..., 0]
        error = np.abs(energy - shown @ weights) ** 2 @ power
        y = np.sqrt(2) * np.einsum("pht,hd->pdt", shown, wave, optimize=True).real
        left = y - (y @ level)[..., None] * a
        best = (left * (left @ np.linalg.inv(covariance))).sum(axis=-1) / (len(t) - 1)
        density.append(best)
        excess.append(np.maximum(error - usual * best, 0.0))
    return np.array(density), np.array(excess)


_PHASES = (0.2, 0.5, 0.8)
"""Of the readings against the burst's start."""

_NOISE = 0.01
"""Variance of a reading's noise in ``C``, where white noise itself has 1 / (2 rise), about 40: little."""
