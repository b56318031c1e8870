"""A sensor's response in time, against integrals of what it is made of."""

import json

import numpy as np
import pytest

from jouletrace.sensor.calibration import StepResponse

RESPONSES = [
    StepResponse(0.02, 0.025, lag_s=0.004),
    StepResponse(0.02, rise_s=0.0125, lag_s=-0.003),
    StepResponse(0.02, 0.01, rise_s=0.005, tail_share=0.2, tail_s=0.03),
    StepResponse(0.1, 0.04, tail_share=0.3, tail_s=0.05, lag_s=0.01),
]


def approached(response, since_s):
    """Share that rise and tail show of a step so long ago."""
    shown = np.where(since_s > 0, 1.0, 0.0)
    for share, constant in ((1 - response.tail_share, response.rise_s), (response.tail_share, response.tail_s)):
        if share and constant:
            shown -= np.where(since_s > 0, share * np.exp(-np.maximum(since_s, 0) / constant), 0.0)
    return shown


@pytest.mark.parametrize("response", RESPONSES)
def test_a_reading_shows_of_a_step_the_mean_over_its_window_of_what_rise_and_tail_let_through(response):
    delay = np.linspace(-0.02, 0.2, 45)
    within = max(response.window_s, 1e-9) * (np.arange(20_000) + 0.5) / 20_000
    mean = [approached(response, one - response.lag_s - within).mean() for one in delay]
    assert response.step(delay) == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("response", RESPONSES)
def test_the_mean_delay_is_that_of_what_a_step_shows(response):
    time = np.linspace(-0.1, 1.5, 400_001)
    shown = response.step(time)
    middle = (time[1:] + time[:-1]) / 2
    assert np.diff(shown) @ middle == pytest.approx(response.delay_s, abs=1e-6)


@pytest.mark.parametrize(
    ("response", "memory_s"),
    [
        (StepResponse(0.02, 0.025, lag_s=0.004), 0.029),
        (StepResponse(0.02, 0.025, lag_s=-0.004), 0.025),
        (StepResponse(0.02, 0.01, rise_s=0.005), 0.01 + 7 * 0.005),
        (StepResponse(0.02, rise_s=0.001, tail_share=0.2, tail_s=0.03), 0.03 * np.log(200)),
        (StepResponse(0.02, rise_s=0.001, tail_share=0.001, tail_s=0.03), 0.007),
    ],
)
def test_a_step_is_forgotten_to_one_part_in_a_thousand(response, memory_s):
    """In seven constants of a rise, and as many of a tail as its share of a thousand takes."""
    assert response.memory_s == pytest.approx(memory_s)
    assert 1 - response.step(response.memory_s) < 2e-3


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (StepResponse(0.02, 0.0801), "averaged"),
        (StepResponse(0.02, 0.08), "gapless"),
        (StepResponse(1.0, 0.9), "gapless"),
        (StepResponse(1.0, 0.899), "sampled"),
        (StepResponse(1.0, rise_s=0.45), "gapless"),  # an exponential speaks for twice its constant
        (StepResponse(0.02, 0.004, rise_s=0.0069), "sampled"),
        (StepResponse(0.02, rise_s=0.001, tail_share=0.5, tail_s=0.017), "gapless"),
    ],
)
def test_kinds_of_sensors_by_what_a_reading_speaks_for(response, kind):
    """More than four periods, nine tenths of one, or less."""
    assert response.kind == kind
    assert response.gapless == (kind != "sampled")


def test_a_response_is_stored_with_what_follows_from_it():
    data = json.loads(json.dumps(RESPONSES[2].to_dict()))
    assert StepResponse.from_dict(data) == RESPONSES[2]
    assert (data["kind"], data["gapless"]) == ("gapless", True)
    assert data["delay_s"] == pytest.approx(0.005 + 0.8 * 0.005 + 0.2 * 0.03)
    assert StepResponse.from_dict({"period_s": 0.02, "unheard_of": 1}) == StepResponse(0.02)
