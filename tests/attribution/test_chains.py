"""The chain of a sensor with an exponential memory, against the integrals that it stands for."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from jouletrace.attribution.chains import Course, low_pass_chain
from jouletrace.attribution.solve import Problem, Unknowns, solve
from jouletrace.sensor import HOPPER_SENSOR, Response

RESPONSE = Response.sampled(HOPPER_SENSOR, 0.02)
READ_S = np.arange(8) * 0.02
VALUES_W = np.array([0.0, 3.0, 60.0, 90.0, 70.0, 95.0, 40.0, 8.0])
NOISE_W = np.full(8, 0.3)


def energies(cuts_s, spans, walk=0.0, density=30.0, jolt=0.0):
    """Energies with cuts at readings and others; a level from the second reading to the sixth."""
    time_s = np.unique(np.concatenate([READ_S, cuts_s]))
    inside = (time_s[:-1] >= 0.02) & (time_s[:-1] < 0.1)
    goes_on = np.append(inside[1:] & inside[:-1], False)
    fresh = np.where(np.isclose(time_s, 0.02), 600.0**2, 0.0)
    course = Course(
        density=np.where(inside, density, 0.0), walk=np.where(goes_on, walk, np.inf), fresh=fresh, idle_walk=0.5
    )
    jolts = np.where(np.isclose(time_s[:-1], 0.02), jolt, 0.0)
    chain = low_pass_chain(time_s, np.searchsorted(time_s, READ_S), RESPONSE, course, jolts)
    share = [(time_s[:-1] >= low - 1e-9) & (time_s[1:] <= high + 1e-9) for low, high in spans]
    none = Unknowns(np.zeros((8, 0)), np.zeros((len(spans), 0)), np.zeros(0), np.zeros(0))
    return solve(chain, Problem(VALUES_W, NOISE_W, csr_matrix(np.array(share, float)), none))


@pytest.mark.parametrize("walk", [0.0, 5e4])
def test_finer_cuts_change_nothing(walk):
    spans = [(0.02, 0.1), (0.04, 0.06), (0.045, 0.05)]
    coarse_s = np.array([0.045, 0.05])
    if walk:  # a level that walks does so at the cuts: compare fine ones
        coarse_s = np.arange(160) * 0.001
    coarse = energies(coarse_s, spans, walk)
    fine = energies(np.arange(800) * 2e-4, spans, walk)
    np.testing.assert_allclose(coarse.mean_j, fine.mean_j, rtol=3e-3)
    np.testing.assert_allclose(coarse.covariance, fine.covariance, rtol=0.03, atol=2e-3 * fine.covariance.max())


def test_short_spans_of_a_swing_are_hardly_known():
    """Between two readings only the swing's mean is seen: a span of 2 ms has almost all of its own variance."""
    result = energies(np.array([0.045, 0.047]), [(0.045, 0.047)])
    assert result.covariance[0, 0] == pytest.approx(30.0 * 0.002, rel=0.25)


def test_without_swing_readings_show_a_constant_level():
    result = energies(np.zeros(0), [(0.02, 0.1)], density=0.0)
    assert np.sqrt(result.covariance[0, 0]) < 0.05


def test_a_jolt_moves_readings_and_not_energy():
    calm, jolted = (energies(np.zeros(0), [(0.02, 0.1)], jolt=jolt) for jolt in (0.0, 100.0))
    assert jolted.covariance[0, 0] > calm.covariance[0, 0] + (10.0 * RESPONSE.rise_s) ** 2 * 0.2
