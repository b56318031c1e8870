"""Figures that ``benchmarks/serving.py`` states of loads beside others, on a simulated scheduler of a known law."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import Estimate
from places import REPOSITORY
from scheduled_runs import Law, scheduled_level, scheduled_run

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import serving

SHORT, LONG, FEW = (100, 32), (200, 48), 8
LAW = Law(new_s=0.0, sequence_s=0.0, sequence_j=0.0, most_new=4000)
"""All steps are equally long and read all prompts at once; of 16 sequences in each step no load shows what one adds."""


def load_of(*kinds, law=LAW, count=480):
    """A load of 16 at once, of these kinds by turns."""
    inputs, outputs = np.array([kinds[k % len(kinds)] for k in range(count)]).T
    return analyse(scheduled_run(law, [scheduled_level(law, None, inputs, outputs, serving.BATCH)])[0])


@pytest.fixture(scope="module")
def short():
    return load_of(SHORT)


def round_of(prompt, answer):
    """Energy above idle power and seconds of 16 requests that begin together, by the law."""
    law, many = LAW.above_idle(), serving.BATCH
    steps = [(many * prompt, 0, 0), *((0, many, many * (prompt + k)) for k in range(1, answer))]
    return sum(law.energy(*one) for one in steps), answer * (LAW.step_s + LAW.gap_s)


def test_a_load_takes_what_the_same_steps_take_without_a_server(short):
    few, whole = (round_of(SHORT[0], answer) for answer in (FEW, SHORT[1]))
    prefill = few[0] - (FEW - 1) / (SHORT[1] - FEW) * (whole[0] - few[0])

    def by(tokens_of):
        above, seconds = tokens_of
        energy = above + LAW.idle_w * seconds
        return Estimate(energy, 0.999 * energy, 1.001 * energy, 100), seconds

    calls = iter((few, whole))
    found = serving.against_alone(short, short, short, (FEW, SHORT[1]), lambda _: by(next(calls)))
    assert found["prefill above idle"][1].value == pytest.approx(prefill / serving.BATCH, rel=0.01)
    assert set(found) == {
        "whole",
        "ms from step to step",
        *(f"{one}{more}" for one in ("whole", "prefill", "decode") for more in ("", " above idle")),
    }
    for name, (_, _, ratio) in found.items():
        assert ratio.value == pytest.approx(1, abs=0.03), name


def test_a_bill_in_a_mix_is_that_of_an_own_load_where_steps_are_equally_long(short):
    for prompt, own in ((SHORT[0], short), (LONG[0], load_of(LONG))):
        *_, of_bills, _, _, above = serving.mixed(own, load_of(SHORT, LONG), prompt)
        assert of_bills.value == pytest.approx(1, abs=0.03)
        assert above.value == pytest.approx(1, abs=0.05)
        assert of_bills.low < of_bills.value < of_bills.high


def test_a_mix_by_turns_does_not_show_what_a_sequence_adds():
    """Steps that read prompts have fewer sequences and smaller caches, and the caches get it: a known limit."""
    law = replace(LAW, sequence_j=0.25)
    own, mix = load_of(SHORT, law=law), load_of(SHORT, LONG, law=law)
    assert mix.result("energy_sequence_j").value is None
    ratio = serving.mixed(own, mix, SHORT[0])[2]
    assert ratio.value == pytest.approx(0.85, abs=0.02)
    assert ratio.high < 1


def test_a_load_without_steps_is_refused(short):
    with pytest.raises(ValueError, match="a log of steps"):
        serving.served(replace(short, steps=short.steps.slice(0, 0)))
