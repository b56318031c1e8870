"""The table of power sensors: which entry is that of a power field of a GPU."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from jouletrace.attribution import span_energies
from jouletrace.run import ChannelInfo, Readings
from jouletrace.sensor import KINDS, readings_of
from jouletrace.sensor.calibration import StepResponse
from jouletrace.sensor.kinds import AVERAGE, INSTANT, RECORD, USAGE, PowerField, kind_of, models, sensor_behind
from jouletrace.sensor.models import Means


def test_a_field_with_capabilities_alone_is_not_that_of_a_gpu_whose_capability_is_unknown():
    field = PowerField((USAGE,), capabilities=((98, 0), (99, 0)))
    assert field.matches("any", (98, 5))
    assert not field.matches("any", (9, 0))
    assert not field.matches("any", None)
    assert not field.matches("", None)


def test_a_field_without_capabilities_and_names_is_that_of_any_gpu():
    assert PowerField((USAGE,)).matches("any", (9, 0))
    assert PowerField((USAGE,)).matches("", None)


def covers(earlier: PowerField, later: PowerField) -> bool:
    """True if all GPUs of ``later`` are also of ``earlier``, which is asked first."""
    if earlier.capabilities is None or later.capabilities is None:
        return not earlier.boards and earlier.capabilities is None
    (low, high), (first, last) = earlier.capabilities, later.capabilities
    return low <= first and last <= high


@pytest.mark.parametrize("name", [RECORD, USAGE, AVERAGE, INSTANT])
def test_no_entry_stands_behind_one_that_covers_its_gpus(name):
    fields = [one for kind in KINDS.values() for one in kind.fields if name in one.names]
    for k, later in enumerate(fields):
        assert not any(covers(earlier, later) for earlier in fields[:k]), f"{later} is never reached: put it first"
    assert fields[-1].matches("", None), "the last is that of any GPU"


def test_a_field_without_a_window_has_that_of_its_response_unless_the_longest_possible_is_stated():
    found = {name: sensor_behind(name)[1] for name in (AVERAGE, INSTANT, USAGE)}
    assert [(one.window_s, one.period_s) for one in found.values()] == [(1.0, 0.1), (None, 0.1), (None, 0.1)]
    assert (found[USAGE].most_s, found[INSTANT].most_s) == (1.0, 0.1)


def test_a_channel_that_states_no_sensor_is_taken_for_one_of_its_period():
    def taken(**stated):
        return kind_of(ChannelInfo("GPU-1", "power_w", "W", "polled", **stated))

    assert taken(period_s=0.02) is KINDS["volta"]
    assert taken(period_s=0.05) is KINDS["ampere_datacenter"]
    assert taken(period_s=0.1) is KINDS["ampere_datacenter"]
    assert taken(period_s=0.02, gapless=True) is KINDS["hopper"]
    assert taken(period_s=0.1, window_s=1.0) is KINDS["average_1s"]
    assert taken(period_s=0.1, window_s=0.4) is KINDS["ampere_datacenter"]
    assert taken(period_s=0.001, window_s=0.001, gapless=True, delay_s=0.0005) is KINDS["counter"]
    assert taken() is KINDS["volta"]


@pytest.mark.parametrize(
    ("capability", "kind", "window_s"),
    [
        *(((5, 9), "ampere_datacenter", None), ((6, 0), "volta", 0.01), ((7, 4), "volta", 0.01)),
        *(((7, 5), "ampere_datacenter", None), ((8, 0), "ampere_datacenter", 0.025)),
        *(((8, 1), "ampere_datacenter", None), ((8, 6), "average_1s", 1.0), ((98, 9), "average_1s", 1.0)),
        ((99, 0), "ampere_datacenter", None),
    ],
)
def test_usage_is_a_short_window_up_to_ga100_and_a_second_from_ga102_on(capability, kind, window_s):
    """Turing's window is unknown, as that of GPUs which are not described."""
    name, field = sensor_behind(USAGE, "any", capability)
    assert (name, field.window_s) == (kind, window_s)


