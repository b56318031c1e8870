"""The parts of a calibration's search by themselves: features of a load, amplitudes, weights, errors."""

import numpy as np
import pytest

from jouletrace.sensor.calibration import Fitter, StepResponse, load_features
from jouletrace.sensor.calibration.fitter import SETTLE_PERIODS, _off_zero
from jouletrace.stats.quantiles import SD_OVER_MAD

PERIOD = 0.02
EDGES = np.array([1.0, 1.4, 2.1003, 2.1407, 3.0])
LEVEL = np.array([0, 1, 0, 2, 1, 0])


@pytest.fixture(scope="module")
def features():
    return load_features(EDGES, LEVEL, 0.0, 4.0, PERIOD)


def exactly(features):
    """Middle between cuts, the level there and the time since the last edge."""
    middle = (features.cut_s[1:] + features.cut_s[:-1]) / 2
    at = np.searchsorted(EDGES, middle, side="right")
    return middle, LEVEL[at], middle - np.append(-1e3, EDGES)[at]


def test_features_are_a_constant_a_drift_and_two_settlings_of_each_level(features):
    middle, level, since = exactly(features)
    assert features.cut_s[-1] >= 4.0
    assert np.isin(EDGES, features.cut_s).all()
    for k in range(3):
        share = (level == k).astype(float)
        columns = (
            share,
            share * (middle - 2.0) / 4.0,
            share * np.exp(-since / (SETTLE_PERIODS * PERIOD)),
            share * np.exp(-since / 2.0),
        )
        for group, column in enumerate(columns):
            assert features.mean[3 * group + k] == pytest.approx(column, abs=1e-12)
    assert features.prior_sd.tolist() == [np.inf] * 3 + [0.2] * 6 + [0.05] * 3


@pytest.mark.parametrize(("period", "slow"), [(0.01, 2.0), (0.1, 2.4)])
def test_the_grid_is_as_fine_as_the_sensor_needs(period, slow):
    made = load_features(np.array([0.5]), np.array([0, 1]), 0.0, 1.0, period)
    assert np.diff(made.cut_s).max() == pytest.approx(period / 2)
    last = made.cut_s[-2:].mean() - 0.5
    assert made.mean[7, -1] == pytest.approx(np.exp(-last / slow))


def test_edges_outside_of_the_grid_are_no_cuts():
    made = load_features(np.array([-0.5, 0.5, 1.5]), np.array([0, 1, 0, 1]), 0.0, 1.0, PERIOD)
    assert made.cut_s[[0, -1]].tolist() == [0.0, 1.0]
    assert made.mean[:2, [0, -1]].tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    "response",
    [
        StepResponse(PERIOD, 0.025, lag_s=0.004),
        StepResponse(PERIOD, 0.0, rise_s=0.0125, lag_s=-0.003),
        StepResponse(PERIOD, 0.01, rise_s=0.005, tail_share=0.2, tail_s=0.03),
    ],
    ids=["boxcar", "exponential", "tailed"],
)
def test_features_are_read_as_a_sensor_reads_a_load(features, response):
    """Every feature is a sum of steps, one at each cut; what was before the first goes on from ever."""
    time = np.arange(0.8, 3.6, 0.0213)
    share = response.step(time[:, None] - features.cut_s)
    share[:, 0] = 1.0
    read = (share[:, :-1] - share[:, 1:]) @ features.mean.T
    assert features.read(time, response) == pytest.approx(read, abs=1e-5)


def test_a_window_of_zero_is_left_at_the_same_mean_delay():
    moved = _off_zero(np.array([0.5, 0.0, 0.3]))
    assert moved == pytest.approx([0.4, 0.2, 0.3])
    assert _off_zero(np.array([0.5, 0.9, 0.3])) == pytest.approx([0.5, 0.9, 0.3])


TRUE = StepResponse(PERIOD, 0.01, rise_s=0.006, lag_s=0.004)
SHAPE = np.array([0.2, 0.5, 0.3])
"""The same in units of the period."""


def fitter(noise_w=0.5, low_noise_w=None, seconds=16.0, seed=0, watts=(120.0, 420.0)):
    """A load of two levels as the sensor reads it."""
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.uniform(0.05, 0.4, int(seconds / 0.225)))
    level = np.arange(len(edges) + 1) % 2
    time = np.arange(0.3, edges[-1] + 0.2, PERIOD) + rng.uniform(-0.004, 0.004, int((edges[-1] - 0.1) / PERIOD) + 1)
    shown = TRUE.step(time[:, None] - edges) @ np.where(np.arange(len(edges)) % 2, -1.0, 1.0)
    power = watts[0] + (watts[1] - watts[0]) * shown
    noise = np.where(shown < 0.5, noise_w if low_noise_w is None else low_noise_w, noise_w)
    return Fitter(time, power + noise * rng.normal(size=len(time)), edges, level, PERIOD)


