"""Prior over swings of power that are faster than the readings: of their size and period, as readings meet them.

The chain takes a swing for white noise of a density that readings show as scatter. A periodic swing isn't white: its
energy may be known better than that or worse, at worst when its period is a multiple of the readings' and they meet it
at one phase. Momentary samples do the same to faster ones: a layer that lasts as long as two samples looks constant,
at the power of the phases that they meet. So each swing has two numbers: the density that the estimator would take it
for, and the error of the energy that such a density leaves unexplained, an offset that no reading shows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from jouletrace.arrays import Floats, Indices
from jouletrace.attribution.prior import Prior
from jouletrace.sensor.shares import Response, Timeline, both_seen, seen, slopes

CHANCES = np.array([0.5, 0.25, 0.125, 0.075, 0.03, 0.02])
"""Shares of the swings of one density, in the order of their hidden offsets: finer where these are large."""

_SPECTRA = np.array([0.0, 1.0, 2.0])
"""Powers of 1/h with which amplitudes of harmonics fall: short pulses, steps, smoother ones."""

_HARMONICS, _DRAWS, _SIZES = np.arange(1, 13), (1200, 300), 12
"""Resolution of the prior: harmonics of a waveform; draws of it with a period each, and with one that is known;
sizes of each draw."""

_LONGEST = 50, 200
"""Readings of a burst or span here, for the matrix is as large, for unknown periods and a known one: 1 s and 4 s on an
H100. By 50 a burst of 3 s of ``bursts-h200`` is known to 0.35 %, with errors of 0.13 %; by a table of its own length
to 0.18 %, and 16 of 20 intervals hold. With a known period 80 of 80 simulated bursts of 8 s hold by 50 (0.35 %) and by
200 (0.14 %)."""

_LEAST = 0.03
"""Weight of any density: where all swings have one period, scatter may come of the samples' moments as well."""

_PHASES, _SHORT = (0.2, 0.5, 0.8), 25
"""Of the readings against the burst's start; of more than ``_SHORT`` readings the middle one stands for all."""

_STEP = 0.5
"""Of the time between readings, at which the level changes slowly."""

_SAMPLE_SD_S = 4.7e-5
"""Standard deviation of the moments that a sample averages over (``sensor.kinds.HOPPER``)."""

_RATES_HZ = 50.0, 500.0
"""Samples per second within a window, of which nothing is known, log-uniform; at a higher rate, as of 1.2 kHz on an
H100, windows are as if power were averaged continuously."""

_BLIND, _NOISE = 1e-12, 1e-6
"""Information on the level, in W^-2 of power 1, of readings that don't meet the burst; variance of a reading's noise
over the squared power above idle: 0.35 W of 350 W."""


def swing_prior(lengths_s: Floats, response: Response, prior: Prior, period_s: float | None) -> tuple[Floats, Floats]:
    """Prior over swings in bursts: their densities, and what they hide from spans in the middle of a burst.

    A period that is known only narrows it. Harmonics of a waveform have random sizes: squares are exponential, around
    a spectrum that falls.

    Args:
        lengths_s: Lengths of spans and of the bursts they lie in, shape (l, 2).
        response: Of the sensor.
        prior: Size and period of the swings, and the slow change beside them.
        period_s: Their period, if it is known.

    Returns:
        Weight of each of the prior's densities, shape (d,), and the hidden offset over the power above idle, root mean
        square in each of ``CHANCES``, shape (d, chances, l).
    """
    response = replace(response, delay_s=0.0, noise_w=0.0, jitter_s=0.0)  # by which it doesn't go
    most_s = _LONGEST[period_s is not None] * response.period_s
    lengths_s = np.minimum(np.maximum.accumulate(lengths_s, axis=1), most_s)
    each = [
        [float(f"{length_s:.2g}") for length_s in both] for both in lengths_s.tolist()
    ]  # alike in the next call, too
    period_s = None if period_s is None else float(f"{period_s:.4g}")
    tables = [_of_length(*both, response, prior, period_s) for both in each]
    return np.mean([weight for weight, _ in tables], axis=0), np.stack([offset for _, offset in tables], axis=-1)


