"""Levels of a record: quiet, and against temperature."""

import numpy as np
import pytest
from scipy import stats

from covering import fewest, most
from energy_signals import wander
from jouletrace.errors import BadInputError
from jouletrace.sensor.baseline import quiet_level, temperature_slope
from jouletrace.stats.interval import effective_n


def test_a_quiet_level_covers_in_spite_of_correlation():
    hits = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        found = quiet_level(125 + 2 * wander(rng, 250, 3.0, 1.0))
        hits += found.low <= 125 <= found.high
    assert fewest(1000) <= hits <= most(1000)


def test_the_slope_with_temperature_is_estimated():
    rng = np.random.default_rng(1)
    temperature = np.round(np.linspace(45, 55, 400))
    found = temperature_slope(temperature, 120 + 0.6 * (temperature - 50) + rng.normal(0, 0.5, 400))
    assert found.low < 0.6 < found.high
    assert found.half_width < 0.1


def test_a_temperature_that_does_not_vary_gives_no_slope():
    assert temperature_slope(np.full(50, 45.0), np.full(50, 120.0)).reason == "temperature_did_not_vary"
    assert temperature_slope([45.0, 50.0], [1.0, 2.0]).reason == "too_few_values"


def test_temperatures_without_powers_are_refused():
    with pytest.raises(BadInputError, match="do not go with"):
        temperature_slope([1.0], [1.0, 2.0])


def test_a_slope_is_no_surer_for_readings_that_follow_one_another():
    """A GPU that warms by 10 K and whose power wanders: the interval of the slope holds it as often as it says."""
    temperature = np.round(np.linspace(45, 55, 300))
    hits = 0
    for seed in range(300):
        power = 120 + 0.6 * (temperature - 50) + wander(np.random.default_rng(seed), 300, 4.0, 1.0)
        found = temperature_slope(temperature, power)
        hits += found.low <= 0.6 <= found.high
    assert hits >= fewest(300)


SIGN = (-1.0) ** np.arange(40)


@pytest.mark.parametrize(
    ("temperature", "off"),
    [
        (np.repeat([45.0, 47.0], 4), 0.3 * SIGN[:8]),  # eight readings that vary by 2 K are enough
        (50 + 3 * SIGN, SIGN * np.random.default_rng(0).uniform(0.2, 1.0, 40)),  # the score has one sign
        (np.linspace(40, 60, 40), np.cos(np.arange(40) / 15)),  # all follow one another: one degree of freedom
    ],
    ids=["few", "score", "slow"],
)
def test_a_slope_has_the_textbooks_error_with_the_freedom_that_residuals_and_scores_are_worth(temperature, off):
    power = 120 + 0.6 * temperature + off
    line = stats.linregress(temperature, power)
    residual = power - line.intercept - line.slope * temperature
    score = (temperature - temperature.mean()) * residual
    free = max(min(effective_n(residual), effective_n(score)) - 2, 1.0)
    half = stats.t.ppf(0.975, free) * line.stderr * np.sqrt((len(power) - 2) / free)
    found = temperature_slope(temperature, power)
    assert found.value == pytest.approx(line.slope)
    assert found.half_width == pytest.approx(half)
    assert found.n == len(power)
