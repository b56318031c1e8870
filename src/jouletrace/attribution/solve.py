"""One Gaussian solve of a chain and its readings, and mixtures of such solutions over a grid of hyperparameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dtbtrs
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import ndtr, stdtrit

from jouletrace.arrays import Floats, Indices
from jouletrace.attribution.chains import Chain
from jouletrace.attribution.outcome import READINGS, SWINGS
from jouletrace.stats.interval import Z95

KEPT = 1e-3
"""Grid points with less of the weight than this are left out."""

BLOCKS = 20
"""Blocks of the jackknife: errors of powers are known to a sixth, and are alike for some tenths of a second."""

_DENSE = 20_000
"""Numbers up to which what spans have of each segment is a dense matrix: a sparse one takes ten times as long."""

_RANKS = 8
"""Widths by which independent groups of spans are described together: those of 95 % differ by 3 % from all widths."""


@dataclass(frozen=True)
class Unknowns:
    """Numbers that all readings have in common, such as powers of kinds: a border of the banded system."""

    shown: Floats  # shape (readings, c): what a reading shows of each
    wanted: Floats  # shape (spans, c): what a span's energy has of each
    mean: Floats  # shape (c,): before the readings
    variance: Floats  # shape (c,)

    def beside(self, other: Unknowns) -> Unknowns:
        """These and others."""
        shown, wanted = np.hstack([self.shown, other.shown]), np.hstack([self.wanted, other.wanted])
        return Unknowns(shown, wanted, np.append(self.mean, other.mean), np.append(self.variance, other.variance))


@dataclass(frozen=True)
class Problem:
    """Readings, the spans whose energies are asked for, and what all have in common."""

    values_w: Floats  # shape (readings,)
    noise_w: Floats  # shape (readings,): standard deviation of each one's independent noise
    spans: csr_matrix  # shape (spans, n): the share of each segment in each span
    unknowns: Unknowns


@dataclass(frozen=True)
class Solution:
    """Energies of the spans given readings and hyperparameters."""

    chain: Chain
    problem: Problem
    log_evidence: float  # logarithm of the readings' probability, up to a constant of their number
    mean_j: Floats  # shape (spans,)
    segment_j: Floats  # shape (n,): energies of the segments, without what is of the unknowns
    state: Floats  # shape (n + 1, k): means of the states
    unknowns: Floats  # shape (c,): means
    inverse: Floats  # shape (c, c): their covariance
    _factor: Floats  # of the states' precision, shape (2k, (n + 1) k)
    _moved: Floats  # shape ((n + 1) k, c): by how much one more of an unknown lowers the states
    _weighed: Floats  # shape (readings, 1 + c): C^-1 of readings, and of what they show of the unknowns

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the energies, shape (spans, spans), in J²."""
        return self.around(self.inverse)

    def around(self, unknowns: Floats) -> Floats:
        """``covariance`` with another one of the unknowns, (c, c)."""
        settled, link = self._parts
        return np.asarray(settled + link @ unknowns @ link.T)

    @cached_property
    def _parts(self) -> tuple[Floats, Floats]:
        """Covariance of the energies if unknowns were known, and energies by one of each unknown, (spans, c)."""
        chain, spans, wanted = self.chain, self.problem.spans, self.problem.unknowns.wanted
        n, two = chain.energy.shape
        k = two // 2
        if spans.shape[0] * n <= _DENSE:
            share, lever = spans.toarray(), np.zeros((spans.shape[0], len(self._moved)))
            for j in range(two):
                lever[:, j : j + n * k : k] += share * chain.energy[:, j]
            half = dtbtrs(self._factor, lever.T, uplo="L")[0]
            return share * chain.own_variance @ share.T + half.T @ half, wanted - lever @ self._moved
        rows = np.arange(0, n * two + 1, two)
        energy = csr_matrix((chain.energy.ravel(), _places(n, two).ravel(), rows), shape=(n, len(self._moved)))
        sparse = (spans @ energy).tocsr()
        settled = (spans.multiply(chain.own_variance) @ spans.T).toarray() + _quadratic(self._factor, sparse, k)
        return settled, wanted - sparse @ self._moved

    def left_out(self, blocks: int = BLOCKS) -> Floats:
        """Covariance of the unknowns by the jackknife, shape (c, c): from what they are without each block of readings.

        The chain has errors that go with time alone. Others go with what ran: a kind's power isn't one number, and a
        sensor's response isn't quite the nominal one. The prior's part stays: priors are in no block.

        With V the precision of all readings, unknowns included, those without block b differ by
        ``-inverse X^T C^-1 (V_bb)^-1 (V y)_b``.
        """
        at, k, weight = self.chain.seen, self.state.shape[1], 1 / self.problem.noise_w**2
        left, shown = self._weighed[:, 0] - self._weighed[:, 1:] @ self.unknowns, self._weighed[:, 1:]
        away = []
        for mine in filter(len, np.split(np.arange(len(at)), -(-np.arange(1, blocks) * len(at) // blocks))):
            begin, end = at[mine].min() // k * k, at[mine].max() + 1
            unit = np.zeros((end - begin, len(mine)), order="F")
            unit[at[mine] - begin, np.arange(len(mine))] = weight[mine]
            half = dtbtrs(self._factor[:, begin:end], unit, uplo="L", overwrite_b=1)[0]
            block_precision = np.diag(weight[mine]) - half.T @ half - shown[mine] @ self.inverse @ shown[mine].T
            if end < len(self._moved):  # what the states behind the block take of it
                behind = self._link(end, len(half)) @ half[-len(self._factor) + 1 :]
                block_precision -= behind.T @ self._behind(end, len(behind)) @ behind
            away.append(self.inverse @ shown[mine].T @ np.linalg.solve(block_precision, left[mine]))
        spread = np.stack(away) * jackknife_width(blocks)
        return np.asarray(spread.T @ spread + self.inverse / self.problem.unknowns.variance @ self.inverse)

    def _link(self, end: int, most: int) -> Floats:
        """Rows of the factor from ``end`` on, by the columns before it that they reach: at most ``most`` of these."""
        width = len(self._factor) - 1
        rows, columns = np.arange(min(width, len(self._moved) - end)), np.arange(-min(width, most), 0)
        apart = rows[:, None] - columns
        return np.where(apart <= width, self._factor[np.minimum(apart, width), end + columns], 0.0)

    def _behind(self, end: int, count: int) -> Floats:
        """The first ``count`` rows and columns of the inverse of the factor from ``end`` on times its transpose."""
        unit = np.eye(len(self._moved) - end, count, order="F")
        lower = dtbtrs(self._factor[:, end:], unit, uplo="L", overwrite_b=1)[0]
        return np.asarray(lower.T @ lower)


@dataclass(frozen=True)
class Unseen:
    """Errors of energies that no reading shows: their sizes are known by the chain alone."""

    share: csr_matrix  # shape (spans, sources): of each independent source of error in each span, in J for size 1
    sizes: Floats  # shape (g, m, spans): for each chain, m sizes of each span's
    chances: Floats  # shape (m,): sums to 1
    cause: str = SWINGS

    def variance(self, rows: Floats, chain: int) -> Floats:
        """Variance of sums of energies, rows (r, spans), under each size, in J², shape (m, r)."""
        return np.array([np.square(self.share.T @ (rows * size).T).sum(axis=0) for size in self.sizes[chain]])


@dataclass(frozen=True)
class Energies:
    """Energies of spans, as a mixture of Gaussian distributions: of g chains, each with the sizes of what is unseen."""

    weight: Floats  # shape (g,), sums to 1
    mean_j: Floats  # shape (g, spans)
    covariance: Floats  # shape (g, spans, spans), in J², without what is unseen
    unseen: Unseen | None = None
    log_evidence: float = 0.0  # logarithm of the readings' probability, up to a constant of their number
    reason: str = ""  # why there are no energies, which are NaN then; of others, what else the readings may show
    kept: Indices = field(default_factory=lambda: np.zeros(0, np.intp))  # numbers in the grid

    def interval(self, rows: Floats | None = None, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """Mean, low and high end of sums of energies, in J, each of shape (r,).

        Args:
            rows: Weights of the spans in each sum, shape (r, spans) or (spans,); each span alone if None.
            level: Probability between the ends, of which the same lies outside on both sides.
        """
        alone, parts = rows is None, []
        rows = np.eye(self.mean_j.shape[1]) if rows is None else np.atleast_2d(rows)
        mean = self.mean_j @ rows.T
        for g, seen in enumerate(self.covariance):
            variance = (np.diagonal(seen) if alone else ((rows @ seen) * rows).sum(axis=1))[None]
            chances = np.ones(1)
            if self.unseen is not None:
                variance, chances = variance + self.unseen.variance(rows, g), self.unseen.chances
            sd = np.sqrt(np.maximum(variance, 1e-18))
            parts.append((self.weight[g] * chances, np.repeat(mean[g : g + 1], len(sd), axis=0), sd))
        weight, means, deviations = (np.concatenate(part) for part in zip(*parts, strict=True))
        low, high = (_quantile(weight, means, deviations, p) for p in ((1 - level) / 2, (1 + level) / 2))
        return self.weight @ mean, low, high

    def of(self, spans: Indices) -> Energies:
        """Those of some spans, by number."""
        unseen = self.unseen
        if unseen is not None:
            unseen = replace(unseen, share=unseen.share[spans], sizes=unseen.sizes[..., spans])
        covariance = self.covariance[:, spans[:, None], spans]
        return replace(self, mean_j=self.mean_j[:, spans], covariance=covariance, unseen=unseen)

    def sources(self, row: Floats) -> dict[str, float]:
        """Standard uncertainties of a sum of energies by source, in J, which together make its interval.

        Offsets that are unseen aren't normal: a standard uncertainty is 1/1.96 of a half-width here. ``row`` has shape
        (1, spans).
        """
        _, low, high = self.interval(row)
        seen, hidden = float(np.sqrt(self.moments(row)[1][0, 0])), float(self.hidden_sd(row)[0])
        scale = float(high[0] - low[0]) / (2 * Z95) / np.hypot(seen, hidden)
        unseen = {} if self.unseen is None else {self.unseen.cause: scale * hidden}
        return {READINGS: scale * seen, **unseen}

    def hidden_sd(self, rows: Floats) -> Floats:
        """Standard uncertainties of sums of energies by swings between readings, in J, shape (r,)."""
        if self.unseen is None:
            return np.zeros(len(rows))
        each = [self.unseen.chances @ self.unseen.variance(rows, g) for g in range(len(self.weight))]
        return np.asarray(np.sqrt(self.weight @ each))

    def components(self) -> tuple[Floats, Floats, Floats]:
        """Weights, means and covariances of all normal distributions, with what is unseen: (c,), (c, s), (c, s, s)."""
        if self.unseen is None:
            return self.weight, self.mean_j, self.covariance
        chances, share = self.unseen.chances, self.unseen.share
        common = (share @ share.T).toarray()
        hidden = self.unseen.sizes[..., None] * common * self.unseen.sizes[:, :, None, :]
        covariance = (self.covariance[:, None] + hidden).reshape(-1, *common.shape)
        return np.outer(self.weight, chances).ravel(), np.repeat(self.mean_j, len(chances), axis=0), covariance

    def moments(self, rows: Floats) -> tuple[Floats, Floats]:
        """Means of sums of energies, shape (r,), and their covariance, shape (r, r), but for what is unseen."""
        means = self.mean_j @ rows.T
        mean = self.weight @ means
        seen = sum(weight * part for weight, part in zip(self.weight, self.covariance, strict=True))
        return mean, rows @ seen @ rows.T + (means - mean).T @ (self.weight[:, None] * (means - mean))


def _quantile(weight: Floats, mean: Floats, sd: Floats, p: float) -> Floats:
    """Quantile of mixtures of normal distributions, by bisection; means and deviations have shape (parts, r)."""
    low, high = (mean - 9 * sd).min(axis=0), (mean + 9 * sd).max(axis=0)
    for _ in range(40):
        middle = (low + high) / 2
        below = weight @ ndtr((middle - mean) / sd) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def solve(chain: Chain, problem: Problem) -> Solution:
    """Energies of the spans under one chain (``solve_each``)."""
    return solve_each([chain], problem)[0]


def solve_each(chains: Sequence[Chain], problem: Problem) -> list[Solution]:
    """Energies of the spans under each of some chains of one size.

    All chains side by side are one banded system: it has one Cholesky decomposition. The unknowns are a dense border of
    each. With C the covariance of readings under a chain, X what they show of the unknowns, and Woodbury's identity,
    ``C^-1 z = (z - state(z)) / noise²``, where state(z) are the means of the states for data z.
    """
    n, two = chains[0].energy.shape
    g, k, unknowns, values = len(chains), two // 2, problem.unknowns, problem.values_w
    at = chains[0].seen + np.arange(g)[:, None] * (n + 1) * k
    band = np.hstack([chain.band for chain in chains])
    band[0, at] += 1 / problem.noise_w**2
    factor = cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False)
    data = np.column_stack([values, unknowns.shown])
    precision = 1 / problem.noise_w[:, None] ** 2
    right = np.zeros((data.shape[1], g * (n + 1) * k)).T
    right[at] = data * precision
    state = cho_solve_banded((factor, True), right, overwrite_b=True, check_finite=False)
    weighed = (data - state[at]) * precision
    prior = np.diag(1 / unknowns.variance)
    inverse = np.linalg.inv(prior + unknowns.shown.T @ weighed[..., 1:])
    moment = prior @ unknowns.mean + weighed[..., 0] @ unknowns.shown
    determined = (inverse @ moment[..., None])[..., 0]
    chi2 = weighed[..., 0] @ values + unknowns.mean @ prior @ unknowns.mean - (moment * determined).sum(axis=1)
    log_det = 2 * np.log(factor[0]).reshape(g, -1).sum(axis=1) - [chain.log_det for chain in chains]
    log_det += 2 * np.log(problem.noise_w).sum() + np.log(unknowns.variance).sum() - np.linalg.slogdet(inverse)[1]
    each, factors = state.reshape(g, (n + 1) * k, -1), np.split(factor, g, axis=1)
    means = each[..., 0] - (each[..., 1:] @ determined[..., None])[..., 0]
    segments = (means[:, _places(n, two)] * np.array([chain.energy for chain in chains])).sum(axis=2)
    mean = (problem.spans @ segments.T).T + determined @ unknowns.wanted.T
    return [
        Solution(
            chains[i],
            problem,
            -0.5 * float(chi2[i] + log_det[i]),
            mean[i],
            segments[i],
            means[i].reshape(-1, k),
            determined[i],
            inverse[i],
            factors[i],
            each[i, :, 1:],
            weighed[i],
        )
        for i in range(g)
    ]


def _places(n: int, two: int) -> Indices:
    """Which of all states' numbers are those beside each of n segments, shape (n, 2k)."""
    return np.arange(n)[:, None] * (two // 2) + np.arange(two)


def jackknife_width(blocks: int) -> float:
    """Factor of what leaving out a block changes, for a sum of squares that is a variance.

    It is as wide as the quantile of t asks, since so few blocks know a variance roughly.
    """
    return float(np.sqrt((blocks - 1) / blocks) * stdtrit(blocks - 1, 0.975) / 1.96)


def _quadratic(factor: Floats, lever: csr_matrix, k: int) -> Floats:
    """``lever precision^-1 lever^T``, shape (spans, spans), by forward substitution alone: a Gram matrix.

    Time is cut where rows of ``lever`` begin and end. Within a block only its own rows are solved for, beside the k
    numbers of the state before it; what rows did earlier reaches it through that state, and what a block leaves behind
    weighs by all that follows (``after``). So time goes as spans² k and not as spans x states.

    Args:
        factor: Lower Cholesky factor in bands, shape (2k, states k).
        lever: Rows over the states' numbers, shape (spans, states k).
        k: Numbers of a state.
    """
    spans, size = lever.shape
    lever.sort_indices()
    some = np.diff(lever.indptr) > 0
    first, last = lever.indices[lever.indptr[:-1][some]], lever.indices[lever.indptr[1:][some] - 1]
    cuts = np.unique(np.concatenate([first // k, last // k + 1, [0, size // k]])).tolist()
    columns = lever.tocsc()
    blocks = [_block(factor, columns, k, a, b) for a, b in itertools.pairwise(cuts)]
    after, links = np.zeros((k, k)), []
    for inside, rows, left in reversed(blocks):
        weigh = inside + left.T @ after @ left
        links.append((rows, weigh[:k, k:], weigh[k:, k:]))
        after = weigh[:k, :k]
    joint, earlier, carried = np.zeros((spans, spans)), np.zeros((spans, spans)), np.zeros((k, spans))
    for (rows, link, gram), (_, _, left) in zip(reversed(links), blocks, strict=True):
        earlier[rows] += link.T @ carried
        joint[np.ix_(rows, rows)] += gram
        carried = left[:, :k] @ carried
        carried[:, rows] += left[:, k:]
    return np.asarray(joint + earlier + earlier.T)


def _block(factor: Floats, columns: csc_matrix, k: int, a: int, b: int) -> tuple[Floats, Indices, Floats]:
    """Forward substitution through the states a to b - 1, for the k numbers of state a - 1 and the rows in the block.

    Returns:
        The Gram matrix of the solutions, (k + r, k + r); the rows, (r,); the solutions at the block's last state,
        (k, k + r).
    """
    begin, end = columns.indptr[a * k], columns.indptr[b * k]
    row = np.repeat(np.arange((b - a) * k), np.diff(columns.indptr[a * k : b * k + 1]))
    rows, which = np.unique(columns.indices[begin:end], return_inverse=True)
    right = np.zeros(((b - a) * k, k + len(rows)), order="F")
    right[row, k + which] = columns.data[begin:end]
    if a > 0:
        for j in range(k):  # what the state before the block enters with
            right[:k, j] = -factor[k - j : 2 * k - j, (a - 1) * k + j]
    solved = dtbtrs(factor[:, a * k : b * k], right, uplo="L", overwrite_b=1)[0]
    return solved.T @ solved, rows, solved[-k:]


def mixture(tried: Sequence[Solution], prior: Floats, unseen: Unseen | None = None, blocks: int = 0) -> Energies:
    """Energies over a grid of hyperparameters, each weighed by its prior and its evidence.

    Args:
        tried: One for each of ``grid`` points.
        prior: Weight of each before the readings, shape (grid,).
        unseen: What no reading shows, with sizes for all grid points.
        blocks: Of readings, whose errors are independent of each other; 0 if chains have all errors.
    """
    weight, together = _weighed(np.array([solution.log_evidence for solution in tried]), prior)
    kept = np.flatnonzero(weight > KEPT)
    some, weight, around = [tried[g] for g in kept.tolist()], weight[kept] / weight[kept].sum(), None
    if blocks:
        around = some[int(np.argmax(weight))].left_out(blocks)
    return Energies(
        weight=weight,
        mean_j=np.array([solution.mean_j for solution in some]),
        covariance=np.array([solution.covariance if around is None else solution.around(around) for solution in some]),
        kept=kept,
        unseen=None if unseen is None else replace(unseen, sizes=unseen.sizes[kept]),
        log_evidence=together,
    )


def _weighed(evidence: Floats, prior: Floats) -> tuple[Floats, float]:
    """Weights of cases that exclude each other, by prior and evidence, and the evidence of all of them."""
    weight = np.exp(evidence - evidence.max()) * prior
    return weight / weight.sum(), float(evidence.max() + np.log(weight.sum()))


def apart(parts: Sequence[tuple[Indices, Energies]]) -> Energies:
    """Energies of groups of spans with independent errors; each group has the numbers of its spans.

    Components of a group, by width, become ``_RANKS`` of equal weight; those of one rank go together.
    """
    if len(parts) == 1:
        return parts[0][1]
    size = sum(len(numbers) for numbers, _ in parts)
    mean, covariance = np.zeros((_RANKS, size)), np.zeros((_RANKS, size, size))
    edges = np.linspace(0, 1, _RANKS + 1)
    for numbers, energies in parts:
        weight, means, joint = energies.components()
        order = np.argsort(np.trace(joint, axis1=1, axis2=2), kind="stable")
        upto = np.append(0.0, np.cumsum(weight[order])) / weight.sum()
        within = np.minimum.outer(edges[1:], upto[1:]) - np.maximum.outer(edges[:-1], upto[:-1])
        share = np.maximum(within, 0.0) * _RANKS
        mean[:, numbers] = share @ means[order]
        off = means[order] - mean[:, None, numbers]
        spread = np.einsum("rg,rgi,rgj->rij", share, off, off)
        covariance[:, numbers[:, None], numbers] = np.tensordot(share, joint[order], 1) + spread
    return Energies(np.full(_RANKS, 1 / _RANKS), mean, covariance)


def joined(parts: Sequence[Energies], prior: Floats) -> Energies:
    """Energies over cases that exclude each other, such as delays of a sensor, by prior and evidence."""
    if len(parts) == 1:
        return parts[0]
    weight, together = _weighed(np.array([case.log_evidence for case in parts]), prior)
    unseen, hidden = None, [case.unseen for case in parts if case.unseen is not None]
    if hidden:
        share = sum(
            w * source.share for w, source in zip(weight, hidden, strict=True)
        )  # they differ by how high bursts seem
        unseen = Unseen(csr_matrix(share), np.concatenate([source.sizes for source in hidden]), hidden[0].chances)
    return Energies(
        weight=np.concatenate([w * case.weight for w, case in zip(weight, parts, strict=True)]),
        mean_j=np.concatenate([case.mean_j for case in parts]),
        covariance=np.concatenate([case.covariance for case in parts]),
        log_evidence=together,
        unseen=unseen,
    )
