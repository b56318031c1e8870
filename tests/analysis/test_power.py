"""The kind that a power record is taken for, and what it says of one block of code."""

import math
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from boards import recording
from covering import fewest
from jouletrace.analysis import power_record, window_estimate
from jouletrace.analysis.power import energies, join, no_power_reason, tail_s
from jouletrace.sensor import KINDS, published, response_of
from jouletrace.sensor.calibration import StepResponse
from jouletrace.simulator.boards import SimKernel, SimulatedGpu
from make_runs import monitor_run
from records import DEVICE, channel, make_run, ns, readings


def nominal(**facts):
    return channel(response={}, **facts)


def shape(response):
    return response.window_s, response.rise_s, response.lag_s


def test_a_calibrated_response_goes_before_documentation():
    measured = StepResponse(0.0201, window_s=0.022, rise_s=0.001, lag_s=-0.003, origin="calibrated")
    assert response_of(channel(response=measured.to_dict(), window_s=1.0)) == measured


def test_a_gapless_driver_record_keeps_the_shape_that_was_measured_on_such_a_gpu():
    found = response_of(nominal(period_s=0.0201, window_s=0.025))
    assert shape(found) == shape(KINDS["hopper"].response)
    assert found.period_s == 0.0201
    assert found.origin == "nominal"


def test_differences_of_a_counter_are_the_mean_since_the_reading_before():
    found = response_of(nominal(period_s=0.05, window_s=0.05, delay_s=0.025))
    assert shape(found) == (0.05, 0.0, 0.0)
    assert found.stamp_grid == 0
    assert found.delay_s == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"period_s": 0.1, "window_s": 1.0, "gapless": True}, "average_1s"),
        ({"period_s": 0.1, "window_s": 0.025, "gapless": False}, "ampere_datacenter"),
        ({"period_s": 0.1, "window_s": None, "gapless": None}, "ampere_datacenter"),
        ({"period_s": 0.02, "window_s": None, "gapless": None}, "volta"),
    ],
)
def test_sensors_are_known_by_how_they_are_read(facts, kind):
    assert shape(response_of(nominal(**facts))) == shape(KINDS[kind].response)
    assert response_of(nominal(**facts)).covariance == KINDS[kind].response.covariance


def test_the_end_of_a_window_needs_as_much_record_as_the_sensor_remembers():
    assert 0.1 < tail_s(nominal()) < 0.5
    assert tail_s(nominal(period_s=0.1, window_s=1.0)) > 2.0
    assert tail_s(channel("temperature_c")) == 0.0


POLLED = {"response": {}, "period_s": 0.1, "window_s": 0.025, "gapless": False}


def test_a_polled_sensor_is_read_once_an_update():
    rows = readings(lambda t: 100.0 + np.floor(t / 0.1 + 0.2), 5)
    record, _ = power_record(make_run(rows, channels=[channel(**POLLED)]), DEVICE)
    assert len(rows) == 251
    assert len(record) == pytest.approx(50, abs=1)
    assert np.all(np.diff(record.value) == 1)


@pytest.mark.thorough
def test_a_gpu_at_rest_whose_readings_repeat_leaves_no_hole():
    rows = readings(lambda t: np.where(t < 2, 80.0, 300.0), 12)
    run = make_run(rows, channels=[channel(**POLLED)])
    record, _ = power_record(run, DEVICE)
    assert len(record.holes) == 0
    assert np.diff(record.time_ns).max() < 0.16e9
    assert set(record.value) == {80.0, 300.0}
    assert record.time_ns[0] < ns(0.1)
    assert window_estimate(run, DEVICE, ns(4), ns(10)).value == pytest.approx(1800.0, rel=1e-3)


def test_a_gpu_that_never_changes_is_read_nevertheless():
    record, _ = power_record(make_run(readings(80.0, 3), channels=[channel(**POLLED)]), DEVICE)
    assert len(record) == pytest.approx(30, abs=2)


def test_a_clock_that_steps_back_while_a_sensor_is_polled_leaves_out_what_it_had_twice():
    """30 s of 100 W, of which the last 15 s are stamped 5 s early: 25 s are there, 5 of them twice."""
    rows = readings(lambda t: 100.0 + np.floor(t / 0.1) % 2, 30)
    for row in rows[len(rows) // 2 :]:
        row["time_ns"] -= 5 * 10**9
    record, _ = power_record(make_run(rows, channels=[channel(**POLLED)]), DEVICE)
    assert record.issues["clock_stepped_back"] == 1
    assert np.diff(record.holes).ravel() == pytest.approx([5e9], rel=0.05)
    assert len(record) == pytest.approx(200, abs=3)


def test_time_in_which_no_one_polled_stays_a_hole():
    rows = readings(lambda t: 300.0 + np.floor(t / 0.1), 8, without=[(4.0, 6.0)])
    flat = readings(300.0, 8, without=[(4.0, 6.0)])
    for each in (rows, flat):
        record, _ = power_record(make_run(each, channels=[channel(**POLLED)]), DEVICE)
        assert len(record.holes) == 1
        assert np.diff(record.holes[0])[0] == pytest.approx(2e9, rel=0.15)


def test_a_device_without_power_says_why():
    run = make_run([], channels=[])
    assert power_record(run, DEVICE) is None
    assert no_power_reason(run, DEVICE) == "no_power_sensor"
    run.devices[0].details["no_power"] = "rapl_absent"
    assert window_estimate(run, DEVICE, ns(1), ns(2)).reason == "rapl_absent"
    assert no_power_reason(run, "another") == "no_power_sensor"


def test_a_block_of_a_steady_load():
    found = window_estimate(make_run(readings(250.0, 10, noise=0.3)), DEVICE, ns(3), ns(7))
    assert found.value == pytest.approx(1000.0, rel=2e-3)
    assert found.low <= 1000.0 <= found.high
    assert (found.n, found.method) == (1, "window")


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [(3.0, 3.0, "empty_window"), (8.0, 12.0, "outside_record"), (4.0, 5.0, "hole_in_record")],
)
def test_a_block_that_the_record_cannot_speak_for_is_null_never_zero(start, end, reason):
    run = make_run(readings(250.0, 10, without=[(4.2, 4.6)]))
    found = window_estimate(run, DEVICE, ns(start), ns(end))
    assert (found.value, found.reason) == (None, reason)


