"""The table of power sensors: which entry is that of a power field of a GPU."""

import pytest

from jouletrace.run import ChannelInfo
from jouletrace.sensor.kinds import AVERAGE, INSTANT, KINDS, RECORD, USAGE, PowerField, kind_of, sensor_behind


def test_a_field_with_capabilities_alone_is_not_that_of_a_gpu_whose_capability_is_unknown():
    field = PowerField((USAGE,), capabilities=((98, 0), (99, 0)))
    assert field.of("any", (98, 5))
    assert not field.of("any", (9, 0))
    assert not field.of("any", None)
    assert not field.of("", None)


def test_a_field_without_capabilities_and_names_is_that_of_any_gpu():
    assert PowerField((USAGE,)).of("any", (9, 0))
    assert PowerField((USAGE,)).of("", None)


def covers(earlier: PowerField, later: PowerField) -> bool:
    """Whether all GPUs of ``later`` are also of ``earlier``, which is asked first."""
    if earlier.capabilities is None or later.capabilities is None:
        return not earlier.boards and earlier.capabilities is None
    (low, high), (first, last) = earlier.capabilities, later.capabilities
    return low <= first and last <= high


@pytest.mark.parametrize("name", [RECORD, USAGE, AVERAGE, INSTANT])
def test_no_entry_stands_behind_one_that_covers_its_gpus(name):
    fields = [one for kind in KINDS.values() for one in kind.fields if name in one.names]
    for k, later in enumerate(fields):
        assert not any(covers(earlier, later) for earlier in fields[:k]), f"{later} is never reached: put it first"
    assert fields[-1].of("", None), "the last is that of any GPU"


def test_a_field_without_a_window_has_that_of_its_response_unless_the_longest_possible_is_stated():
    found = {name: sensor_behind(name)[1] for name in (AVERAGE, INSTANT, USAGE)}
    assert [(one.window_s, one.period_s) for one in found.values()] == [(1.0, 0.1), (None, 0.1), (None, 0.1)]
    assert found[USAGE].most_s == 1.0


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
