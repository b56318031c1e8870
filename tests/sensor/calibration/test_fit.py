"""The response model, and its recovery from a commanded load."""

import json

import numpy as np
import pytest

from energy_signals import SENSORS, Load, Sensor, calibrated, calibration, ns, pulse_train
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.sensor.calibration import fit as calibrating
from jouletrace.sensor.calibration.fit import fit_response
from jouletrace.sensor.calibration.fitter import Fitter, load_features
from jouletrace.sensor.kinds import KINDS
from jouletrace.sensor.stamps import Grid
from jouletrace.sensor.windows.noise import Fluctuation, seen_correlation
from jouletrace.sensor.windows.response import Response


def test_the_step_response_of_a_boxcar_is_a_ramp():
    response = Response(0.02, window_s=0.01, lag_s=0.005)
    assert response.step([0, 0.005, 0.0075, 0.015, 1]) == pytest.approx([0, 0, 0.25, 1, 1], abs=1e-6)


def test_the_step_response_equals_a_numerical_convolution():
    response = Response(0.02, window_s=0.025, rise_s=0.008, lag_s=-0.002)
    h = 1e-5
    d = np.arange(0, 0.2, h)
    box = (d < 0.025) / 0.025
    kernel = np.convolve(box, np.exp(-d / 0.008) / 0.008 * h)[: len(d)]
    by_hand = np.cumsum(kernel) * h
    at = np.array([0.003, 0.01, 0.02, 0.03, 0.05])
    assert response.step(at - 0.002) == pytest.approx(np.interp(at, d, by_hand), abs=2e-3)


def test_mean_delay_is_the_area_above_the_step_response():
    response = Response(0.02, window_s=0.025, rise_s=0.008, lag_s=0.004)
    d = np.linspace(0, 0.5, 500_001)
    assert np.trapezoid(1 - response.step(d), d) == pytest.approx(response.delay_s, rel=1e-4)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(0.02, 0.025), "gapless"),
        (Response(0.02, 0.002, rise_s=0.0125), "gapless"),
        (Response(0.02, 0.010), "sampled"),
        (Response(0.1, 0.025), "sampled"),
        (Response(0.1, 1.0), "averaged"),
    ],
)
def test_kinds_of_sensor_are_distinguished(response, kind):
    assert response.kind == kind
    assert response.gapless == (kind != "sampled")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_response_survives_json(name):
    response = KINDS[name].response
    assert Response.from_dict(json.loads(json.dumps(response.to_dict()))) == response


def test_features_read_through_a_sensor_equal_its_step_response():
    features = load_features(np.array([1.0003]), np.array([0, 1]), -1.0, 3.0, 0.02)
    at = np.linspace(0.9, 1.5, 301)
    for shape in ((0.025, 0.01), (0.01, 0.0, 0.004), (0.3, 0.05), (0.01, 0.002, 0.0, 0.1, 0.03)):
        response = Response(0.02, *shape)
        assert features.read(at, response)[:, 1] == pytest.approx(response.step(at - 1.0003), abs=3e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(SENSORS))
def test_a_commanded_load_gives_the_sensor_back(name):
    truth = SENSORS[name]
    found = calibrated(name)
    assert found.period_s == pytest.approx(truth.period, rel=0.05)
    assert abs(found.window_s - truth.window) < max(0.005, 0.02 * truth.window)
    delay = truth.lag + truth.window / 2 + (1 - truth.tail_share) * truth.rise + truth.tail_share * truth.tail
    assert abs(found.delay_s - delay) < max(0.001, 0.02 * truth.period)
    assert abs(found.lag_s - truth.lag) < max(0.005, 0.1 * truth.period)
    assert found.modelled, found.flags
    assert found.explained is not None
    assert found.explained > 0.97


