"""The SM clock as reported and as measured, in conditions."""

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.analysis.conditions import conditions
from jouletrace.run import tables
from make_runs import gpu
from records import iterations, make_run, phases, readings, windows

EDGES = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]


def profile(counted=1652.0, reported=1790.0, variant="untouched", before=1980.0):
    """A profile with eight windows from 5 s to 9 s; ``before`` them the driver reported another clock."""
    rows = readings(lambda t: np.where((t < 5) | (t > 9), 120.0, 420.0), 11, noise=0.3)
    if reported is not None:
        rows += readings(lambda t: np.where(t < 4.9, before, reported), 11, name="clock_sm_mhz", period_s=0.1)
    values = [counted] * len(EDGES) if np.isscalar(counted) or counted is None else counted
    made = [
        {**row, "counted_mhz": mhz}
        for row, mhz in zip(windows(EDGES, replays=50, variant=variant), values, strict=True)
    ]
    spans = phases(("latency", 4.0, 5.0), ("energy", 5.0, 9.0)) + iterations(100, 0.01, 4.0)
    return make_run(rows, spans=spans, window_rows=made)


def codes(run):
    return [warning.code for warning in run.warnings]


def test_the_measured_clock_is_that_of_the_workloads_windows():
    found = conditions(profile([1640.0, None, 1650.0, 1660.0, float("nan"), None, None, None]))["clocks_mhz"]
    assert found["sm_measured"] == {"mean": 1650.0, "min": 1640.0, "max": 1660.0}
    assert found["sm_reported"]["mean"] == 1790.0


def test_windows_of_experiments_on_parts_do_not_count():
    run = profile()
    rows = run.windows.to_pylist()
    others = [{**rows[0], "variant": name, "counted_mhz": 1000.0} for name in ("step", "remove", "segment", "flush")]
    run.windows = tables.from_rows(rows + others, "windows")
    assert conditions(run)["clocks_mhz"]["sm_measured"] == {"mean": 1652.0, "min": 1652.0, "max": 1652.0}


def test_what_was_not_counted_is_none():
    assert conditions(profile(None))["clocks_mhz"]["sm_measured"] is None
    assert conditions(profile(variant="step"))["clocks_mhz"]["sm_measured"] is None


def test_windows_are_of_the_first_device():
    run = profile()
    run.devices.append(gpu())
    assert conditions(run)["clocks_mhz"]["sm_measured"]["mean"] == 1652.0


def test_both_sides_of_ab_are_in_the_measured_clock():
    run = profile()
    rows = [{**row, "variant": "ab"[i % 2], "block": i // 4} for i, row in enumerate(run.windows.to_pylist())]
    for row in rows:
        row["counted_mhz"] = 1788.0 if row["variant"] == "a" else 1652.0
    run.windows, run.kind = tables.from_rows(rows, "windows"), "ab"
    assert conditions(run)["clocks_mhz"]["sm_measured"] == {"mean": 1720.0, "min": 1652.0, "max": 1788.0}


def test_a_reported_clock_that_did_not_run_is_stated_and_requests_nothing():
    assert analyse(profile()).warnings == []
