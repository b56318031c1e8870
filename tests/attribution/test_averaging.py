"""Sensors that average: part-time windows, boxcars, means over a second (simulated)."""

from dataclasses import replace

import numpy as np
import pytest

from energy_tables import energy_table
from jouletrace.analysis import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.checks import checks
from jouletrace.attribution.lock import lock
from jouletrace.attribution.observer import Averaged
from jouletrace.run import ChannelInfo
from jouletrace.sensor import on_grid
from jouletrace.sensor.kinds import models
from jouletrace.sensor.models import Means
from scenarios import draw, simulate
from simulated_power import Board
from simulated_programs import lay_out, repeated_in_place, transformer_graph_like
from simulated_sensors import WindowSensor

pytestmark = pytest.mark.thorough

SENSORS = {
    "part_time": (WindowSensor.part_time, Means(25e-3), 0.1),
    "boxcar": (WindowSensor.boxcar, Means(20e-3), 0.02),
    "second": (WindowSensor.average, Means(1.0), 0.1),
}


def analysed(name, recording, sensor=None):
    _, usual, period_s = SENSORS[name]
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3, period_s)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    found = lock(activity, sensor or usual, readings)
    return found, checks(found, readings, 1, 0), energy_table(found.fit, by_operator)


def untouched(name, group, seed, seconds):
    make = SENSORS[name][0]
    _, recording, truth = draw(seed, group, seconds=seconds, sensor=make(np.random.default_rng([seed, 99])))
    return recording, truth


def repeated(name, seed, seconds, hold):
    """A graph of 150 short kernels, in whose steps one call runs several times, the same one for ``hold`` steps."""
    rng = np.random.default_rng([seed, 7])
    scene = lay_out(repeated_in_place(rng, transformer_graph_like(rng, seconds), hold=hold), seconds)
    _, recording, truth = simulate(rng, scene, Board.draw(rng, len(scene.kinds), seconds), SENSORS[name][0](rng))
    return recording, truth


def held(table, truth):
    """Of rows of kernels with figures: whether each interval holds what was drawn."""
    return [
        row.energy.low <= sum(truth.operator_j[name] for name in row.names) <= row.energy.high
        for row in table[:-1]
        if row.energy.value is not None
    ]


def test_an_uncalibrated_sensor_may_be_late():
    """GPUs whose readings come 45 ms late, with what is known of their kind alone."""
    hits = []
    for seed in (1, 2):
        sensor = replace(WindowSensor.part_time(np.random.default_rng([seed, 99])), delay_ns=45e6)
        _, recording, truth = draw(seed, "long_varied", seconds=20.0, sensor=sensor)
        (model,) = models(ChannelInfo("GPU-1", "power_w", "W", "polled", sensor="ampere_datacenter"), None)
        found, asked, table = analysed("part_time", recording, model)
        assert doubt(asked) == ""
        assert found.fit.observer.delay_s == pytest.approx(0.045, abs=1e-3)
        hits += held(table, truth)
    assert len(hits) >= 4
    assert np.mean(hits) >= 0.8


@pytest.mark.parametrize(("name", "least"), [("part_time", 6), ("boxcar", 18)])
def test_intervals_hold_for_long_kernels_in_varied_order(name, least):
    """Of about 15 to 30 rows of operators in recordings that are trusted, two of three at least."""
    hits, alone, trusted = [], 0, 0
    for seed in (1, 2, 4):
        recording, truth = untouched(name, "long_varied", seed, 15.0)
        _, asked, table = analysed(name, recording)
        if doubt(asked):
            continue
        trusted += 1
        hits += held(table, truth)
        alone += sum(not row.pooled and row.energy.value is not None for row in table[:-1])
    assert trusted >= 2
    assert np.mean(hits) >= 0.85
    assert alone >= least


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in ("part_time", "boxcar")])
def test_repetition_in_place_resolves_operators(name):
    """Untouched there is one row at most; with repeats that hold for 0.2 s there are rows of single operators."""
    recording, truth = repeated(name, 0, 6.0, 150)
    _, asked, table = analysed(name, recording)
    assert doubt(asked) == ""
    assert np.mean(held(table, truth)) >= 0.75
    assert sum(not row.pooled and row.energy.value is not None for row in table[:-1]) >= 3


@pytest.mark.parametrize("group", ["eager", pytest.param("short_fixed", marks=pytest.mark.slow)])
def test_an_untouched_step_has_no_rows_of_kernels(group):
    """Nothing of a step is in a mean over many: rows are pooled, or there are none; none is wrong."""
    recording, truth = untouched("second", group, 0, 6.0)
    _, asked, table = analysed("second", recording)
    if not doubt(asked):
        assert all(held(table, truth))
    else:
        assert sum(not row.pooled and row.energy.value is not None for row in table[:-1]) <= 2


def test_a_means_delay_and_window_are_estimated():
    recording, truth = untouched("boxcar", "long_varied", 2, 20.0)
    found, _, _ = analysed("boxcar", recording)
    observer = found.fit.observer
    assert isinstance(observer, Averaged)
    assert observer.delay_s == pytest.approx(truth.sensor.delay_ns / 1e9, abs=0.5e-3)
    assert observer.stretch == pytest.approx(truth.sensor.window_ns / 20e6 - 1, abs=0.015)