@lru_cache(maxsize=256)
def _of_length(
    span_s: float, burst_s: float, response: Response, prior: Prior, period_s: float | None
) -> tuple[Floats, Floats]:
    """Weights of densities, and offsets in ``CHANCES`` of each, shape (d, chances), of spans and bursts of a length."""
    sizes = prior.swing * ndtri((np.arange(_SIZES) + _SIZES + 0.5) / (2 * _SIZES))  # a half-normal's equal shares
    generator, draws = np.random.default_rng(0), _DRAWS[period_s is not None]
    share = (np.arange(draws) + generator.random(draws)) / draws
    low, high = prior.periods_s if period_s is None else (period_s, period_s)
    frequency_hz = _HARMONICS / (low * (high / low) ** share)[:, None]
    real, imaginary = generator.standard_normal((2, draws, len(_HARMONICS)))
    wave = (real + 1j * imaginary) * _HARMONICS ** -_SPECTRA[np.arange(draws) % 3, None]
    wave /= np.sqrt((np.abs(wave) ** 2).sum(axis=1, keepdims=True))
    taken, excess = _taken(frequency_hz, wave, sizes**2, span_s, burst_s, response, prior)
    return _table(taken, np.sqrt(excess) / span_s, prior)


def _table(density: Indices, offset: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Weights of densities, and offsets in ``CHANCES`` of each, shape (d, chances), of draws of equal weight.

    ``place`` and ``offset`` are the number of each draw's density and its offset, shape (draws,).
    """
    steady, count = prior.steady, len(prior.densities_s)
    weight_each = (1 - steady) / len(density)
    weights, offsets = np.zeros(count), np.zeros((count, len(CHANCES)))
    for d in range(count):
        values = np.sort(offset[density == d])
        none = steady if d == 0 else 0.0  # loads without swing have the least density and no offset
        weights[d] = none + weight_each * len(values)
        if weights[d] < _LEAST:
            weights[d], offsets[d] = _LEAST, offsets[d - 1]
            continue
        # Each value's part of each chance, by where its weight lies among all of this density
        upto = np.concatenate([[0.0], none + weight_each * np.arange(len(values) + 1)]) / weights[d]
        squares = np.concatenate([[0.0, 0.0], np.cumsum(values**2) * weight_each]) / weights[d]
        limits = np.append(0.0, np.cumsum(CHANCES))
        offsets[d] = np.sqrt(np.maximum(np.diff(np.interp(limits, upto, squares)), 0.0) / CHANCES)
    return weights / weights.sum(), offsets


def _taken(
    frequency_hz: Floats,
    wave: NDArray[np.complex128],
    squares: Floats,
    span_s: float,
    burst_s: float,
    response: Response,
    prior: Prior,
) -> tuple[Indices, Floats]:
    """Periodic swings as an estimator takes them that knows white noise and slow change.

    The burst has one unknown level P, of power above idle 1. Readings are ``y = a P + noise`` with covariance C, and
    the energy of a span in its middle has covariance c with them. For white noise of density D and
    the weight k_i(t) that reading i gives the power of time t:

        a_i = ∫ k_i,  C_ij = D ∫ k_i k_j over the burst + ...,  c_i = D ∫ k_i over the span + ...

    where the dots are a walk of the level, what isn't known of edges and sensor, and a reading's noise. Generalised
    least squares give the energy w·y, with a variance v by the swing and the walk. Of all densities and walks the
    estimator takes those of greatest likelihood. What decays after an edge says little of a swing, for the edge's
    moment among the samples, the delay and the rise do the same: so a swing that readings meet at one phase is taken
    for none, whatever its size.

    Args:
        frequency_hz: Of harmonics, shape (draws, h).
        wave: Their complex amplitudes, of unit variance together, shape (draws, h).
        squares: Variances of the swing over the squared power above idle, shape (s,).
        span_s: Length of the span.
        burst_s: Length of the burst.
        response: Of the sensor.
        prior: Of the slow change.

    Returns:
        Number of the density that is taken, and by how much the squared error of the energy, a mean over phases,
        exceeds v, in s², each of shape (phases s draws,).
    """
    begin, turn, power = (burst_s - span_s) / 2, 2j * np.pi * frequency_hz, np.abs(wave) ** 2
    energy = (np.exp(turn * (begin + span_s)) - np.exp(turn * begin)) / turn
    alias, size = _sampled(frequency_hz, response)
    walks = sorted({slow for slow, _, _ in prior.slow})
    taken, excess = [], []
    for phase in _PHASES if burst_s < _SHORT * response.period_s else _PHASES[1:2]:
        t = np.arange(phase, (burst_s + response.lasts_s) / response.period_s + 1) * response.period_s
        a, white, c, walk, walk_j, by_sensor = _covariances(t, begin, span_s, burst_s, response)
        shown = size[..., None] * seen(t, 0.0, burst_s, response, alias[..., None])
        y = np.sqrt(2) * np.einsum("dht,dh->td", shown, wave, optimize=True).real
        fits, estimates, claims = [], [], []
        for slow in walks:
            moved, moved_j = slow * walk, slow * walk_j
            for density in prior.densities_s:
                covariance = density * white + moved @ moved.T + by_sensor
                solved = np.linalg.solve(covariance, np.stack([a, density * c + moved @ moved_j], axis=1))
                level = solved[:, 0] / max(float(a @ solved[:, 0]), _BLIND)
                weights = solved[:, 1] + (span_s - a @ solved[:, 1]) * level
                swung = span_s - 2 * weights @ c + weights @ white @ weights
                claims.append(density * swung + np.square(moved_j - weights @ moved).sum())
                estimates.append(weights)
                factor = np.linalg.cholesky(covariance)
                left = solve_triangular(factor, y - np.outer(a, level @ y), lower=True, check_finite=False)
                log_det = 2 * np.log(np.diag(factor)).sum() + np.log(max(float(a @ solved[:, 0]), _BLIND))
                fits.append(np.multiply.outer(squares, np.square(left).sum(axis=0)) + log_det)
        best = np.argmin(fits, axis=0)
        missed = np.abs(energy[..., None] - shown @ np.transpose(estimates)) ** 2
        errors = np.einsum("dhg,dh->gd", missed, power, optimize=True)
        error = squares[:, None] * errors[best, np.arange(len(wave))]
        taken.append(best % len(prior.densities_s))
        excess.append(np.maximum(error - np.array(claims)[best], 0.0))
    return np.array(taken).ravel(), np.array(excess).ravel()


def _sampled(frequency_hz: Floats, response: Response) -> tuple[NDArray[np.complex128], Floats]:
    """Harmonics as momentary samples show them: i times angular frequency, in 1/s, and size, both (draws, h).

    Samples at rate r show a frequency f as f - round(f / r) r. The phase of that goes with the samples' own, which is
    unknown; harmonics above r / 2 have next to no energy in a burst, so that it adds to no error of theirs.
    """
    generator = np.random.default_rng(1)
    if response.any_rate:
        low, high = _RATES_HZ
        rate_hz = low * (high / low) ** generator.random((len(frequency_hz), 1))
        sample_s, sd_s = 1 / rate_hz, 0.0
    elif 0 < response.weight < 1:
        unsure = generator.standard_normal((len(frequency_hz), 1))
        sample_s, sd_s = response.sample_s * np.exp(response.width_sd * unsure), _SAMPLE_SD_S
    else:
        sample_s, sd_s = np.zeros((1, 1)), 0.0
    whole = np.round(frequency_hz * sample_s)
    alias_hz = frequency_hz - np.divide(whole, sample_s, out=np.zeros_like(whole), where=whole > 0)
    size = np.exp(-0.5 * (2 * np.pi * frequency_hz * sd_s) ** 2)
    return np.asarray(2j * np.pi * alias_hz, np.complex128), np.asarray(size, np.float64)


def _covariances(t: Floats, begin: float, span_s: float, burst_s: float, response: Response) -> tuple[Floats, ...]:
    """Readings at ``t`` after the start of a burst of unit power above idle; the span starts at ``begin``.

    Returns:
        Share of the level, (n,); covariance by white noise of density 1, (n, n), and with the span's energy, (n,);
        columns of a level that walks by a unit a second, or in the burst if that is shorter, (n, m), and their
        energies, (m,); covariance by edges, sensor and noise, (n, n).
    """
    a, c = (seen(t, *edges, response).real for edges in ((0.0, burst_s), (begin, begin + span_s)))
    step_s = np.linspace(0, burst_s, max(int(np.ceil(burst_s / (_STEP * response.period_s))), 2) + 1)
    pace = np.sqrt(step_s[1] / min(burst_s, 1.0))
    walk = np.stack([seen(t, step, burst_s, response).real for step in step_s[1:-1].tolist()], axis=1)
    walk_j = np.clip(begin + span_s - np.maximum(step_s[1:-1], begin), 0, span_s)

    burst = Timeline(np.zeros(1), np.array([burst_s]), np.zeros(1, np.int64))
    unknown = slopes(t, burst, np.ones(1), response)
    if response.weight:  # edges fall anywhere between two samples
        edges = np.exp(-t / response.rise_s), np.where(t >= burst_s, np.exp(-(t - burst_s) / response.rise_s), 0.0)
        unknown = np.hstack([unknown, response.weight / np.sqrt(12) * np.stack(edges, axis=1)])
    by_sensor = unknown @ unknown.T + _NOISE * np.eye(len(t))
    terms = a, both_seen(t, burst_s, response), c, pace * walk, pace * walk_j, by_sensor
    return tuple(np.asarray(term, np.float64) for term in terms)
