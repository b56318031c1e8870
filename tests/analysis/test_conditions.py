"""Conditions: what the sensors said while energy was measured, and nothing else."""

from dataclasses import replace

import pytest

from jouletrace.analysis.conditions import conditions
from jouletrace.analysis.facts import facts_of
from jouletrace.report import facts, to_json_object, trust
from jouletrace.run import Parts, Run, tables
from make_runs import GPU, START, cpu_run, gpu, profile_run

SECOND = 1_000_000_000


def run_of(readings, phases=()):
    """Readings are (second, channel, value); phases (name, start, end) in seconds."""
    rows = [{"time_ns": START + int(t * SECOND), "device": GPU, "channel": c, "value": v} for t, c, v in readings]
    spans = [
        {"id": i, "kind": "phase", "name": name, "start_ns": START + a * SECOND, "end_ns": START + b * SECOND}
        for i, (name, a, b) in enumerate(phases)
    ]
    return Run(devices=[gpu()], samples=tables.from_rows(rows, "samples"), spans=tables.from_rows(spans, "spans"))


def test_only_the_energy_phases_count():
    readings = [(t, "clock_sm_mhz", 1000.0 + t) for t in range(10)]
    run = run_of(readings, [("warm-up", 0, 2), ("energy", 3, 4), ("energy", 7, 8), ("latency", 5, 6)])
    assert conditions(run)["clocks_mhz"]["sm_reported"] == {"mean": 1005.5, "min": 1003.0, "max": 1008.0}


def test_without_an_energy_phase_the_whole_run_counts():
    run = run_of([(t, "temperature_c", 40.0 + t) for t in (3, 0, 1, 2)])
    assert conditions(run)["temperature_c"] == {"start": 40.0, "end": 43.0, "mean": 41.5, "max": 43.0}


def test_throttle_reasons_have_their_share_of_the_time():
    bits = [0x4 | 0x20] * 3 + [0x4] * 2 + [0x1] * 4 + [0x0]
    run = run_of([(t, "throttle_bits", float(b)) for t, b in enumerate(bits)])
    assert conditions(run)["throttle_reasons"] == {"sw_power_cap": pytest.approx(0.5), "sw_thermal": pytest.approx(0.3)}
    assert list(conditions(run)["throttle_reasons"]) == ["sw_power_cap", "sw_thermal"]


def test_not_throttled_and_not_known_are_distinguished():
    assert conditions(run_of([(0, "throttle_bits", 1.0)]))["throttle_reasons"] == {}
    assert conditions(run_of([]))["throttle_reasons"] is None


def test_what_the_device_does_not_report_is_none():
    assert conditions(cpu_run()) == {
        "clocks_mhz": {"sm_reported": None, "sm_measured": None, "memory": None},
        "temperature_c": None,
        "throttle_reasons": None,
        "power_limit_w": None,
    }
    assert conditions(Run())["clocks_mhz"] == {"sm_reported": None, "sm_measured": None, "memory": None}


def test_a_phase_without_readings_is_not_filled_from_outside():
    run = run_of([(0, "temperature_c", 40.0), (9, "temperature_c", 50.0)], [("energy", 3, 4)])
    assert conditions(run)["temperature_c"] is None


def test_they_are_of_the_first_device():
    run = run_of([(0, "temperature_c", 40.0)])
    run.devices.append(gpu(id="GPU-other", power_limit_w=350.0))
    assert conditions(run)["power_limit_w"] == 700.0


def test_readings_that_are_no_numbers_are_left_out():
    run = run_of([(0, "clock_sm_mhz", float("nan")), (1, "clock_sm_mhz", 1500.0)])
    assert conditions(run)["clocks_mhz"]["sm_reported"] == {"mean": 1500.0, "min": 1500.0, "max": 1500.0}


def test_a_profile_has_them_all():
    found = conditions(profile_run())
    assert found["power_limit_w"] == 700.0
    assert found["clocks_mhz"]["memory"] == {"mean": 2619.0, "min": 2619.0, "max": 2619.0}
    assert 51 < found["temperature_c"]["start"] < found["temperature_c"]["end"] < 54
    assert 0.7 < found["throttle_reasons"]["sw_power_cap"] < 0.8


def test_conditions_of_several_gpus_are_stated_of_each_and_the_odd_ones_are_named():
    hot = {"b": 0x20, "c": 0x20}
    readings = [(t, device, "throttle_bits", float(hot.get(device, 0) * (t < 4))) for device in "abc" for t in range(8)]
    readings += [(t, device, "temperature_c", 88.0 if device == "c" else 60.0) for device in "abc" for t in range(8)]
    rows = [{"time_ns": START + t * SECOND, "device": d, "channel": c, "value": v} for t, d, c, v in readings]
    devices = [replace(gpu(), id=id, index=index) for index, id in enumerate("abc")]
    run = Run(kind="import", devices=devices, samples=tables.from_rows(rows, "samples"))
    known = facts_of(run, Parts(run))
    (said,) = [one for one in trust.lines(known.checks) if "clocks" in one]
    assert (
        said.split("#", 1)[1].replace("\xa0", " ").startswith("1, #2: clocks lowered up to 50 % of the time (software")
    )
    lines = [f"{name} {text}".replace("\xa0", " ") for name, text in facts.condition_lines(run, known.conditions_of)]
    assert lines == [
        "Temperature #0, #1: 60 °C",
        "Temperature #2: 88 °C",
        "Throttling #0: none",
        "Throttling #1, #2: software thermal limit 50 % of the time",
    ]
    found = to_json_object(run)
    assert [one["conditions"]["temperature_c"]["max"] for one in found["devices"]] == [60.0, 60.0, 88.0]