def test_units_of_a_shape_are_its_periods(recwarn):
    made = fitter()
    response = made.response(SHAPE)
    assert (response.lag_s, response.window_s, response.rise_s) == pytest.approx((0.004, 0.01, 0.006))
    tailed = made.response(np.append(SHAPE, [0.5, 2.0]))
    assert (tailed.tail_share, tailed.tail_s) == pytest.approx((0.05, 0.04))
    assert made.step_w == pytest.approx(300.0, rel=0.02)
    assert made.noise_w == pytest.approx(6.0, rel=0.02)
    assert made.labels == 2


def test_amplitudes_of_the_right_shape_leave_the_noise():
    made = fitter()
    design = made.read(SHAPE)
    amplitudes = made.amplitudes(design)
    assert amplitudes[:2] == pytest.approx([120.0, 420.0], abs=3.0)
    assert np.std(made.residual(SHAPE)) == pytest.approx(0.5, rel=0.1)
    assert np.std(made.residual(SHAPE + np.array([0.1, 0.0, 0.0]))) > 3.0


def test_amplitudes_follow_the_readings_that_are_kept_and_their_weights():
    made = fitter()
    design = made.read(SHAPE)
    keep = np.arange(len(made.power)) % 2 == 0
    made.power = made.power + np.where(keep, 0.0, 50.0)
    assert made.amplitudes(design, keep)[:2] == pytest.approx([120.0, 420.0], abs=4.0)
    made.weight = np.where(keep, 1.0, 1 / 3)
    # a tenth of the information is 50 W higher
    assert made.amplitudes(design)[:2] == pytest.approx([125.0, 425.0], abs=4.0)


def test_settling_and_drift_have_their_prior_and_levels_none():
    """Where nothing but the prior speaks, an amplitude is as wide as it says: ridge by the square of its inverse."""
    made = fitter()
    none = np.zeros((len(made.power), 8))
    none[:, 0] = 1.0
    none[0, 2], made.noise_w = 1.0, 10.0
    made.power[:] = 200.0
    made.power[0] += 60.0
    prior_sd = 0.2 * made.step_w
    found = made.amplitudes(none)
    # one reading with unit weight, 60 W off: shrunk by noise² / prior²
    assert found[2] == pytest.approx((260.0 - found[0]) / (1 + 10.0**2 / prior_sd**2), rel=1e-3)


@pytest.mark.thorough
def test_the_search_ends_near_the_truth_and_its_refinement_at_it():
    made = fitter()
    made.search()
    assert made.shape == pytest.approx(SHAPE, abs=0.25)
    made.refine(made.shape)
    assert made.shape == pytest.approx(SHAPE, abs=0.05)
    response = made.response(made.shape)
    assert response.delay_s == pytest.approx(TRUE.delay_s, abs=1e-4)
    made.add_tail()
    assert len(made.shape) == 5
    tail = made.response(made.shape)
    assert tail.tail_share < 0.02 or tail.tail_s < 0.015
    assert tail.delay_s == pytest.approx(TRUE.delay_s, abs=1.5e-4)


def test_weights_follow_the_scatter_at_each_level_and_outliers_have_less():
    made = fitter(noise_w=8.0, low_noise_w=2.0)
    outliers = np.flatnonzero(made.power > 400)[::20]
    made.power[outliers] += np.resize([150.0, -150.0], len(outliers))
    made.shape = SHAPE
    made._reweigh()
    model = made.model()
    others = np.setdiff1d(np.arange(len(made.power)), outliers)
    error = np.abs(made.power - model)
    for level, sd in ((model < 125, 2.0), (model > 415, 8.0)):
        usual = np.intersect1d(others, np.flatnonzero(level & (error < 2 * sd)))
        assert np.median(made.weight[usual]) == pytest.approx(1 / np.hypot(sd, 2e-3 * made.step_w), rel=0.2)
    high = np.intersect1d(outliers, np.flatnonzero(model > 415))
    spread = 1 / np.median(made.weight[np.intersect1d(others, np.flatnonzero((model > 415) & (error < 8)))])
    assert made.weight[high] * spread == pytest.approx(np.sqrt(3 * spread / error[high]), rel=0.1)
    assert made.noise_w == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("alike", [1, 5])
def test_errors_of_a_shape_are_those_of_many_calibrations(alike):
    """Also where neighbouring residuals are alike: means of five."""
    shapes, sds = [], []
    for seed in range(24):
        made = fitter(noise_w=0.0, seconds=8.0, seed=seed)
        drawn = np.random.default_rng(seed).normal(size=len(made.power) + alike - 1)
        made.power = made.power + 2.0 * np.convolve(drawn, np.ones(alike) / np.sqrt(alike), "valid")
        made.refine(SHAPE)
        shapes.append(made.shape * made.unit[:3])
        sds.append(np.sqrt(np.diag(made.covariance())))
    assert np.median(sds, axis=0) / np.std(shapes, axis=0) == pytest.approx(np.ones(3), abs=0.35)


