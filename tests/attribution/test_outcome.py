"""Readings that no estimate can be made of are refused in one line."""

from functools import partial

import numpy as np
import pytest

from jouletrace.attribution import Kind, activity_of, attribute_program
from jouletrace.attribution.attribute import attribute
from jouletrace.sensor import HOPPER_SENSOR, Response

TIME_S, VALUE_W = 0.02 * np.arange(1, 50), np.full(49, 300.0)


def with_one(values, place, value):
    changed = values.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize(
    ("times_s", "values_w", "says"),
    [
        (with_one(TIME_S, 7, TIME_S[6]), VALUE_W, r"reading 7 at 0\.140000 s isn't later than the one before it: sort"),
        (with_one(TIME_S, 7, 0.1), VALUE_W, "reading 7 at 0.1"),
        (with_one(TIME_S, 3, np.nan), VALUE_W, "reading 3 has no finite time: leave it out"),
        (TIME_S, with_one(VALUE_W, 5, np.nan), "reading 5 has no finite value: leave it out"),
        (TIME_S, with_one(VALUE_W, 0, np.inf), "reading 0 has no finite value"),
        (TIME_S, VALUE_W[:-1], r"times of shape \(49,\) and values of shape \(48,\): give one value for each time"),
        (TIME_S[:, None], VALUE_W[:, None], r"shape \(49, 1\)"),
    ],
)
def test_readings_that_say_nothing_are_refused(program, times_s, values_w, says):
    response, span = Response.sampled(HOPPER_SENSOR, 0.02), [[0.1, 0.8]]
    edges_ns = np.arange(100_000_000, 800_000_000, 1_000_000)
    line = activity_of(edges_ns[:-1], edges_ns[1:], np.zeros(699, np.int64), [Kind("kernel")], 0)
    estimate = partial(attribute_program, activity=line) if program else attribute
    with pytest.raises(ValueError, match=says) as refused:
        estimate(times_s, values_w, span, response=response)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([], "there are no spans: give"),
        ([[0.5, 0.3]], "burst 0 ends before it begins"),
        ([[0.1, 0.4], [0.3, 0.6]], "burst 1 .* begins before the last one ended"),
        ([[0.5, 0.6], [0.1, 0.2]], "burst 1 .* give them in order"),
    ],
)
def test_bursts_that_overlap_are_refused(spans, says):
    with pytest.raises(ValueError, match=says):
        attribute(TIME_S, VALUE_W, spans, response=Response.sampled(HOPPER_SENSOR, 0.02))
