"""The response, recovered from a commanded load."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from energy_signals import SENSORS, Load, Sensor, calibrated, calibration, ns, pulse_train
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.sensor import KINDS, Grid
from jouletrace.sensor.calibration import Fitter, StepResponse, fit_response, load_features
from jouletrace.sensor.calibration import fit as calibrating
from jouletrace.sensor.calibration.fit import _likeliest
from jouletrace.sensor.calibration.fluctuation import Fluctuation, Kernel


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_response_survives_json(name):
    response = KINDS[name].response
    assert StepResponse.from_dict(json.loads(json.dumps(response.to_dict()))) == response


def test_features_read_through_a_sensor_equal_its_step_response():
    features = load_features(np.array([1.0003]), np.array([0, 1]), -1.0, 3.0, 0.02)
    at = np.linspace(0.9, 1.5, 301)
    for shape in ((0.025, 0.01), (0.01, 0.0, 0.004), (0.3, 0.05), (0.01, 0.002, 0.0, 0.1, 0.03)):
        response = StepResponse(0.02, *shape)
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
    assert Kernel(StepResponse(0.02, rise_s=rise)).correlation(delay, tau) == pytest.approx(theory, abs=0.01)


def test_a_response_of_an_older_run_has_no_tail():
    older = {"period_s": 0.02, "window_s": 0.025, "covariance": [[1e-8, 0, 0], [0, 1e-8, 0], [0, 0, 0]]}
    response = StepResponse.from_dict(older)
    assert (response.tail_share, response.tail_s) == (0.0, 0.0)


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


@pytest.mark.parametrize(("late_ms", "least", "grid"), [(0.3, 0, 0), (0.3, 1, 1), (0.3, 2, 2), (0.1, 0, 0)])
def test_times_of_readings_are_those_with_which_the_fit_errs_least(monkeypatch, late_ms, least, grid):
    """As stamped, or on the grid or its halves where stamps scatter about it by a hundredth of a period."""
    made = []

    class Fits:
        shape = np.zeros(3)

        def __init__(self, time, power, *_):
            self.time, self.power, self.done = time, power, []
            made.append(self)

        def search(self):
            self.shape = np.ones(3)

        def refine(self, shape):
            self.done.append(shape.tolist())

        def model(self):
            return self.power - (0.1 if made.index(self) == least else 0.2)

        def add_tail(self):
            self.done.append("tail")

    monkeypatch.setattr(calibrating, "Fitter", Fits)
    monkeypatch.setattr(calibrating, "_result", lambda fit, found, chosen: SimpleNamespace(explained=None, at=chosen))
    place = np.arange(400)
    late = np.where(place % 4 == 0, late_ms, 0.0) + np.where(place == 99, 12.0, 0.0)
    late[99] = 12.0 if late_ms > 0.2 else 0.0  # in the second half of its period
    stamps = ns(np.zeros(1)) + ((20 * place + late) * 1e6).astype(np.int64)
    found = fit_response(stamps, 100.0 + place, stamps[5:50:5] + 1)
    assert found.at == grid
    assert [one.done for one in made] == [[[1.0] * 3] + ["tail"] * (k == least) for k in range(len(made))]
    taken = [round(1e3 * float(one.time[99] - one.time[98]), 3) for one in made]
    assert taken == ([32.0, 20.0, 30.0] if late_ms > 0.2 else [20.0])


@pytest.mark.parametrize(("explained", "refused"), [(None, False), (0.21, False), (0.19, True)])
def test_a_fit_that_explains_less_than_a_fifth_of_what_is_held_out_is_refused(monkeypatch, explained, refused):
    monkeypatch.setattr(calibrating, "Fitter", MagicMock())
    monkeypatch.setattr(calibrating, "_likeliest", lambda _: 0)
    monkeypatch.setattr(calibrating, "_result", lambda *_: SimpleNamespace(explained=explained))
    stamps = ns(0.02 * np.arange(60))
    with pytest.raises(NotPossibleError, match="do not follow the load") if refused else nullcontext():
        fit_response(stamps, np.arange(60.0), stamps[5:45:5] + 1)


@pytest.mark.parametrize("outliers", [4, 12])
def test_the_likeliest_fit_is_that_of_a_cauchy_likelihood_and_not_of_squares(outliers):
    """The sum of log(1 + (error / scale)²), with the smallest median size as the scale: here 0.5 W."""
    one, other = np.full(99, 1.0), np.where(np.arange(99) < 99 - outliers, 0.5, -40.0)
    assert np.sum(other**2) > np.sum(one**2)
    costs = [99 * np.log(1 + 2.0**2), (99 - outliers) * np.log(2.0) + outliers * np.log(1 + 80.0**2)]
    assert np.argmin(costs) == (1 if outliers == 4 else 0)
    assert _likeliest([one, other]) == np.argmin(costs)


@pytest.mark.parametrize(("first", "last", "enough"), [(5, 385, True), (0, 385, False), (5, 390, False)])
def test_eight_edges_are_needed_between_the_first_and_the_last_reading(first, last, enough):
    edges = np.array([first, 20, 30, 40, 50, 60, 70, last])
    with nullcontext() if enough else pytest.raises(NotPossibleError, match="only 7 edges"):
        calibrating._check(10 * np.arange(40), np.ones(40), edges, np.arange(9))


def test_stamps_and_edges_that_follow_one_another_by_a_nanosecond_increase():
    calibrating._check(np.arange(40), np.ones(40), np.arange(1, 9), np.arange(9))
    for time, edges in ((np.append(0, np.arange(39)), np.arange(1, 9)), (np.arange(40), np.append(1, np.arange(1, 8)))):
        with pytest.raises(BadInputError, match="must increase"):
            calibrating._check(time, np.ones(40), edges, np.arange(9))


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
