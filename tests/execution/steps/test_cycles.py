"""The clock at which a GPU really ran, by the cycle counters of its SMs."""

import numpy as np
import pytest

from jouletrace.execution.steps import Cycles


def reading(sm, count, time_ns):
    return Cycles(np.array(sm), np.array(count), np.array(time_ns))


def test_cycles_over_time_are_the_mean_clock_over_the_sms():
    before = reading([0, 1], [1_000, 5_000], [0, 10])
    after = reading([0, 1], [1_000 + 1_980_000, 5_000 + 1_960_000], [1_000_000, 1_000_010])
    assert after.mean_mhz(before) == pytest.approx(1970)


def test_sms_that_answered_only_once_are_left_out():
    before = reading([0, 2], [0, 0], [0, 0])
    after = reading([0, 1], [1_500, 9_999_999], [1_000, 1_000])
    assert after.mean_mhz(before) == pytest.approx(1500)


def test_without_an_sm_that_answered_twice_or_time_between_there_is_no_clock():
    before = reading([0], [0], [100])
    assert reading([1], [5], [200]).mean_mhz(before) is None
    assert reading([0], [5], [100]).mean_mhz(before) is None


def test_a_counter_that_went_back_gives_no_clock():
    assert reading([0, 1], [10, 2_000], [2_000, 2_000]).mean_mhz(reading([0, 1], [999, 0], [0, 0])) is None