@pytest.mark.thorough
def test_a_small_slow_part_of_the_response_is_estimated():
    truth = SENSORS["tailed"]
    found = fit_response(*calibration("tailed", 2, relative=0.01))
    assert found.tail_share == pytest.approx(truth.tail_share, abs=0.05)
    assert found.tail_s == pytest.approx(truth.tail, rel=0.4)
    delay = truth.lag + truth.window / 2 + (1 - truth.tail_share) * truth.rise + truth.tail_share * truth.tail
    assert abs(found.delay_s - delay) < min(2.5 * found.uncertainty["delay_s"], 3e-4)


def test_a_fluctuation_through_an_exponential_is_as_alike_as_theory_says():
    rise, tau = 0.013, 0.05
    delay = np.array([0.0, 0.02, 0.06])
    theory = tau * (tau * np.exp(-delay / tau) - rise * np.exp(-delay / rise)) / (tau**2 - rise**2)
    assert seen_correlation(delay, tau, Response(0.02, rise_s=rise)) == pytest.approx(theory, abs=0.01)


def test_moving_a_response_along_its_uncertainty_gives_the_covariance_back():
    covariance = np.zeros((5, 5))
    covariance[:2, :2] = 1e-6 * np.array([[4.0, -7.9], [-7.9, 16.0]])
    response = Response(0.02, 0.025, lag_s=0.003, covariance=tuple(map(tuple, covariance.tolist())))
    moves = np.array([[r.lag_s - 0.003, r.window_s - 0.025] for r in response.varied()])
    assert moves.T @ moves == pytest.approx(covariance[:2, :2], rel=1e-9)


def test_a_response_is_never_moved_to_a_negative_width():
    response = Response(0.02, 0.0, 0.01, covariance=((0.0, 0.0, 0.0), (0.0, 1e-6, 0.0), (0.0, 0.0, 0.0)))
    (moved,) = response.varied()
    assert moved.window_s == pytest.approx(1e-3)


def test_a_response_of_an_older_run_has_no_tail():
    older = {"period_s": 0.02, "window_s": 0.025, "covariance": [[1e-8, 0, 0], [0, 1e-8, 0], [0, 0, 0]]}
    response = Response.from_dict(older)
    assert (response.tail_share, response.tail_s) == (0.0, 0.0)
    assert [moved.tail_share for moved in response.varied()] == [0.0, 0.0]


@pytest.mark.thorough
def test_stamps_that_jitter_about_a_regular_grid_are_recognised():
    assert calibrated("h100 slow").stamp_grid > 0
    assert calibrated("h100").stamp_grid == 0


@pytest.mark.thorough
def test_standard_errors_are_of_the_size_of_the_errors():
    truth = SENSORS["v100"]
    z = []
    for seed in range(5):
        found = fit_response(*calibration("v100", 20 + seed, duration=12))
        z.append((found.delay_s - truth.lag - truth.window / 2) / found.uncertainty["delay_s"])
    assert 0.1 < np.sqrt(np.mean(np.square(z))) < 2.5


@pytest.mark.thorough
def test_noise_and_fluctuation_are_split():
    found = fit_response(*calibration("h100 slow", 3, relative=0.05, tau=0.08))
    assert found.wander_relative == pytest.approx(0.05, rel=0.25)
    assert found.noise_tau_s == pytest.approx(0.08, rel=0.5)
    assert found.noise_w < 2


def broken(kind, seed):
    """Readings of a gapless sensor spoilt in one way."""
    rng = np.random.default_rng(seed)
    edges = pulse_train(rng, 40, 0.02)
    load = Load(rng, 40, edges, np.where(np.arange(len(edges) + 1) % 2, 420.0, 120.0))
    sensor = Sensor(0.02, 0.025)
    stamps, power = sensor.read(rng, load)
    if kind == "echo":
        power = 0.6 * power + 0.4 * np.append(power[:3], power[:-3])
    elif kind == "drifting":
        power = power * (1 + 0.08 * np.sin(2 * np.pi * (stamps - stamps[0]) / 25e9))
    elif kind == "stale":
        fresh = np.maximum.accumulate(np.where(rng.random(len(power)) < 0.15, 0, np.arange(len(power))))
        power = power[fresh]
    elif kind == "dropping":
        keep = rng.random(len(power)) > 0.12
        stamps, power = stamps[keep], power[keep]
    return fit_response(stamps, power, ns(edges))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("echo", "misfit_at_edges"),
        ("drifting", "drifting"),
        ("stale", "misfit_at_edges"),
        ("dropping", "drops_samples"),
    ],
)
def test_a_sensor_that_fits_no_model_is_flagged(kind, flag):
    flags = broken(kind, 5).flags
    assert flags[0] == "unmodelled"
    assert flag in flags


