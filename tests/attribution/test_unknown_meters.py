"""Bursts that a range marks, read by a meter of which nothing is known but how often it was read."""

import numpy as np
import pytest

from covering import fewest
from jouletrace.attribution import span_energies
from jouletrace.formats.importers.power_sensor import METER, polled_response
from jouletrace.sensor import calibrated, clean

SPACING_S = 0.02


def measured(seed, lag, window=0.0, rise=0.0, readings=6.0, watts=(400.0,)):
    """Energies of three bursts by a meter whose lag, window and memory are in spacings, and the true ones."""
    rng = np.random.default_rng(seed)
    length_s, rest_s = readings * SPACING_S, 0.5
    begin = 1.0 + (length_s + rest_s) * np.arange(3) + rng.uniform(0, SPACING_S, 3)
    spans = np.stack([begin, begin + length_s], axis=1)
    fine_s, step_s = np.arange(0.0, spans[-1, 1] + 1.0, 1e-4), 1e-4
    since = fine_s - begin[np.maximum(np.searchsorted(begin, fine_s, side="right") - 1, 0)]
    place = np.floor(since / length_s * len(watts)).astype(int)
    power = np.where((since >= 0) & (since < length_s), np.array(watts)[np.clip(place, 0, len(watts) - 1)], 0.0) + 100.0
    upto = np.append(0.0, np.cumsum(power) * step_s)
    at_s = np.arange(0.1, fine_s[-1], SPACING_S) + rng.uniform(0, SPACING_S)
    if rise:
        keep = np.exp(-step_s / (rise * SPACING_S))
        state = np.array([level := 100.0] + [level := watt + (level - watt) * keep for watt in power.tolist()])
        value = np.interp(at_s, step_s * np.arange(len(state)), state)
    else:
        width_s = max(window * SPACING_S, step_s)
        value = np.diff(np.interp([at_s - width_s, at_s], step_s * np.arange(len(upto)), upto), axis=0)[0] / width_s
    value += 0.3 * rng.standard_normal(len(value))
    record = clean(np.round(1e9 * (at_s + lag * SPACING_S)).astype(np.int64), value, SPACING_S)
    response = polled_response(METER, SPACING_S, 1e-6, 0.01, float(value.mean()))
    found = span_energies(record, calibrated(response), *np.round(1e9 * spans).astype(np.int64).T)
    return found, np.full(3, length_s * (100.0 + np.mean(watts)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "meter", [pytest.param({"window": 1.0}, marks=pytest.mark.slow), {"window": 0.2}, {"rise": 0.4}], ids=str
)
def test_bursts_hold_whatever_the_meters_lag(meter):
    held = []
    for seed, lag in enumerate(np.linspace(0.0, 0.95, 6)):
        found, truth = measured(seed, lag, **meter, watts=(300.0, 500.0) if seed % 2 else (400.0,))
        held += ((found.low_j <= truth) & (truth <= found.high_j)).tolist()
    assert sum(held) >= fewest(len(held))


@pytest.mark.thorough
def test_a_lag_shows_where_bursts_begin_and_end():
    """Bursts of a constant power, read 16 of 20 ms late, are known far better than to their two edges."""
    found, truth = measured(1, 0.8, window=0.5)
    half = (found.high_j - found.low_j) / 2
    assert np.all(np.abs(found.energy_j - truth) < 0.02 * truth)
    assert np.all(half < 0.06 * truth)
