"""The Gaussian posterior of a linear functional of the power, given readings near an edge.

The power is a level, plus a jump and a settling at every known edge, plus an Ornstein-Uhlenbeck
process; a reading is that power through the sensor's response, plus noise. All of it is linear and
Gaussian, so the energy that is sought has a mean and a variance in closed form (universal kriging;
Rasmussen and Williams 2006, section 2.7).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.segments import exponentially_smoothed

Floats = NDArray[np.float64]

SETTLE_S = (0.03, 0.12)
"""Time constants of the settling that may follow an edge: regulators and a power cap's control loop."""

SETTLE_SIZES = (0.0, 0.03, 0.1, 0.3)
"""How large a settling may be, over its jump. Readings weigh these hypotheses against each other."""

_BIRGE = 2.0


@dataclass(frozen=True)
class Problems:
    """N neighbourhoods of edges, each on its own uniform grid of B bins."""

    left_s: Floats  # start of the grid, shape (N,)
    bin_s: float  # width of a bin
    bins: int  # B
    time_s: Floats  # when readings were taken, shape (N, K)
    power_w: Floats  # the readings, shape (N, K)
    noise_w: Floats  # their independent standard deviation, infinite for padding, shape (N, K)
    change_w: Floats  # how much they change in a period, shape (N, K)
    edge_s: Floats  # known edges, NaN for padding, shape (N, J)
    jump_w: Floats  # rough size of the jump at each, shape (N, J)
    wander_w: Floats  # standard deviation of the fluctuation in each bin, shape (N, B)
    tau_s: float  # its correlation time
    scale_w: Floats  # prior standard deviation of levels and jumps: wide, shape (N,)

    def bounds(self) -> Floats:
        """Bounds of the bins, shape (N, B + 1)."""
        return np.asarray(self.left_s[:, None] + self.bin_s * np.arange(self.bins + 1))


@dataclass(frozen=True)
class Target:
    """What is asked of each neighbourhood: the energy of [start, end] less a sum of readings."""

    start_s: Floats  # shape (N,)
    end_s: Floats  # shape (N,), not before the start
    less_s: Floats  # seconds with which each reading counts in the sum to be corrected, shape (N, K)


@dataclass(frozen=True)
class Posterior:
    """Result of ``solve``."""

    mean: Floats  # of each functional, in J, shape (N,)
    variance: Floats  # in J², shape (N,)
    misfit: Floats  # squared residual over its expectation, shape (N,); about 1 if the model holds
    strain: Floats  # the same once the fluctuation has been enlarged where that was needed, shape (N,)

    def put(self, rows: NDArray[np.intp], part: Posterior) -> None:
        """Write a batch's results into the given rows."""
        self.mean[rows], self.variance[rows] = part.mean, part.variance
        self.misfit[rows], self.strain[rows] = part.misfit, part.strain


def kernels(problems: Problems, response: StepResponse) -> Floats:
    """Weight of each bin's power in each reading, rows of sum 1, shape (N, K, B)."""
    bounds = problems.bounds()
    share = response.step(problems.time_s[:, :, None] - bounds[:, None, :])
    # What lies before and after the grid is taken to be as its first and last bin.
    share[:, :, 0], share[:, :, -1] = 1.0, 0.0
    return np.asarray(share[:, :, :-1] - share[:, :, 1:])


def solve(problems: Problems, response: StepResponse, target: Target) -> Posterior:
    """Posterior of the target of each neighbourhood.

    Where readings scatter more than chance allows, the fluctuation there is taken to be three, then
    nine times what it is elsewhere, and times of readings to be off by a tenth, then by three tenths
    more of a period. What then remains enters by Birge's ratio.
    """
    found = _solve(problems, response, target)
    mean, variance, strain = found.mean.copy(), found.variance.copy(), found.misfit.copy()
    for mistimed in (0.1, 0.3):
        bad = np.flatnonzero(strain > _BIRGE)
        if not len(bad):
            break
        noise = np.hypot(problems.noise_w, mistimed * problems.change_w)
        problems = replace(problems, wander_w=3 * problems.wander_w, noise_w=noise)
        again = _solve(_some(problems, bad), response, _some(target, bad))
        mean[bad], variance[bad], strain[bad] = again.mean, again.variance, again.misfit
    variance *= np.where(strain > _BIRGE, strain, 1.0)
    return Posterior(mean, variance, found.misfit, strain)


def fit(problems: Problems, response: StepResponse) -> tuple[Floats, Floats]:
    """Misfit of each neighbourhood's readings, and their log likelihood up to a constant, both of shape (N,)."""
    nothing = Target(problems.left_s, problems.left_s, np.zeros_like(problems.time_s))
    found, likelihood = _conditioned(problems, response, nothing)
    return found.misfit, likelihood


Batch = TypeVar("Batch", Problems, Target)


def _some(batch: Batch, rows: NDArray[np.intp]) -> Batch:
    """The given rows of a batch."""
    whole: dict[str, Any] = {f.name: getattr(batch, f.name) for f in fields(batch)}
    cut: dict[str, Any] = {name: a[rows] for name, a in whole.items() if isinstance(a, np.ndarray)}
    return replace(batch, **cut)


def _solve(problems: Problems, response: StepResponse, target: Target) -> Posterior:
    return _conditioned(problems, response, target)[0]