@pytest.mark.thorough
def test_a_block_shorter_than_the_sensor_can_see_is_null():
    run = make_run(readings(100.0, 10, period_s=0.1, noise=1.0), channels=[channel(**POLLED)])
    assert window_estimate(run, DEVICE, ns(3.0), ns(3.01)).reason == "sensor_too_slow"


@pytest.mark.thorough
def test_a_block_shorter_than_one_update_is_null_however_calm_the_record():
    run = make_run(readings(250.0, 10, noise=0.1))
    assert window_estimate(run, DEVICE, ns(3.0), ns(3.019)).reason == "sensor_too_slow"
    assert window_estimate(run, DEVICE, ns(3.0), ns(3.1)).value == pytest.approx(25.0, rel=0.02)


def test_flags_are_joined_each_once_in_order():
    assert join([("b", "a"), (), ("a", "c")]) == ["b", "a", "c"]


def test_whatever_is_left_out_of_a_record_is_counted_in_a_warning(monkeypatch):
    module = sys.modules["jouletrace.analysis.analyse"]
    run = monitor_run()
    record, response = power_record(run, run.devices[0].id)
    torn = replace(record, issues={"glitches_of_some_kind": 4, "duplicate": 9, "nan": 2})
    monkeypatch.setattr(module, "power_record", lambda *_: (torn, response))
    module._warn_of_record(run)
    said = {one.code: one.message for one in run.warnings}
    assert said["record_glitches_of_some_kind"] == "4 readings were left out (glitches of some kind)"
    assert said["record_nan"].startswith("2 readings")
    assert "record_duplicate" not in said


@pytest.mark.parametrize("years", [0, 3, 90])
def test_a_stamp_years_away_costs_no_memory_and_moves_no_other_reading(years):
    rows = readings(lambda t: np.where(t < 2, 80.0, 300.0), 12)
    stamps, values = (np.array([row[key] for row in rows]) for key in ("time_ns", "value"))
    plain = published(stamps, values, 0.1)
    stamps, values = np.append(stamps, stamps[-1] + years * 31_536_000 * 10**9 + 10**8), np.append(values, 300.0)
    tracemalloc.start()
    times, watts = published(stamps, values, 0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e6
    assert np.array_equal(times[: len(plain[0]) - 2], plain[0][:-2])
    assert set(watts) == {80.0, 300.0}


@pytest.mark.thorough
def test_windows_of_one_reading_get_a_wide_interval_or_a_reason():
    """Figures of ``measure`` of blocks that the sensor hardly sees; below one reading it says nothing."""
    device = SimulatedGpu("sim:h100?seed=2&sensor=sampled")
    rng, spans = np.random.default_rng(1), []
    step = [SimKernel("high", 0.0013, 480.0), SimKernel("low", 0.0009, 100.0)]
    with recording(device) as session:
        session.clock.sleep(1.0)
        for seconds in [0.011] * 5 + [0.02, 0.025, 0.03, 0.04] * 5:
            spans.append(device.board.run(step, math.ceil(seconds / 0.0022)))
            session.clock.sleep(float(rng.uniform(0.4, 0.6)))
    found = [(window_estimate(session.run, device.info.id, *span), span) for span in spans]
    assert {one.reason for one, _ in found[:5]} == {"sensor_too_slow"}
    assert {one.reason for one, _ in found[5:]} <= {None, "sensor_too_slow"}
    there = [(one, device.truth.caused_energy_j(*span)) for one, span in found[5:] if one.value is not None]
    assert sum(one.low <= truth <= one.high for one, truth in there) >= fewest(len(there))
    halves = [one.half_width / one.value for one, _ in there]
    assert np.median(halves) > 0.03, halves


@pytest.mark.thorough
def test_a_stored_sample_rate_proves_that_a_load_near_another_rate_is_not_aliased():
    """An iteration of 0.797 ms has the rate of 1255 samples per second; this GPU may take 1222, or it is known to."""
    rows = readings(lambda t: np.where((t > 1.0) & (t <= 3.0), 500.0, 130.0), 4.0, noise=0.3)
    run = make_run(rows, channels=[nominal(sensor="hopper")])
    span = ns(1.0), ns(3.0)
    free = energies(run, DEVICE, *span, period_s=0.797e-3)
    run.stored["sample_rate_hz"] = {DEVICE: {"value": 1222.5}}
    known = energies(run, DEVICE, *span, period_s=0.797e-3)
    assert free.hidden([1.0]) > 0.05 > known.hidden([1.0])