def test_the_record_of_a_hopper_is_of_samples_whose_time_apart_is_known():
    """1222.5 Hz is the middle of 1191 and 1254 Hz."""
    for board, sampling_s in (
        ("NVIDIA H100 80GB HBM3", 1 / 1222.5),
        ("NVIDIA H200", 1 / 1222.5),
        ("NVIDIA B200", None),
    ):
        name, field = sensor_behind(RECORD, board, (9, 0))
        assert (name, field.window_s, field.period_s, field.sampling_s) == ("hopper", 0.025, 0.02, sampling_s)


def test_a_channel_without_a_period_is_taken_for_one_of_20_ms():
    def taken(**stated):
        return kind_of(ChannelInfo("GPU-1", "power_w", "W", "polled", **stated))

    assert taken(window_s=0.081) is KINDS["average_1s"]
    assert taken(window_s=0.08) is KINDS["volta"]
    assert taken(gapless=True) is KINDS["hopper"]
    assert taken(gapless=True, period_s=0.05) is KINDS["ampere_datacenter"]
    # a counter is its own period's mean, whose delay is known
    assert taken(period_s=0.001, window_s=0.002, gapless=True, delay_s=0.0005) is not KINDS["counter"]
    assert taken(period_s=0.001, window_s=0.001, gapless=True) is not KINDS["counter"]


def test_the_model_of_a_sensor_that_averages_has_its_window_and_delay_with_their_spread():
    """A window that is none is as wide as the exponential approach: twice its constant."""
    channel = ChannelInfo("GPU-1", "power_w", "W", "polled", sensor="ampere_datacenter")
    (found,) = models(channel, None)
    assert asdict(found) == pytest.approx(asdict(Means(0.025, delay_s=0.0, delay_spread_s=0.025, stretch_spread=0.2)))
    calibrated = StepResponse(0.1, rise_s=0.03, lag_s=0.004, covariance=((4e-6, 0, 0), (0, 9e-6, 0), (0, 0, 0)))
    channel.response = calibrated.to_dict()
    (found,) = models(channel, None)
    assert (found.window_s, found.delay_s) == (0.06, 0.004)
    assert (found.delay_spread_s, found.stretch_spread) == (pytest.approx(0.002), pytest.approx(0.05))


@pytest.mark.thorough
def test_a_calibration_without_noise_gives_energies():
    channel = ChannelInfo("GPU-1", "power_w", "W", "polled", sensor="ampere_datacenter")
    channel.response = StepResponse(0.1, window_s=0.1, noise_w=0.0).to_dict()
    record = Readings(np.arange(50) * 100_000_000, np.full(50, 200.0))
    found = span_energies(record, readings_of(channel), [1_000_000_000], [3_000_000_000])
    assert found.energy_j[0] == pytest.approx(400, rel=0.01)


@pytest.mark.thorough
def test_windows_between_reads_of_a_counter_have_lengths_of_their_own():
    """Reads at uneven times of a load of 300 W for 1 s, beside 100 W: each shows the mean since the one before."""
    channel = ChannelInfo("GPU-1", "power_w", "W", "polled", sensor="counter", gapless=True)
    read_s = np.cumsum(np.random.default_rng(1).uniform(0.05, 0.15, 60))
    drawn_j = 100 * read_s + 200 * np.clip(read_s - 2, 0, 1)
    record = Readings((1e9 * read_s[1:]).astype(np.int64), np.diff(drawn_j) / np.diff(read_s))
    response = replace(readings_of(channel), period_s=0.1)
    span = [[round(1e9 * (edge - response.delay_s))] for edge in (2, 3)]
    found = span_energies(record, response, *span)
    assert found.low_j[0] < 300 < found.high_j[0]
    assert found.energy_j[0] == pytest.approx(300, rel=0.01)
