"""Readings by device and channel: worked out once, whatever the number of devices."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.analysis import analyse, power_record
from jouletrace.analysis import power as power_module
from jouletrace.run import Run, model, tables
from records import DEVICE, channel, log_of_gpus, make_run, phases, readings

ROWS = [
    {"time_ns": 5, "device": "a", "channel": "power_w", "value": 1.0},
    {"time_ns": 4, "device": "b", "channel": "power_w", "value": 2.0},
    {"time_ns": 6, "device": "a", "channel": "temperature_c", "value": 3.0},
    {"time_ns": 3, "device": "a", "channel": "power_w", "value": 4.0},
    {"time_ns": None, "device": "a", "channel": "power_w", "value": 5.0},
    {"time_ns": 7, "device": "a", "channel": "power_w", "value": None},
    {"time_ns": 7, "device": None, "channel": "power_w", "value": 6.0},
    {"time_ns": 7, "device": "a", "channel": None, "value": 7.0},
    {"time_ns": 2**62 + 1, "device": "c", "channel": "power_w", "value": 8.0},
]


@pytest.mark.parametrize("at_once", [1, 2, 4, len(ROWS)])
def test_a_series_is_in_stored_order_and_exact(at_once, monkeypatch):
    monkeypatch.setattr(model, "_AT_ONCE", at_once)
    run = Run(samples=tables.from_rows(ROWS, "samples"))
    stamps, values = run.series("a", "power_w")
    assert stamps.tolist() == [5, 3, 7]
    np.testing.assert_array_equal(values, [1.0, 4.0, np.nan])
    assert run.series("c", "power_w")[0].tolist() == [2**62 + 1]
    assert run.series("a", "temperature_c")[1].tolist() == [3.0]
    assert [len(part) for part in run.series("a", "energy_counter_j")] == [0, 0]
    assert run.series("a", "power_w")[0].dtype == np.int64


def test_samples_in_many_pieces_with_dictionaries_of_their_own_are_one_series():
    pieces = [tables.from_rows([{**row, "time_ns": i}], "samples") for i, row in enumerate(ROWS)]
    run = Run(samples=pa.concat_tables(pieces))
    assert run.series("a", "power_w")[0].tolist() == [0, 3, 4, 5]


def test_text_that_another_program_wrote_twice_is_one():
    device = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), ["a", "a", "b"])
    table = pa.table({"time_ns": [1, 2, 3], "device": device, "channel": ["power_w"] * 3, "value": [1.0, 2.0, 3.0]})
    assert Run(samples=table).series("a", "power_w")[0].tolist() == [1, 2]


def test_new_samples_are_another_series():
    run = Run(samples=tables.from_rows(ROWS[:1], "samples"))
    assert len(run.series("a", "power_w")[0]) == 1
    run.samples = tables.from_rows(ROWS, "samples")
    assert len(run.series("a", "power_w")[0]) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [1, 24])
def test_an_analysis_goes_through_the_samples_once(monkeypatch, devices):
    """Its time goes with the rows then, not with rows times devices."""
    passes, cleaned = [], []
    index, clean = model.SampleIndex, power_module.clean

    def counted(table):
        passes.append(len(table))
        return index(table)

    def noted(stamps, *rest, **options):
        cleaned.append(len(stamps))
        return clean(stamps, *rest, **options)

    monkeypatch.setattr(model, "SampleIndex", counted)
    monkeypatch.setattr(power_module, "clean", noted)
    run = analyse(log_of_gpus(devices, 7200))
    assert passes == [7200]
    assert cleaned == [7200 // devices] * devices
    assert run.result("power_w", devices).value == pytest.approx(325, rel=0.02)


def test_a_record_is_computed_again_where_what_it_depends_on_has_changed():
    run = make_run(readings(300.0, 5.0), spans=phases(("monitor", 0.1, 4.0)))
    first = power_record(run, DEVICE)
    assert power_record(run, DEVICE)[0] is first[0]
    run.channels = [channel(period_s=0.05, response={})]
    assert power_record(run, DEVICE)[1].period_s == 0.05
    run.devices[0].power_limit_w = 20.0
    assert len(power_record(run, DEVICE)[0]) == 0


@pytest.mark.thorough
def test_threads_read_series_while_newer_samples_come():
    """A Run that is being recorded gets new tables while others read."""
    run = make_run(readings(300.0, 2.0))
    many = [make_run(readings(300.0, 2.0 + k)).samples for k in range(4)]
    ending, wrong = threading.Event(), []

    def read():
        while not ending.is_set():
            try:
                stamps, values = run.series(DEVICE, "power_w")
                assert len(stamps) == len(values) > 100
            except Exception as error:
                wrong.append(repr(error))
                return

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for k in range(400):
        run.samples = many[k % 4]
    ending.set()
    for thread in threads:
        thread.join()
    assert wrong == []
