"""Figures as printed: a fitting unit, digits that the interval supports, nothing prettier than true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jouletrace.run import Estimate
from jouletrace.words import NBSP, cell, figure, unit_for
from jouletrace.words.scale import fixed, number, quantity, split


def plain(text):
    return text.replace(NBSP, " ")


def shown(value, half=None, unit="J"):
    estimate = Estimate(value) if half is None else Estimate(value, value - half, value + half, 8)
    return plain(figure(estimate, unit))


@pytest.mark.parametrize(
    ("value", "half", "unit", "text"),
    [
        (4.652, 0.021, "J", "4.652 ± 0.021 J"),
        (0.2101, 0.0012, "J", "210.1 ± 1.2 mJ"),
        (0.0000042, 0.0000001, "J", "4.20 ± 0.10 µJ"),
        (14160, 12, "J", "14.160 ± 0.012 kJ"),
        (0.006712, 0.000004, "s", "6.7120 ± 0.0040 ms"),
        (0.0000132, 0.0000014, "s", "13.2 ± 1.4 µs"),
        (2e-9, 1e-9, "s", "2.0 ± 1.0 ns"),
        (90, 3, "s", "90.0 ± 3.0 s"),
        (693.1, 0.9, "W", "693.10 ± 0.90 W"),
        (0.344, 0.0035, "%", "34.40 ± 0.35 %"),
        (1.0002, 0.003, "1", "1.0002 ± 0.0030"),
        (0.42, 0.011, "pct", "0.420 ± 0.011 %"),
        (9535.16, 5, "samples/s", "9535.2 ± 5.0 samples/s"),
        (-0.0012, 0.003, "J", "−1.2 ± 3.0 mJ"),
        (0.0, 0.003, "J", "0.0000 ± 0.0030 J"),
        (123456.0, 7000.0, "W", "123456 ± 7000 W"),
    ],
)
def test_a_figure_has_a_fitting_unit_and_two_digits_of_its_half_width(value, half, unit, text):
    assert shown(value, half, unit) == text


def test_a_figure_without_an_interval_has_four_digits_and_no_sign_of_one():
    assert shown(4.65249) == "4.652 J"
    assert shown(60.0, unit="s") == "60.00 s"


def test_an_exact_figure_shows_no_interval_of_zero_width():
    assert shown(60.0, 0.0, "s") == "60.00 s"
    assert shown(0.3, 0.3 * 2**-52, "s") == shown(0.3, 0.0, "s") == "300.0 ms"
    assert figure(Estimate(0.1 + 0.2, 0.3, 0.3, 9), "s") == f"300.0{NBSP}ms"
    assert "±" in shown(0.3, 0.3e-9, "s")


def test_a_missing_figure_is_a_dash():
    assert figure(Estimate.null("too_short"), "J") == "–"


def test_a_half_width_is_never_printed_smaller_than_it_is():
    assert shown(1.0, 0.01201) == "1.000 ± 0.013 J"
    assert shown(1.0, 1e-9) == "1.00000 ± 0.00001 J"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.0, 0.9, 1.5, "1.00 (0.90 to 1.50)"),
        (1.28, 0.71, 4.79, "1.3 (0.7 to 4.8)"),
        (0.014, 0.0, 0.144, "0.014 (0 to 0.144)"),
        (0.0, 0.0, 0.0203, "0 (0 to 0.021)"),
        (1.0, 0.31, 40.2, "1 (0 to 41)"),
        (0.41, -0.7512, 0.9501, "0.41 (−0.76 to 0.96)"),
        (-0.59, -0.9, 0.12, "−0.59 (−0.90 to 0.12)"),
        (1.0, 1.2, 1.6, "1.00 (1.20 to 1.60)"),
    ],
)
def test_an_interval_that_is_not_symmetric_is_given_by_its_ends_rounded_outwards(value, low, high, text):
    assert plain(cell(Estimate(value, low, high), unit_for([], "1"))) == text


def test_a_unit_stands_behind_the_ends_of_an_interval():
    assert plain(figure(Estimate(1.0, 0.9, 1.5), "J")) == "1.00 (0.90 to 1.50) J"


def test_a_value_and_its_interval_can_be_set_apart():
    unit = unit_for([], "1")
    assert split(cell(Estimate(1.0, 0.9, 1.1), unit)) == ("1.00", f"±{NBSP}0.10")
    assert plain(split(cell(Estimate(1.28, 0.71, 4.79), unit))[1]) == "0.7 to 4.8"
    assert split(cell(Estimate(2.5), unit)) == ("2.500", "")


def test_one_unit_serves_a_column():
    unit = unit_for([0.0000134, 0.00105, 0.0023, None, 0.0], "s")
    assert unit.name == "ms"
    assert cell(Estimate(0.0000134), unit) == "0.01340"
    assert unit_for([], "s").name == "s"
    assert unit_for([None], "1").name == ""


def test_a_quantity_drops_zeros_that_say_nothing():
    assert plain(quantity(0.02, "s")) == "20 ms"
    assert plain(quantity(100, "W")) == "100 W"
    assert plain(quantity(0, "s")) == "0 s"
    assert plain(quantity(1.0, "1")) == "1"
    assert quantity(None, "s") == "–"


def test_numbers_keep_all_digits_before_the_point():
    assert number(123456.7) == "123457"
    assert number(0.00012345) == "0.0001234"
    assert fixed(-0.0001, 2) == "0.00"
    assert fixed(-1.5, 1) == "−1.5"


_sizes = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)


@given(value=_sizes, down=st.floats(0, 1e6), up=st.floats(0, 1e6), unit=st.sampled_from(["J", "s", "W", "%", "1"]))
def test_any_figure_prints_on_one_line(value, down, up, unit):
    text = figure(Estimate(value, value - down, value + up, 8), unit)
    assert "\n" not in text
    assert "nan" not in text
    assert "e" not in text


@given(value=st.floats(1e-6, 1e6), relative=st.floats(1e-4, 1.0))
def test_a_printed_figure_reads_back_within_its_interval(value, relative):
    estimate = Estimate(value, value * (1 - relative), value * (1 + relative), 8)
    printed = cell(estimate, unit_for([value], "W"))
    number_part, half_part = (float(part) for part in plain(printed).split(" ± "))
    assert math.isclose(number_part, value, abs_tol=value * relative / 2)
    assert half_part >= value * relative * (1 - 1e-6)
    assert half_part <= value * relative * 1.11 + 2e-6 * value


def test_the_rounding_of_computers_is_no_interval_and_no_figure():
    assert shown(3e-14, unit="pct") == "0 %", "not 0.000000000000 %"
    assert shown(123.456, 123.456e-11) == "123.5 J", "a sum over a long recording in double precision"
    assert number(-2e-14) == "0"
