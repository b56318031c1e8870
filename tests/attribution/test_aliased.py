"""Spans of a load that repeats: which are aliased with a sensor that takes momentary samples, and do intervals hold?"""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import ALIASED_FROM, span_energies
from jouletrace.run import ALIASED, Readings
from jouletrace.sensor import HOPPER, HOPPER_SENSOR, Response
from simulated_sampler import Load


def measured(load_s, rate_hz, *, known=False, swing_w=100.0, seed=0, each=False, **given):
    """Energies of a load of 1 s that changes between two levels, each for half of its period, and the true one.

    Of all of it, or of ``each`` period.
    """
    times = round(1 / load_s)
    load = Load(np.full(2 * times, load_s / 2), np.tile([400.0 + swing_w, 400.0 - swing_w], times))
    times_s, values_w, own = load.record(np.random.default_rng(seed), sample=HOPPER, rate_hz=rate_hz)
    response = own if known else replace(Response.sampled(HOPPER_SENSOR, 0.02), delay_s=own.delay_s)
    record = Readings(np.round(times_s * 1e9).astype(np.int64), values_w, 0.02)
    edges_ns = np.round(1e9 * load.edge_s[:: 2 if each else 2 * times]).astype(np.int64)
    return span_energies(record, response, edges_ns[:-1], edges_ns[1:], **{"period_s": load_s, **given}), load.energy(
        *load.span
    )


@pytest.mark.parametrize(
    ("period_ms", "rate_hz", "aliased"),
    [
        (0.797, 1254.7, True),  # samples meet one phase of it
        (0.797, 1222.5, False),  # they meet all phases, 32 times per second, and readings show it
        (5.3, 1222.5, False),
        (10.0, 1222.5, True),
        (13.7, 1222.5, False),
        (20.0, 1222.5, True),
    ],
)
def test_a_load_of_which_few_phases_are_met_is_aliased(period_ms, rate_hz, aliased):
    found, _ = measured(period_ms / 1e3, rate_hz)
    assert (found.hidden([1.0]) > ALIASED_FROM) is aliased


@pytest.mark.thorough
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("period_ms", [0.797, 5.3, 13.7, 20.0])
def test_intervals_hold_for_loads_with_a_period(period_ms, known):
    for seed in range(4):
        found, truth = measured(period_ms / 1e3, 1222.5, known=known, seed=seed)
        assert found.low_j[0] <= truth <= found.high_j[0]


@pytest.mark.thorough
def test_a_load_that_is_aliased_with_samples_at_a_known_rate_holds():
    """Or it has no figure. Where the rate isn't known, such a coincidence is rare, and the interval narrower."""
    for seed in range(4):
        found, truth = measured(0.797e-3, 1 / 0.797e-3, known=True, seed=seed)
        assert found.hidden([1.0]) > ALIASED_FROM
        if found.reason[0] != ALIASED:
            assert found.low_j[0] <= truth <= found.high_j[0]


def test_a_sample_rate_that_is_known_may_prove_that_a_load_is_not_aliased():
    """Of a load that looks constant."""
    free, known = (measured(0.797e-3, 1222.5, known=known, swing_w=0.0)[0].hidden([1.0]) for known in (False, True))
    assert known < 0.2 * free


def test_only_a_load_whose_period_is_known_counts_as_aliased():
    assert measured(0.02, 1222.5, period_s=None)[0].hidden([1.0]) == 0.0


@pytest.mark.thorough
def test_repetitions_in_one_burst_are_aliased_together():
    """Readings meet the same phase of each; bursts of their own have phases of their own."""
    burst_ns = [[400_000_000, 1_400_000_000]]
    apart, together = (measured(0.02, 1222.5, each=True, bursts_ns=one)[0] for one in (None, burst_ns))
    every = np.ones(50)
    assert together.hidden(every) > 4 * apart.hidden(every)
