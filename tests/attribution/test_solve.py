"""The banded solve against dense algebra, and mixtures against sampling."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from jouletrace.attribution import Energies, Unseen
from jouletrace.attribution.chains import Course, low_pass_chain
from jouletrace.attribution.solve import Problem, Unknowns, apart, joined, mixture, solve, solve_each
from jouletrace.sensor import HOPPER_SENSOR, Response
from jouletrace.stats import student

RESPONSE = Response.sampled(HOPPER_SENSOR, 0.02)
N = 30


def chain_of(density=40.0):
    rng = np.random.default_rng(2)
    time_s = np.append(0.0, np.cumsum(rng.uniform(0.004, 0.02, N)))
    seen = np.sort(rng.choice(N + 1, 18, replace=False))
    walk = np.where(np.arange(N) == 12, np.inf, 2000.0)
    fresh = np.where(np.isin(np.arange(N + 1), [0, 13]), 300.0**2, 0.0)
    return low_pass_chain(time_s, seen, RESPONSE, Course(np.full(N, density), walk, fresh, 0.5), np.full(N, 0.5))


def problem_of():
    rng = np.random.default_rng(4)
    spans = np.zeros((5, N))
    for row, (a, b) in enumerate([(0, 8), (5, 20), (20, 21), (0, N), (25, N)]):
        spans[row, a:b] = 1.0
    spans[4] = rng.uniform(0, 1, N)  # in part
    unknowns = Unknowns(
        rng.standard_normal((18, 2)), rng.standard_normal((5, 2)), np.array([5.0, 0.0]), np.array([9.0, 4.0])
    )
    return Problem(rng.normal(0, 50, 18), rng.uniform(0.2, 2.0, 18), csr_matrix(spans), unknowns)


def dense(chain, problem):
    """Evidence, means and covariance by the joint covariance of states, unknowns, readings and energies."""
    size = chain.band.shape[1]
    precision = np.zeros((size, size))
    for k, band in enumerate(chain.band):
        precision += np.diag(band[: size - k], -k) + (np.diag(band[: size - k], k) if k else 0.0)
    prior = np.linalg.inv(precision)
    lever = np.zeros((N, size))
    for i in range(N):
        lever[i, 3 * i : 3 * i + 6] = chain.energy[i]
    spans, own = problem.spans.toarray(), np.diag(chain.own_variance)
    unknowns = problem.unknowns
    shows = np.eye(size)[chain.seen]
    lever = spans @ lever
    extra = np.diag(unknowns.variance)
    reads = shows @ prior @ shows.T + np.diag(problem.noise_w**2) + unknowns.shown @ extra @ unknowns.shown.T
    cross = lever @ prior @ shows.T + unknowns.wanted @ extra @ unknowns.shown.T
    left = problem.values_w - unknowns.shown @ unknowns.mean
    mean = unknowns.wanted @ unknowns.mean + cross @ np.linalg.solve(reads, left)
    covariance = lever @ prior @ lever.T + spans @ own @ spans.T + unknowns.wanted @ extra @ unknowns.wanted.T
    covariance -= cross @ np.linalg.solve(reads, cross.T)
    return -0.5 * (left @ np.linalg.solve(reads, left) + np.linalg.slogdet(reads)[1]), mean, covariance


@pytest.mark.parametrize("most", [0, 10**6])
def test_energies_and_their_covariance_are_those_of_the_joint_distribution(monkeypatch, most):
    """Be what spans have of each segment sparse or dense."""
    monkeypatch.setattr("jouletrace.attribution.solve._DENSE", most)
    chain, problem = chain_of(), problem_of()
    result, (_, mean, covariance) = solve(chain, problem), dense(chain, problem)
    np.testing.assert_allclose(result.mean_j, mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.covariance, covariance, rtol=1e-5, atol=1e-6 * covariance.max())


def test_chains_side_by_side_are_solved_as_each_alone():
    problem, chains = problem_of(), [chain_of(density) for density in (5.0, 40.0, 80.0)]
    for chain, result in zip(chains, solve_each(chains, problem), strict=True):
        alone = solve(chain, problem)
        assert result.log_evidence == pytest.approx(alone.log_evidence, rel=1e-9)
        np.testing.assert_allclose(result.mean_j, alone.mean_j, rtol=1e-9)
        np.testing.assert_allclose(result.covariance, alone.covariance, rtol=1e-9)


def test_some_energies_are_those_of_all():
    alone, rows = energies().of(np.array([1])), np.eye(len(energies().mean_j[0]))[[1]]
    np.testing.assert_allclose(alone.interval(), energies().interval(rows))


def test_evidence_compares_chains():
    problem, one, other = problem_of(), chain_of(5.0), chain_of(80.0)
    found = solve(one, problem).log_evidence - solve(other, problem).log_evidence
    assert found == pytest.approx(dense(one, problem)[0] - dense(other, problem)[0], rel=1e-6)


def test_evidence_compares_noises():
    chain, problem = chain_of(), problem_of()
    other = replace(problem, noise_w=1.5 * problem.noise_w)
    found = solve(chain, problem).log_evidence - solve(chain, other).log_evidence
    assert found == pytest.approx(dense(chain, problem)[0] - dense(chain, other)[0], abs=1e-5)


def test_cases_are_weighed_by_prior_and_evidence():
    found = joined([replace(energies(), log_evidence=3.0), replace(energies(), log_evidence=2.0)], np.array([0.2, 0.8]))
    weight = np.array([0.2, 0.8 * np.exp(-1)])
    np.testing.assert_allclose(found.weight, np.outer(weight / weight.sum(), [0.6, 0.4]).ravel())
    np.testing.assert_allclose(found.interval()[0], energies().interval()[0])


def test_chains_are_weighed_by_prior_and_evidence():
    problem, chains = problem_of(), [chain_of(36.0), chain_of(40.0)]
    evidence = np.array([dense(chain, problem)[0] for chain in chains])
    expected = np.array([0.7, 0.3]) * np.exp(evidence - evidence.max())
    both = [solve(chain, problem) for chain in chains]
    result = mixture(both, np.array([0.7, 0.3]))
    weight = expected / expected.sum()
    np.testing.assert_allclose(result.weight, weight, rtol=1e-5)
    summed = np.log(np.array([0.7, 0.3]) @ np.exp([one.log_evidence - both[0].log_evidence for one in both]))
    assert result.log_evidence == pytest.approx(both[0].log_evidence + summed)


def energies():
    """Two chains, two spans, and an offset that hides 3 J of the first in half of the cases of the second chain."""
    sizes = np.array([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]])
    return Energies(
        np.array([0.6, 0.4]),
        np.array([[10.0, 5.0], [12.0, 5.0]]),
        np.array([np.diag([1.0, 4.0])] * 2),
        Unseen(csr_matrix(np.eye(2)), sizes, np.array([0.5, 0.5])),
    )


def test_an_interval_has_the_quantiles_of_the_mixture():
    rng = np.random.default_rng(1)
    second = rng.random(400_000) < 0.4
    sd = np.where(second & (rng.random(400_000) < 0.5), np.sqrt(10.0), 1.0)
    drawn = np.where(second, 12.0, 10.0) + sd * rng.standard_normal(400_000)
    mean, low, high = energies().interval(level=0.9)
    np.testing.assert_allclose([mean[0], low[0], high[0]], [drawn.mean(), *np.quantile(drawn, [0.05, 0.95])], atol=0.03)


def test_the_covariance_of_a_mixture_holds_what_its_means_differ_by():
    mixed = Energies(np.array([0.37, 0.63]), np.array([[1.0, 5.0], [3.0, 4.0]]), np.stack([np.eye(2), 2 * np.eye(2)]))
    mean, covariance = mixed.moments(np.eye(2))
    off = np.array([2.0, -1.0])
    assert mean == pytest.approx([0.37 + 0.63 * 3, 0.37 * 5 + 0.63 * 4])
    assert covariance == pytest.approx((0.37 + 0.63 * 2) * np.eye(2) + 0.37 * 0.63 * np.outer(off, off))


def test_groups_apart_have_the_moments_that_each_has_alone():
    """Components of a group are 0.37 and 0.63 of it, so that one of eight equal ranks holds a part of both."""
    group = Energies(np.array([0.37, 0.63]), np.array([[1.0], [3.0]]), np.array([[[1.0]], [[2.0]]]))
    both = apart([(np.array([1]), group), (np.array([0]), group)])
    (mean,), ((variance,),) = group.moments(np.eye(1))
    means, covariance = both.moments(np.eye(2))
    assert means == pytest.approx([mean, mean])
    assert np.diag(covariance) == pytest.approx([variance, variance])


def test_the_interval_of_a_sum_counts_covariances():
    _, low, high = energies().interval(np.array([0.0, 2.0]))
    assert (high - low) / 2 == pytest.approx(2 * 2 * 1.96, rel=1e-3)


def test_what_no_reading_shows_is_a_source_of_its_own():
    rows, found = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]), energies()
    hidden = found.hidden_sd(rows)
    for row, one in zip(rows, hidden, strict=True):
        by = found.sources(row[None])
        seen = np.sqrt(found.moments(row[None])[1][0, 0])
        assert by["swings between readings"] / by["readings and response of the sensor"] == pytest.approx(one / seen)
    assert hidden[0] > 0
    assert hidden[2] ** 2 == pytest.approx(hidden[0] ** 2 + hidden[1] ** 2)
    assert not replace(found, unseen=None).hidden_sd(rows).any()


def test_blocks_of_readings_that_disagree_widen_what_they_have_in_common():
    """By the jackknife: a block's absence is here as if its readings were noise alone; and priors are in no block."""
    chain, problem, blocks = chain_of(), problem_of(), 6
    alone = replace(problem.unknowns, wanted=np.eye(5)[:, :2])  # the first two energies are the unknowns themselves
    problem = replace(problem, spans=csr_matrix((5, N)), unknowns=alone)
    whole = solve(chain, problem)
    assert mixture([whole], np.ones(1)).covariance[0] == pytest.approx(whole.covariance)
    away = []
    for block in np.array_split(np.arange(18), blocks):
        without = np.isin(np.arange(18), block, invert=True)
        kept = replace(alone, shown=alone.shown[without])
        noise_w, values_w = problem.noise_w[without], problem.values_w[without]
        left = replace(problem, values_w=values_w, noise_w=noise_w, unknowns=kept)
        away.append(solve(replace(chain, seen=chain.seen[without]), left).mean_j[:2] - whole.mean_j[:2])
    spread = (blocks - 1) / blocks * np.transpose(away) @ np.array(away) * (student(0.975, blocks - 1) / 1.96) ** 2
    of_prior = whole.inverse / alone.variance @ whole.inverse
    found = mixture([whole], np.ones(1), blocks=blocks).covariance[0]
    np.testing.assert_allclose(found[:2, :2], spread + of_prior, rtol=1e-4)
    assert not found[2:].any()
