"""The gain that sensors state, and that of sensors which state none."""

from jouletrace.sensor.gain import gain_of, stated_gain
from make_runs import GPU, gpu, power_channel, profile_run


def with_gains(*gains, **device):
    """A Run with a GPU for each gain in %."""
    run = profile_run()
    run.devices = [gpu(id=f"{GPU}-{n}", **device) for n in range(len(gains))]
    run.channels = [power_channel(one.id, gain_pct=gain) for one, gain in zip(run.devices, gains, strict=True)]
    return run


def test_the_largest_that_sensors_state_counts():
    assert gain_of(with_gains(2.0, 3.0)) == stated_gain(with_gains(2.0, 3.0)) == 0.03


def test_a_sensor_that_states_none_errs_as_those_of_gpus_do_but_states_nothing():
    run = with_gains(2.0, None)
    assert (gain_of(run), stated_gain(run)) == (0.05, 0.02)
    assert stated_gain(with_gains(None)) == 0
    assert gain_of(with_gains(None, simulated=True)) == 0


def test_without_a_device_there_is_no_gain():
    run = profile_run()
    run.devices = []
    assert gain_of(run) == stated_gain(run) == 0
