"""Which readings contradict the response of the sensor: those at large edges, and not every misfit."""

from dataclasses import replace

import numpy as np
import pytest

from energy_signals import SENSORS, Load, bursts, calibrated, ns, wander
from jouletrace.analysis.windows import fill
from jouletrace.sensor.kinds import KINDS
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.windows.energy import window_energy
from records import channel, make_run, phases, readings, windows


def doubted(name, seed, response, marks=False):
    """Which of four bursts of half a second, whose load overshoots, are flagged; their ends are known, or ``marks``."""
    stamps, power, start, end, _ = bursts(name, seed, 0.5, 4, overshoot=0.15)
    edges = None if marks else ns(np.concatenate([start, end]))
    found = window_energy(clean(stamps, power), response, ns(start), ns(end), edges_ns=edges)
    return ["unmodelled" in flags for flags in found.flags]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["h100", "h100 slow", "tailed"])
def test_a_calibration_is_doubted_once_the_sensor_is_20_percent_wider_or_narrower(name):
    """Of five recordings of eight edges none is near the bound: likelihoods differ by exp(50) and more."""
    for seed in range(5):
        own = calibrated(name, seed % 3)
        assert doubted(name, seed, own) == [False] * 4
        for factor in (1.2, 1 / 1.2):
            widths = {key: factor * getattr(own, key) for key in ("window_s", "rise_s", "tail_s")}
            assert doubted(name, seed, replace(own, **widths)) == [True] * 4


@pytest.mark.parametrize("marks", [False, True])
def test_an_uncalibrated_response_is_not_doubted_for_what_its_uncertainty_contains(marks):
    """Of a window of 10 ms a delay that is 4 ms off, where ± 5 ms are stated."""
    stated = replace(KINDS["volta"].response, lag_s=0.001)
    for seed in range(5):
        assert doubted("v100", seed, stated, marks) == [False] * 4
    sure = replace(stated, covariance=((0.0,) * 3,) * 3)
    assert any(doubted("v100", 2, sure, marks))
    assert sum(doubted("v100", 2, replace(stated, lag_s=0.1), marks)) >= 3


def test_how_a_load_dips_between_its_windows_says_nothing_of_the_sensor():
    """Between two windows the power falls to half of its level for 7 ms: readings fit no edge there."""
    rng = np.random.default_rng(5)
    load = Load(rng, 9.0, [2.0, 4.03, 4.037, 6.0], [120.0, 400.0, 200.0, 400.0, 120.0], relative=0.002)
    stamps, power = SENSORS["h100"].read(rng, load)
    ends = np.array([2.0, 4.0, 6.0])
    found = window_energy(clean(stamps, power), calibrated("h100"), ns(ends[:-1]), ns(ends[1:]), edges_ns=ns(ends))
    assert ["unmodelled" in flags for flags in found.flags] == [False, False]


def ramped(*ramp):
    """Flags of windows of a load that fluctuates by 5 %, after three seconds at rest and half a second of it."""
    slow = 1 + 0.05 * wander(np.random.default_rng(2), 700, 0.06, 0.01)

    def watts(t):
        return np.where(t < 3.0, 128.0, 240.0 * slow[np.clip((t / 0.01).astype(int), 0, 699)])

    rows = windows([(3.5 + 0.5 * i, 4.0 + 0.5 * i) for i in range(6)])
    run = make_run(readings(watts, 7, noise=0.3), spans=phases(*ramp), window_rows=rows, channels=[channel()])
    return ["unmodelled" in flags for flags in fill(run).flags]


def test_the_ramp_before_windows_is_not_taken_for_idle_time():
    """As part of the rest before it the ramp would fluctuate by a watt, and its readings contradict every response."""
    assert any(ramped())
    assert ramped(("energy", 3.0, 6.5)) == [False] * 6
