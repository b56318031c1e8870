"""Readings that a tool wrote in several rows count once; those that repeat since they are rounded count as they did."""

import json

import numpy as np
import pytest

from commands import done
from held_logs import Collector, Load, asked, check_intervals, logs, period_s, table
from jouletrace.analysis import power_record


@pytest.mark.thorough
@pytest.mark.parametrize(("collector_s", "row_s"), [(30, 5), (120, 30)])
def test_intervals_are_those_of_each_reading_once(tmp_path, collector_s, row_s):
    check_intervals(tmp_path, collector_s, row_s, table)


@pytest.mark.thorough
@pytest.mark.parametrize("row_s", [0.01, 0.1])
def test_a_meter_of_unknown_kind_counts_its_updates(tmp_path, row_s):
    """Of an update each 100 ms, polled each 10 ms."""
    run, _, _ = logs(tmp_path, 1, 0.1, row_s, table, seconds=60)
    assert period_s(run) == pytest.approx(0.1, rel=0.02)
    assert len(power_record(run, run.devices[0].id)[0]) == pytest.approx(600, abs=3)


@pytest.mark.thorough
def test_what_is_shown_says_how_often_readings_are_new(tmp_path):
    rng = np.random.default_rng(0)
    rows_s = np.arange(0.0, 900)
    path = table(tmp_path / "log.csv", (rows_s, asked(*Collector().readings(rng, Load.drawn(rng, 1000), 900), rows_s)))
    said = done("import", str(path), "-o", str(tmp_path / "run"), "-v")
    assert "a new reading every 30 s" in " ".join(said.out.split())
    fact = json.loads(done("show", str(tmp_path / "run"), "--format", "json").out)
    assert "readings_repeated" in {warning["code"] for warning in fact["warnings"]}
    assert fact["sensors"][0]["period_ms"] == pytest.approx(30_000)