@pytest.mark.thorough
def test_the_same_sensor_unspoilt_is_not_flagged():
    assert broken("nothing", 5).flags == ()


@pytest.mark.thorough
def test_calibration_refuses_what_it_cannot_use():
    stamps, power, edges = calibration("v100", 1, duration=8)
    with pytest.raises(NotPossibleError, match="do not follow the load"):
        fit_response(stamps, np.random.default_rng(0).normal(120, 2, len(power)), edges)
    with pytest.raises(NotPossibleError, match="too few"):
        fit_response(stamps, power, edges[:4])
    with pytest.raises(NotPossibleError, match="within the record"):
        fit_response(stamps, power, edges + 10**12)
    with pytest.raises(BadInputError, match="need"):
        fit_response(stamps, power, edges, [0, 1])
    with pytest.raises(BadInputError, match="finite"):
        fit_response(stamps, np.where(np.arange(len(power)) == 3, np.nan, power), edges)
    with pytest.raises(BadInputError, match="increase"):
        fit_response(stamps[::-1], power, edges)
    with pytest.raises(BadInputError, match="do not go with"):
        fit_response(stamps, power[1:], edges)


def test_a_load_without_levels_goes_up_and_down(monkeypatch):
    seen = []

    def check(time, power, edges, level):
        seen.append(level.tolist())
        raise NotPossibleError("that is all")

    monkeypatch.setattr(calibrating, "_check", check)
    with pytest.raises(NotPossibleError):
        fit_response(np.arange(9), np.ones(9), np.arange(6))
    assert seen == [[0, 1, 0, 1, 0, 1, 0]]


@pytest.mark.parametrize(("readings", "edges"), [(40, 7), (39, 8)])
def test_forty_readings_and_eight_edges_are_needed(readings, edges):
    def check(readings, edges):
        calibrating._check(10 * np.arange(readings), np.ones(readings), 1 + 10 * np.arange(edges), np.arange(edges + 1))

    check(40, 8)
    with pytest.raises(NotPossibleError, match=f"{edges} edges and {readings} readings are too few"):
        check(readings, edges)


@pytest.mark.parametrize(("tau_s", "alike"), [(0.001, 2.0), (0.05, 0.5 + 5.0), (1.0, 0.5 + 6.0)])
def test_a_gain_may_move_by_chance_as_readings_that_are_alike_let_it(monkeypatch, tau_s, alike):
    """A window of half a period and two correlation times, of which six periods count: two readings at least."""
    edges = np.cumsum(np.random.default_rng(0).uniform(0.05, 0.4, 30))
    level = np.arange(31) % 2
    time = np.arange(0.3, edges[-1], 0.02)
    made = Fitter(time, 100.0 + 300 * level[np.searchsorted(edges, time)], edges, level, 0.02)
    made.shape = np.array([0.0, 0.5, 0.1, 0.0, 1.0])
    asked = []

    def swings(error, model, alike):
        asked.append(alike)
        return 0.0, 0.1

    monkeypatch.setattr(calibrating, "gain_swings", swings)
    monkeypatch.setattr(calibrating, "fluctuation", lambda *_: (Fluctuation(0.5, 0.0, 0.01, tau_s), 0.0))
    calibrating._result(made, Grid(0.02, 1e-6, time, np.arange(len(time)), np.zeros(len(time))), 0)
    assert asked == pytest.approx([alike])
