"""The gain that sensors state, and that of sensors which state none."""

import pytest

from jouletrace.run import Estimate
from jouletrace.sensor import gain_of
from jouletrace.sensor.gain import gain_between, shown
from jouletrace.stats.contrast import with_gain
from make_runs import GPU, gpu, power_channel, profile_run


def with_gains(*gains, **device):
    """A Run with a GPU for each gain in %."""
    run = profile_run()
    run.devices = [gpu(id=f"{GPU}-{n}", **device) for n in range(len(gains))]
    run.channels = [power_channel(one.id, gain_pct=gain) for one, gain in zip(run.devices, gains, strict=True)]
    return run


def test_the_largest_that_sensors_state_counts():
    assert gain_of(with_gains(2.0, 3.0)) == gain_of(with_gains(2.0, 3.0), 0.0) == 0.03


def test_a_sensor_that_states_none_errs_as_those_of_gpus_do_but_states_nothing():
    run = with_gains(2.0, None)
    assert (gain_of(run), gain_of(run, 0.0)) == (0.05, 0.02)
    assert gain_of(with_gains(None), 0.0) == 0
    assert gain_of(with_gains(None, simulated=True)) == 0


def test_without_a_device_there_is_no_gain():
    run = profile_run()
    run.devices = []
    assert gain_of(run) == gain_of(run, 0.0) == 0


def test_the_interval_of_a_change_ends_where_the_gains_of_both_sensors_may_put_it():
    """From 0.9 to 1.2 times as much: 1.04 times less than the least and 1.04 times the most."""
    found = with_gain(Estimate(0.05, -0.1, 0.2, 9), 0.04)
    assert (found.value, found.n) == (0.05, 9)
    assert (found.low, found.high) == pytest.approx((0.9 / 1.04 - 1, 1.2 * 1.04 - 1))
    assert with_gain(Estimate(-0.9, -1.5, 0.2, 9), 0.04).low == pytest.approx(-0.5 * 1.04 - 1)  # of less than nothing


def test_gains_of_two_sensors_add_up_in_quadrature_and_of_more_the_extremes_do():
    assert gain_between(0.03) == 0.03
    assert gain_between(0.03, 0.04) == pytest.approx(0.05)
    assert gain_between(0.03, 0.01, 0.04) == pytest.approx(0.07)


def test_a_change_is_one_if_its_interval_holds_no_zero():
    for low, high, one in ((-0.1, 0.1, False), (0.0, 0.1, False), (-0.1, 0.0, False), (0.01, 0.1, True)):
        assert shown(Estimate((low + high) / 2, low, high, 9)) == one
    assert shown(Estimate(0.1))
