"""Values that an Estimate may have, and how it reads what other programs wrote."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jouletrace.run import Estimate


def test_a_value_and_a_reason_exclude_each_other():
    with pytest.raises(ValueError, match="either"):
        Estimate(None)
    with pytest.raises(ValueError, match="either"):
        Estimate(1.0, reason="too_short")


def test_half_an_interval_is_refused():
    with pytest.raises(ValueError, match="two ends"):
        Estimate(1.0, low=0.5)


def test_an_interval_upside_down_is_refused():
    with pytest.raises(ValueError, match="upside down"):
        Estimate(1.0, 2.0, 0.5)


def test_a_negative_factor_turns_the_interval_round():
    assert Estimate(2.0, 1.0, 4.0, 5, "windows").scaled(-2) == Estimate(-4.0, -8.0, -2.0, 5, "windows")


def test_an_absent_figure_stays_absent_when_scaled():
    absent = Estimate.null("too_short")
    assert absent.scaled(1e3) is absent
    assert absent.half_width is None


def test_a_format_of_numbers_is_that_of_the_value_and_its_half_width():
    energy = Estimate(86.125, 86.0, 86.25, unit="J")
    assert (f"{energy:.2f}", f"{Estimate(2.0):.1f}", f"{energy}") == ("86.12 ± 0.12 J", "2.0", str(energy))
    assert float(energy) == 86.125
    absent = Estimate.null("too_short")
    assert f"{absent:.1f}" == str(absent)
    with pytest.raises(ValueError, match=r"there is no value: .*too_short"):
        float(absent)


def test_to_dict_and_back_is_the_same():
    for estimate in (Estimate(1.5, 1.0, 2.5, 8, "windows"), Estimate(2.0), Estimate.null("no_power_sensor", "windows")):
        assert Estimate.from_dict(estimate.to_dict()) == estimate


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_becomes_null_with_a_reason(value):
    assert Estimate.from_dict({"value": value, "n": 3}) == Estimate(None, n=3, reason="not_finite")


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (None, 1.0), (-math.inf, 1.0), (math.nan, math.nan)])
def test_an_interval_that_is_none_is_left_out(low, high):
    assert Estimate.from_dict({"value": 1.5, "low": low, "high": high}) == Estimate(1.5)


_numbers = st.none() | st.floats()


@pytest.mark.thorough
@given(value=_numbers, low=_numbers, high=_numbers, n=st.none() | st.integers(0, 9), reason=st.none() | st.text())
def test_any_row_reads_as_some_estimate(value, low, high, n, reason):
    estimate = Estimate.from_dict({"value": value, "low": low, "high": high, "n": n, "reason": reason})
    assert (estimate.value is None) == (estimate.reason is not None)
    if value is not None and math.isfinite(value):
        assert estimate.value == value
