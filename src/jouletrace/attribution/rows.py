"""Judgements of a program's rows: which sums the readings resolve, and whether sensor and powers are possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.optimize import lsq_linear
from scipy.special import chdtrc

from jouletrace.arrays import Mask
from jouletrace.attribution.outcome import IMPROBABLE, Outcome
from jouletrace.attribution.program import Rows

WIDTH, PRIOR_SHARE = 0.5, 0.5
"""Largest half-width over the energy of a sum that is resolved; and largest standard deviation over the prior's, if
errors of readings were those of the chain and independent."""

BUSY_IDLE_W = 280.0
"""No GPU draws as much between kernels: kernels are missing, another process runs, or the phase is wrong."""


def resolved(rows: Rows, amounts: ArrayLike) -> Mask:
    """True for sums of kinds that the readings determine, and not the prior alone; shape (r,).

    A row is a sum of one kind, a pool one of several: kernels that always follow each other may be resolved together
    where none is alone. ``amounts`` are the weights of the kinds, shape (r, kinds).
    """
    amounts = np.atleast_2d(np.asarray(amounts, np.float64))
    mean, low, high = rows.energies.interval(rows.together(amounts))
    before, after = (((amounts @ one) * amounts).sum(axis=1) for one in (rows.before, rows.after))
    return np.asarray(((high - low) / 2 <= WIDTH * np.abs(mean)) & (after <= PRIOR_SHARE**2 * before))


def check_rest(rows: Rows, rest_s: float) -> Outcome:
    """The check that between kernels, for ``rest_s`` of the first span, the GPU draws what one does that rests.

    Its estimate is that power in W. Where more is drawn, kernels are missing, or another process runs.
    """
    rest = np.zeros(rows.energies.mean_j.shape[1])
    rest[0] = 1.0
    rest -= rows.together(np.ones(len(rows.seconds)))[0]
    value, low, high = (float(end[0]) / max(rest_s, 1e-9) for end in rows.energies.interval(rest))
    return Outcome("rest", low <= BUSY_IDLE_W, (value, low, high), beside={"most": BUSY_IDLE_W})


def check_powers(rows: Rows, most_w: float) -> Outcome:
    """The check that each kind draws from 0 to ``most_w``, by the least chi² with which all would lie in between.

    Its estimate is of the kind that is farthest beyond a bound: by how much, in W; below 0 if none is.
    """
    ran = np.flatnonzero(rows.seconds > 0)
    means, covariance = rows.energies.moments(rows.together(np.eye(len(rows.seconds))[ran]))
    power_w, scale = means / rows.seconds[ran], rows.seconds[ran]
    covariance = covariance / np.outer(scale, scale)
    beyond_w = np.maximum(-power_w, power_w - most_w)
    worst = int(np.argmax(beyond_w))
    value, half = float(beyond_w[worst]), 1.96 * float(np.sqrt(covariance[worst, worst]))
    estimate, beside = (value, value - half, value + half), {"most": most_w, "least": IMPROBABLE}
    if value <= 0:
        return Outcome("powers", True, estimate, 1.0, beside)
    covariance += 1e-9 * np.diag(covariance.diagonal())  # of kinds that always run at once
    white = solve_triangular(np.linalg.cholesky(covariance), np.eye(len(ran)), lower=True)
    found = lsq_linear(white, white @ power_w, (0.0, most_w), method="bvls")  # which knows the active bounds exactly
    probability = float(chdtrc(max(np.count_nonzero(found.active_mask), 1), 2 * found.cost))
    return Outcome("powers", probability >= IMPROBABLE, estimate, probability, beside)
