"""Judgements of a program's rows, on energies whose distribution is given."""

import numpy as np
import pytest

from jouletrace.attribution import Energies, ProgramEnergies, check_powers, resolved
from jouletrace.attribution.checks import check_rest


def rows(mean_j, covariance, seconds=None, before=None):
    """Energies of a span of 100 J and then of kinds."""
    mean, size = np.append(100.0, mean_j)[None], len(mean_j)
    joint = np.zeros((size + 1, size + 1))
    joint[0, 0], joint[1:, 1:] = 1.0, covariance
    return ProgramEnergies(
        Energies(np.ones(1), mean, joint[None]),
        np.ones(size) if seconds is None else np.array(seconds),
        np.eye(size) * 1e6 if before is None else np.array(before),
        np.array(covariance),
        np.zeros((size, size)),
    )


def test_a_sum_is_resolved_to_half_of_its_energy_and_half_of_the_prior():
    sd_j = np.array([2.5, 2.6, 2.5, 2.5])
    before = np.diag(np.array([5.1, 6.0, 4.9, 5.1]) ** 2)
    found = rows([9.9, 10.0, 9.9, -9.9], np.diag(sd_j**2), before=before)
    assert resolved(found, np.eye(4)).tolist() == [True, False, False, True]


def test_errors_that_kinds_have_against_each_other_cancel_in_their_sum():
    found = rows([10.0, 10.0], [[100.0, -99.0], [-99.0, 100.0]], before=np.diag([400.0, 400.0]))
    assert resolved(found, [[1.0, 0.0], [1.0, 1.0]]).tolist() == [False, True]


@pytest.mark.parametrize(("off_sd", "passed"), [(3.24, True), (3.34, False)])
@pytest.mark.parametrize("low", [True, False])
def test_a_power_out_of_bounds_fails_where_one_of_a_thousand_would_be_as_far_off(off_sd, passed, low):
    """A kind of 2 s whose energy is known to 8 J, so its power to 4 W; another of 0 s isn't judged."""
    power_w = -4 * off_sd if low else 700 + 4 * off_sd
    found = rows([2 * power_w, 0.0, 300.0], np.diag([64.0, 0.0, 1.0]), [2.0, 0.0, 1.0])
    outcome = check_powers(found, 700.0)
    assert (outcome.code, outcome.passed) == ("powers", passed)
    assert outcome.estimate == pytest.approx((4 * off_sd, 4 * off_sd - 7.84, 4 * off_sd + 7.84))


def test_two_kinds_out_of_bounds_count_two_degrees_of_freedom():
    """Chi² is 13.5 where both are off by 2.6 deviations, which happens once in 860 times; by 2.65 once in 1,120."""
    assert check_powers(rows([-2.6, 702.6], np.eye(2)), 700.0).passed
    assert not check_powers(rows([-2.65, 702.65], np.eye(2)), 700.0).passed


def test_kinds_within_bounds_pass_with_the_distance_to_the_nearest():
    outcome = check_powers(rows([0.4, 699.5], np.eye(2)), 700.0)
    assert outcome.passed
    assert outcome.estimate == pytest.approx((-0.4, -2.36, 1.56))


def test_kinds_that_always_run_at_once_are_judged_by_their_sum():
    """Only their sum is known: each is anything, and the two fit between the bounds."""
    found = rows([800.0, -700.0], 1e6 * np.array([[1, -1], [-1, 1]]))
    assert check_powers(found, 700.0).passed
    assert not check_powers(rows([1300.0, 200.0], 1e6 * np.array([[1, -1], [-1, 1]])), 700.0).passed


@pytest.mark.parametrize(("rest_j", "passed"), [(28.9, True), (29.1, False)])
def test_a_gpu_that_rests_draws_at_most_280_w_within_its_interval(rest_j, passed):
    """Of 100 J that are known to 0.49 J kernels took the others; the rest took 0.1 s."""
    found = rows([100.0 - rest_j], [[0.0]])
    found.energies.covariance[0, 0, 0] = 0.25
    outcome = check_rest(found, 0.1)
    assert (outcome.code, outcome.passed) == ("rest", passed)
    assert outcome.estimate == pytest.approx((10 * rest_j, 10 * rest_j - 9.8, 10 * rest_j + 9.8), rel=1e-3)