def test_the_slope_is_the_change_of_the_model_with_time():
    made = fitter()
    made.shape = SHAPE
    amplitudes = made.amplitudes(made.read(SHAPE))
    at = np.argsort(-np.abs(made.slope()))[:40]
    ahead, behind = (made.features.read(made.time + way * 5e-4, made.response(SHAPE)) @ amplitudes for way in (1, -1))
    assert made.slope()[at] == pytest.approx(((ahead - behind) / 1e-3)[at], rel=0.04, abs=100.0)
    assert np.abs(made.slope()).max() == pytest.approx(300.0 * (1 - np.exp(-0.010 / 0.006)) / 0.010, rel=0.1)


def test_what_is_held_out_is_explained_by_the_rest():
    made = fitter(noise_w=30.0)
    made.shape = SHAPE
    explained = 1 - 30.0**2 / made.power.var()
    assert made.held_out() == pytest.approx(explained, abs=0.01)
    made.shape = SHAPE + np.array([2.0, 0.0, 0.0])
    assert made.held_out() < explained - 0.1


def test_drift_is_that_of_the_level_that_drifts_most():
    made = fitter(noise_w=0.1)
    made.shape = SHAPE
    assert made.drift() < 1.0
    span = np.ptp(made.features.cut_s)
    high = made.read(SHAPE)[:, 1]
    made.power = made.power + high * 20.0 * (made.time - made.time.mean()) / span
    assert made.drift() == pytest.approx(20.0, rel=0.05)


def test_amplitudes_are_those_of_least_squares_with_the_prior_as_readings():
    made = fitter(noise_w=20.0)
    made.weight = np.random.default_rng(4).uniform(0.2, 2.0, len(made.power))
    design = made.read(SHAPE)
    prior = np.diag(made.noise_w / (made.features.prior_sd * made.step_w))
    rows = np.vstack([made.weight[:, None] * design, prior])
    expected = np.linalg.lstsq(rows, np.append(made.weight * made.power, np.zeros(8)), rcond=None)[0]
    found = made.amplitudes(design)
    assert design @ found == pytest.approx(design @ expected, abs=1e-3)
    assert made.residual(SHAPE) == pytest.approx(made.weight * (made.power - design @ expected), abs=1e-2)


def test_errors_of_a_shape_are_those_of_residuals_alike_over_six_readings_and_of_the_prior():
    """Bartlett's weights, as a whole matrix; the tail's share and length have priors of 1 and 4 in their units."""
    made = fitter(noise_w=5.0)
    made.shape = np.append(SHAPE, [0.5, 1.2])
    off = made.residual(made.shape)
    slopes = [(made.residual(made.shape + one) - made.residual(made.shape - one)) / 0.04 for one in 0.02 * np.eye(5)]
    jacobian, place = np.stack(slopes, 1), np.arange(len(off))
    prior = np.diag([0.0, 0.0, 0.0, 1.0, 4.0])
    alike = np.clip(1 - np.abs(place[:, None] - place) / 7, 0, None)
    inverse = np.linalg.inv(jacobian.T @ jacobian + prior)
    unit = np.array([PERIOD, PERIOD, PERIOD, 0.1, 0.02])
    expected = inverse @ (jacobian.T @ (np.outer(off, off) * alike) @ jacobian + prior) @ inverse
    assert made.covariance() == pytest.approx(expected * np.outer(unit, unit), rel=1e-4)


def test_a_reading_weighs_by_the_scatter_at_its_power_and_an_outlier_by_its_root(monkeypatch):
    """At rest readings are 2 W off and at work 8 W; in the middle variances are, and a 500th of the step is added."""
    made = fitter()
    model = np.resize([100.0, 250.0, 400.0], len(made.power))
    error = np.where(model == 100.0, 2.0, np.resize([8.0, -8.0], len(model)))
    error[0], error[2], model[5] = 0.0, 100.0, 460.0  # the lowest reading, an outlier at work, and one above all
    monkeypatch.setattr(made, "model", lambda: model)
    made.power, made.step_w = model + error, 300.0
    made._reweigh()
    low, high = (SD_OVER_MAD * watts for watts in (2.0, 8.0))
    rest, middle, work = (np.sqrt((1 - s) * low**2 + s * high**2 + 0.6**2) for s in (0.0, 0.5, 1.0))
    assert made.weight[[3, 4, 5]] == pytest.approx([1 / rest, 1 / middle, 1 / work])
    assert made.weight[2] == pytest.approx(np.sqrt(3 * work / 100.0) / work)