def _conditioned(problems: Problems, response: StepResponse, target: Target) -> tuple[Posterior, Floats]:
    """The posterior of each neighbourhood, and the log likelihood of its readings, shape (N,)."""
    kernel = kernels(problems, response)
    n, k, bins = kernel.shape
    real = np.isfinite(problems.noise_w)
    base = problems.power_w.mean(1)  # about which the prior of the level is wide
    y = np.where(real, problems.power_w - base[:, None], 0.0)
    noise = np.where(real, problems.noise_w, 1e6)

    decay = float(np.exp(-problems.bin_s / problems.tau_s))
    weighted = kernel * problems.wander_w[:, None, :]
    smoothed = exponentially_smoothed(weighted.reshape(n * k, bins), decay).reshape(n, k, bins)
    inside = np.diff(np.clip(problems.bounds(), target.start_s[:, None], target.end_s[:, None]), axis=1)
    aim = (inside - np.einsum("nk,nkb->nb", target.less_s, kernel)) * problems.wander_w
    covariance = smoothed @ weighted.transpose(0, 2, 1)
    covariance[:, np.arange(k), np.arange(k)] += noise**2
    cross = np.einsum("nkb,nb->nk", smoothed, aim)
    own = np.einsum("nb,nb->n", exponentially_smoothed(aim, decay), aim)

    seen = _seen(problems, response, kernel)
    wanted = _energies(problems, target) - np.einsum("nk,nkc->nc", target.less_s, seen)
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, np.concatenate([seen, cross[..., None], y[..., None]], 2))
    design, link, data = white[..., :-2], white[..., -2], white[..., -1]
    gram = design.transpose(0, 2, 1) @ design
    moment = np.einsum("nkc,nk->nc", design, data)
    lever = wanted - np.einsum("nkc,nk->nc", design, link)
    kriged = np.einsum("nk,nk->n", link, data)
    spare = own - np.einsum("nk,nk->n", link, link)
    power = np.einsum("nk,nk->n", data, data)

    means, variances, likelihoods, misfits = [], [], [], []
    for size in SETTLE_SIZES:
        precision = 1 / _prior_sd(problems, size) ** 2
        matrix = gram.copy()
        diagonal = np.arange(matrix.shape[1])
        matrix[:, diagonal, diagonal] += precision
        both = np.linalg.solve(matrix, np.stack([moment, lever], 2))
        effect, reach = both[..., 0], both[..., 1]
        means.append(kriged + np.einsum("nc,nc->n", lever, effect))
        variances.append(spare + np.einsum("nc,nc->n", lever, reach))
        chi2 = power - np.einsum("nc,nc->n", moment, effect)
        misfits.append(chi2)
        likelihoods.append(-0.5 * (chi2 + np.linalg.slogdet(matrix)[1] - np.log(precision).sum(1)))
    likelihood = np.stack(likelihoods)
    best = likelihood.max(0)
    weight = np.exp(likelihood - best)
    scatter = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
    likely = best + np.log(weight.sum(0)) - scatter
    weight /= weight.sum(0)
    mean_w, mean_v = np.stack(means), np.stack(variances)
    mean = (weight * mean_w).sum(0)
    # Law of total variance over the hypotheses.
    variance = (weight * (mean_v + (mean_w - mean) ** 2)).sum(0)
    free = np.maximum(real.sum(1) - 1 - np.isfinite(problems.edge_s).sum(1), 1)
    misfit = (weight * np.stack(misfits)).sum(0) / free
    return Posterior(mean + base * wanted[:, 0], np.maximum(variance, 0.0), misfit, misfit), likely


def _seen(problems: Problems, response: StepResponse, kernel: Floats) -> Floats:
    """Level, and a jump and the settlings at each edge, as readings see them, shape (N, K, 1 + 3 J).

    Jumps are exact: an edge may lie anywhere in a bin. Settlings are smooth but for their start.
    """
    level = np.ones((*problems.time_s.shape, 1))
    jump = np.nan_to_num(response.step(problems.time_s[:, :, None] - problems.edge_s[:, None, :]))
    since = np.maximum(problems.bounds()[:, :, None] - problems.edge_s[:, None, :], 0.0)
    settle = [-tau * np.diff(np.expm1(-np.nan_to_num(since) / tau), axis=1) for tau in SETTLE_S]
    settle = [kernel @ (part / problems.bin_s) for part in settle]
    return np.concatenate([level, jump, *settle], axis=2)


def _energies(problems: Problems, target: Target) -> Floats:
    """Energy of the same unit shapes in [start, end], shape (N, 1 + 3 J)."""
    length = (target.end_s - target.start_s)[:, None]
    begin, finish = (
        np.nan_to_num(np.maximum(time[:, None] - problems.edge_s, 0.0)) for time in (target.start_s, target.end_s)
    )
    settle = [tau * (np.exp(-begin / tau) - np.exp(-finish / tau)) for tau in SETTLE_S]
    return np.concatenate([length, finish - begin, *settle], axis=1)


def _prior_sd(problems: Problems, size: float) -> Floats:
    """Prior standard deviations in the order of ``_seen``, shape (N, 1 + 3 J)."""
    wide = np.broadcast_to(problems.scale_w[:, None], problems.edge_s.shape)
    settle = np.maximum(size * np.abs(problems.jump_w), 1e-3)
    return np.concatenate([problems.scale_w[:, None], wide, *[settle] * len(SETTLE_S)], axis=1)
