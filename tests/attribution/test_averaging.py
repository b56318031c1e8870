"""Sensors that average: part-time windows, boxcars, means over a second, energy counters (simulated)."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.checks import checks, verdict
from jouletrace.attribution.lock import lock
from jouletrace.attribution.rows import by_operator, rows
from jouletrace.errors import BadInputError
from jouletrace.sensor.kinds.base import BOXCAR, COUNTER, PART_TIME, SECOND
from jouletrace.sensor.observer import Averaged
from jouletrace.sensor.readout import of_counter, on_grid
from scenarios import draw, simulate
from simulated_power import Board
from simulated_programs import lay_out, repeated_in_place, transformer_graph_like
from simulated_sensors import CounterOnly, WindowSensor

pytestmark = pytest.mark.thorough

SENSORS = {
    "part_time": (WindowSensor.part_time, PART_TIME, 0.1),
    "boxcar": (WindowSensor.boxcar, BOXCAR, 0.02),
    "second": (WindowSensor.average, SECOND, 0.1),
    "counter": (CounterOnly.draw, COUNTER, None),
}


def read(recording, period_s):
    stamp_ns, value = recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3
    return of_counter(stamp_ns, value) if period_s is None else on_grid(stamp_ns, value, period_s)


def analysed(name, recording):
    _, sensor, period_s = SENSORS[name]
    readings = read(recording, period_s)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    found = lock(activity, sensor, readings)
    return found, checks(found, readings), rows(found.fit, by_operator)


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


@pytest.mark.parametrize(("name", "least"), [("part_time", 6), ("boxcar", 18)])
def test_intervals_hold_for_long_kernels_in_varied_order(name, least):
    """Of about 15 to 30 rows of operators in recordings that are trusted, two of three at least."""
    hits, alone, trusted = [], 0, 0
    for seed in (1, 2, 4):
        recording, truth = untouched(name, "long_varied", seed, 15.0)
        _, asked, table = analysed(name, recording)
        if not verdict(asked).startswith("trust: yes"):
            continue
        trusted += 1
        hits += held(table, truth)
        alone += sum(not row.pooled and row.energy.value is not None for row in table[:-1])
    assert trusted >= 2
    assert np.mean(hits) >= 0.85
    assert alone >= least


@pytest.mark.parametrize("name", ["part_time", pytest.param("boxcar", marks=pytest.mark.slow), "counter"])
def test_repetition_in_place_resolves_operators(name):
    """Untouched there is one row at most; with repeats that hold for 0.2 s there are rows of single operators."""
    recording, truth = repeated(name, 0, 7.0, 150)
    _, asked, table = analysed(name, recording)
    assert verdict(asked).startswith("trust: yes")
    assert np.mean(held(table, truth)) >= 0.75
    assert sum(not row.pooled and row.energy.value is not None for row in table[:-1]) >= 3


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param("short_fixed", "second", marks=pytest.mark.slow),
        ("eager", "counter"),
        pytest.param("short_fixed", "counter", marks=pytest.mark.slow),
        pytest.param("eager", "second", marks=pytest.mark.slow),
    ],
)
def test_an_untouched_step_has_no_rows_of_kernels(name, group):
    """Nothing of a step is in a mean over many: rows are pooled, or there are none; none is wrong."""
    recording, truth = untouched(name, group, 0, 6.0)
    _, asked, table = analysed(name, recording)
    if verdict(asked).startswith("trust: yes"):
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


def test_a_counters_readings_are_its_differences():
    recording, truth = untouched("counter", "long_varied", 0, 20.0)
    readings = read(recording, None)
    assert readings.period_s == pytest.approx(truth.sensor.step_ns / 1e9, rel=3e-4)
    window = readings.window_s
    assert window is not None
    assert np.allclose(np.rint(window / readings.period_s), window / readings.period_s, atol=1e-6)
    begin = (readings.origin_ns - truth.power.begin_ns) + (readings.time_s - window) * 1e9
    true = truth.power.mean_w(begin, begin + window * 1e9)
    assert np.median(np.abs(readings.watts / true - 1)[5:-5]) < 0.02


def test_steps_that_a_late_read_jumps_over_make_longer_windows():
    stamp_ns = np.delete((np.arange(1000) * 0.0213e9).astype(np.int64), [*range(100, 112), *range(500, 520)])
    readings = of_counter(stamp_ns, 40.0 * np.floor((stamp_ns + 0.03e9) / 0.1e9))
    assert np.rint(readings.window_s / 0.1).max() >= 3
    assert readings.watts == pytest.approx(np.full(len(readings.watts), 400.0), rel=0.02)


def test_a_counter_that_is_read_too_rarely_is_named():
    stamp_ns = (np.arange(100) * 0.25e9).astype(np.int64)
    with pytest.raises(BadInputError, match="read every 250 ms and steps every 100 ms"):
        of_counter(stamp_ns, stamp_ns * 4e-7)


def test_bad_counters_are_named():
    stamp_ns = (np.arange(200) * 0.02e9).astype(np.int64)
    with pytest.raises(BadInputError, match="0 of its 200 reads show a new value"):
        of_counter(stamp_ns, np.full(200, 5.0))
    falling = np.floor(stamp_ns / 0.1e9)
    falling[100:] -= 30
    with pytest.raises(BadInputError, match="read 100 of 200 shows less than the one before"):
        of_counter(stamp_ns, falling)


def test_a_counter_needs_its_own_sensor():
    recording, _ = untouched("counter", "long_varied", 0, 10.0)
    readings = read(recording, None)
    with pytest.raises(BadInputError, match="a counter's readings need a counter's sensor"):
        Averaged.of(PART_TIME, readings)
    with pytest.raises(BadInputError, match="a counter's readings need a counter's sensor"):
        Averaged.of(COUNTER, replace(readings, window_s=None))
