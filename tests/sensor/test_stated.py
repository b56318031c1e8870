"""Constants of the estimation are those that the pages about it state."""

import re
from pathlib import Path

import numpy as np
import pytest

from jouletrace.analysis import kernel_powers
from jouletrace.attribution import activity, checks, lock, prior
from jouletrace.run.channels import GAIN_PCT
from jouletrace.sensor import counter, kinds, models, sampler, stamps
from jouletrace.sensor.calibration import fitter

PAGES = Path(__file__).resolve().parents[2] / "docs" / "explanation"
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SEARCHED = kinds.HOPPER_SENSOR

METHOD = [
    f"Newey–West weights for {fitter._HAC_LAGS} lags",
    f"Medians of blocks of {stamps._BLOCK} determine",
    f"a floor of ± {counter.FLOOR * 100:g} %",
    f"gain error of about ±{GAIN_PCT:g} %",
]

ATTRIBUTION = [
    f"`y += (x − y) / {SEARCHED.averages}`",
    f"the stamp of a reading lies {1e3 * SEARCHED.delay_s:g} ms after its last sample",
    f"A sample within {1e6 * sampler.EDGE_S:.0f} µs of the moment of readout counts in part",
    f"Kernels of {1e6 * activity.LONG_S:.0f} µs and more have a head ({1e6 * activity.HEAD_S:.0f} µs), a middle "
    f"and a tail ({1e6 * activity.TAIL_S:.0f} µs)",
    f"knots every {sampler.KNOT_S:g} s)",
    f"in bins of {1e6 * models.BIN_S:.0f} µs",
    "or {:g} ± {:g} W where nothing was measured".format(*kernel_powers.IDLE_W),
    f"± {100 * prior.Prior().repeats:g} % of the power above idle",
    f"{WORDS[lock.WINDOWS].capitalize()} windows of {lock.WINDOW_S:g} s are searched separately",
    "all rates from {:.0f} to {:.0f} Hz".format(*SEARCHED.rates_hz),
    "from {:.0f} to {:.0f} Hz if a check fails".format(*SEARCHED.any_rate_hz),
    f"and {WORDS[lock.PHASES]} phases, with the powers of the {WORDS[lock.COLUMNS]} kinds",
    f"more than {lock.APART_HZ:g} Hz away",
    f"over phase and rate in blocks of {lock.BLOCK_S:g} s",
    f"Averages of {min(lock.AVERAGES)} to {max(lock.AVERAGES)} samples are tried",
    f"What then takes less than {kernel_powers.SMALL * 100:g} % of the busy time has no figures",
    f"the evidence for the sample rate at least {lock.EVIDENCE:g}?",
    f"predict the other half better (by {100 * (1 - checks.HELD_OUT_RATIO):.0f} %)",
]


@pytest.mark.parametrize(
    ("page", "words"),
    [*(("method.md", one) for one in METHOD), *(("attribution.md", one) for one in ATTRIBUTION)],
)
def test_a_page_states_it_as_it_is(page, words):
    assert words in re.sub(r"\s+", " ", (PAGES / page).read_text())


def test_the_prior_of_a_tail_is_the_one_that_the_page_states():
    made = fitter.Fitter(np.arange(40) * 0.02, np.arange(40.0), np.array([0.4]), np.array([0, 1]), 0.02)
    share, tail = made.unit[3:]
    sd = 1 / np.sqrt(fitter._TAIL_PRECISION)
    mean, most = fitter._TAIL_MEAN, fitter._HIGH[3]
    words = (
        f"(a share of {mean[0] * share:g} ± {sd[0] * share:g} and at most {most * share:.1f}, "
        f"over {1e3 * mean[1] * tail:g} ± {1e3 * sd[1] * tail:g} ms)"
    )
    assert words in (PAGES / "method.md").read_text()


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_nominal_responses_are_those_of_the_pages_table(name):
    response = kinds.KINDS[name].response
    lag_sd, window_sd = (1e3 * np.sqrt(response.covariance[k][k]) for k in (0, 1))
    cells = [
        f"{1e3 * response.period_s:g} ms",
        f"{1e3 * response.window_s:g} ± {window_sd:g} ms",
        f"{1e3 * response.lag_s:g} ± {lag_sd:g} ms",
        f"{1e3 * response.rise_s:g} ms",
        f"{1e3 * response.jitter_s:g} ms",
    ]
    rows = [line for line in (PAGES / "method.md").read_text().splitlines() if line.startswith(f"| `{name}`")]
    assert [row.split(" | ", 1)[1] for row in rows] == [" | ".join(cells) + " |"]
    assert np.array(response.covariance) == pytest.approx(np.diag([*np.square([lag_sd, window_sd]) / 1e6, 0.0]))
