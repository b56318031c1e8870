"""Responses beside one, and the noise of its readings."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.sensor.calibration.response import SHAPE, StepResponse
from jouletrace.sensor.windows.varied import noise_sd, varied

SHAPED = StepResponse(0.02, 0.01, rise_s=0.005, tail_share=0.2, tail_s=0.03)


def moves(response):
    """By how much each parameter is moved, one row a response."""
    names = SHAPE[: len(response.covariance)]
    return np.array([[getattr(one, name) - getattr(response, name) for name in names] for one in varied(response)])


def test_a_response_is_moved_along_the_axes_of_its_uncertainty():
    """Their squares add up to its covariance; what is exact isn't moved."""
    root = np.random.default_rng(0).normal(size=(5, 5)) * 1e-4
    covariance = root @ root.T
    response = replace(SHAPED, covariance=tuple(map(tuple, covariance)))
    moved = moves(response)
    assert len(moved) == 5
    assert moved.T @ moved == pytest.approx(covariance, rel=1e-6, abs=1e-15)
    exact = replace(response, covariance=((1e-6, 0, 0), (0, 0, 0), (0, 0, 0)))
    assert np.abs(moves(exact)) == pytest.approx(np.array([[1e-3, 0, 0]]))


@pytest.mark.parametrize(("window_s", "moved"), [(0.002, 0.003), (0.004, 0.003)])
def test_no_time_becomes_negative(window_s, moved):
    """Of two ways along an axis that is taken on which none does."""
    response = StepResponse(0.02, window_s, covariance=((0, 0, 0), (0, 0.003**2, 0), (0, 0, 0)))
    assert np.abs(moves(response)[:, 1]) == pytest.approx([moved])
    assert varied(response)[0].window_s >= 0.001
    # and where one does on either way it becomes 0
    both = replace(response, rise_s=0.0, covariance=((0, 0, 0), (0, 9e-6, -9e-6), (0, -9e-6, 9e-6)))
    (found,) = varied(both)
    assert sorted([found.window_s - window_s, found.rise_s]) == pytest.approx(sorted([-min(window_s, 0.003), 0.003]))


def test_noise_grows_with_the_power_in_quadrature():
    response = StepResponse(0.02, noise_w=3.0, noise_relative=0.01)
    assert noise_sd(response, np.array([0.0, 400.0])) == pytest.approx([3.0, 5.0])


def test_a_response_of_an_older_run_is_moved_by_what_it_had():
    older = {"period_s": 0.02, "window_s": 0.025, "covariance": [[1e-8, 0, 0], [0, 1e-8, 0], [0, 0, 0]]}
    assert [moved.tail_share for moved in varied(StepResponse.from_dict(older))] == [0.0, 0.0]
