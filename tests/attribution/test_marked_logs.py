"""Energies of jobs that are marked in a log, whose readings are seconds apart: each by its own readings."""

import numpy as np
import pytest

from covering import fewest
from jouletrace.attribution import span_energies
from jouletrace.formats.importers.power_sensor import polled_response
from jouletrace.sensor import Response, clean
from jouletrace.sensor.kinds import USAGE, calibrated, sensor_behind


def log(seed, spacing_s=1.0, jobs=4, readings=40, swing_s=2.0):
    """A log of jobs that swing at random between 200 and 600 W, idle at 80 W; their starts and ends; their energies."""
    rng = np.random.default_rng(seed)
    edges, watts, spans, now = [], [], [], 0.0
    for level_w in rng.uniform(100, 300, jobs).tolist():
        begin, end = now + 10 * spacing_s, now + (10 + readings) * spacing_s * rng.uniform(0.9, 1.1)
        edges, watts, now = [*edges, begin], [*watts, 80.0], begin
        while now < end:
            now = min(now + rng.exponential(swing_s), end)
            edges, watts = [*edges, now], [*watts, 300 + rng.choice([-1, 1]) * level_w / 2]
        spans.append((begin, now))
    edges, watts = np.array([*edges, now + 20 * spacing_s]), np.array([*watts, 80.0])
    times_s = np.arange(0.5 * spacing_s, edges[-1] - spacing_s, spacing_s) + rng.uniform(0, 0.01)
    values_w = watts[np.searchsorted(edges, times_s)] + 0.3 * rng.standard_normal(len(times_s))
    joules = np.append(0.0, np.cumsum(watts * np.diff(edges, prepend=0.0)))
    upto = np.interp(np.array(spans), np.append(0.0, edges), joules)
    return times_s, values_w, np.array(spans), upto[:, 1] - upto[:, 0]


def solved(times_s, values_w, spans, spacing_s=1.0):
    response = Response(0.0, 0.1, 0.0, 0.01, 0.0, 0.5, spacing_s, window_s=0.02)
    record = clean(np.round(1e9 * times_s).astype(np.int64), values_w, spacing_s)
    return span_energies(record, response, *np.round(1e9 * spans).astype(np.int64).T)


@pytest.mark.thorough
@pytest.mark.parametrize(("spacing_s", "swing_s"), [(1.0, 0.5), (5.0, 4.0)])
def test_energies_of_jobs_that_swing_hold(spacing_s, swing_s):
    """Of swings faster than the readings, which may hide a cycle between two, intervals are wide: up to three times."""
    held, half, off = [], [], []
    for seed in range(6):
        *read, truth = log(seed, spacing_s, swing_s=swing_s)
        found = solved(*read, spacing_s)
        held += ((found.low_j <= truth) & (truth <= found.high_j)).tolist()
        half += ((found.high_j - found.low_j) / 2 / truth).tolist()
        off += (found.energy_j / truth - 1).tolist()
    assert sum(held) >= fewest(len(held))
    assert np.median(half) < 3 * 1.96 * np.std(off)


def test_a_job_is_as_known_whatever_runs_beside_it():
    """The second job has no part in the interval of the first, nor have readings of it."""
    times_s, values_w, spans, _ = log(3, jobs=2)
    alone = solved(times_s, values_w, spans[:1])
    values_w = np.where(times_s > spans[0, 1] + 1, 3 * values_w, values_w)
    both = solved(times_s, values_w, spans)
    assert both.energy_j[0] == pytest.approx(alone.energy_j[0], rel=1e-6)
    assert both.high_j[0] - both.low_j[0] == pytest.approx(alone.high_j[0] - alone.low_j[0], rel=0.05)


@pytest.mark.thorough
def test_errors_of_jobs_are_independent():
    *read, truth = log(5, jobs=6)
    found = solved(*read)
    each = (found.high_j - found.low_j) / 2
    (value,), (low,), (high,) = found.sums(np.ones(6))
    assert value == pytest.approx(found.energy_j.sum())
    assert low <= truth.sum() <= high
    assert (high - low) / 2 == pytest.approx(np.hypot.reduce(each), rel=0.2)


@pytest.mark.thorough
def test_a_short_job_between_long_ones_has_an_energy():
    """Of two readings nothing is known of a swing: it counts as a burst, beside those with enough."""
    times_s, values_w, spans, truth = log(6, jobs=2)
    spans, steady = np.vstack([[[3.2, 5.4]], spans]), 80.0 * 2.2
    found = solved(times_s, values_w, spans)
    assert found.has_energy.all()
    assert found.low_j[0] <= steady <= found.high_j[0]
    assert ((found.low_j[1:] <= truth) & (truth <= found.high_j[1:])).all()


def means(seed, spacing_s=1.0):
    """Means over 1.01 s, renewed each 0.1 s, of three jobs that are on and off; their edges; their energies."""
    rng = np.random.default_rng(seed)
    edges, watts, spans = [0.0, 12.0], [80.0], []
    for _ in range(3):
        begin, mean_s, end = edges[-1], rng.uniform(0.3, 6.0, 2), edges[-1] + rng.uniform(30, 120)
        while edges[-1] < end:
            edges.append(min(edges[-1] + rng.gamma(3, mean_s[len(watts) % 2] / 3), end))
            watts.append((120.0, 600.0)[len(watts) % 2])
        spans.append((begin, end))
        edges, watts = [*edges, end + rng.uniform(6, 10)], [*watts, 80.0]
    joules = np.append(0.0, np.cumsum(np.diff(edges) * watts))
    renewed_s = np.arange(1.2, edges[-1], 0.1013)
    polled_s = np.arange(1.4, edges[-1], 1.006 * spacing_s)
    end_s = renewed_s[np.searchsorted(renewed_s, polled_s, side="right") - 1]
    value_w = (np.interp(end_s, edges, joules) - np.interp(end_s - 1.01, edges, joules)) / 1.01
    return polled_s, value_w, np.array(spans), np.diff(np.interp(spans, edges, joules))[:, 0]


def test_jobs_in_means_over_a_second_hold():
    """Power that swings in a job looks like windows of another width, or another delay: these aren't fitted to it."""
    held, half, off = [], [], []
    for seed in range(16):
        times_s, values_w, spans, truth = means(seed)
        _, sensor = sensor_behind(USAGE, "NVIDIA H100 80GB HBM3")
        response = polled_response(sensor, 1.006, 1e-3, 0.01, float(values_w.mean()))
        record = clean(np.round(1e9 * times_s).astype(np.int64), values_w, response.period_s)
        found = span_energies(record, calibrated(response), *np.round(1e9 * spans).astype(np.int64).T)
        held += ((found.low_j <= truth) & (truth <= found.high_j)).tolist()
        half += ((found.high_j - found.low_j) / 2 / truth).tolist()
        off += (found.energy_j / truth - 1).tolist()
    assert sum(held) >= fewest(len(held))
    assert np.median(half) < 2.5 * 1.96 * np.sqrt(np.mean(np.square(off)))
