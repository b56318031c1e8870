"""The SM clock as told and as counted: what conditions state, and what is warned of."""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.clocks import warn_if_not_as_told
from jouletrace.analysis.conditions import conditions
from jouletrace.compare.paired import paired
from jouletrace.profiler.repeats import merge
from jouletrace.run import load, save, tables
from make_runs import gpu
from records import DEVICE, iterations, make_run, phases, readings, windows

EDGES = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]


def profile(counted=1652.0, told=1790.0, variant="untouched", before=1980.0):
    """A profile with eight windows from 5 s to 9 s; ``before`` them the driver told another clock."""
    rows = readings(lambda t: np.where((t < 5) | (t > 9), 120.0, 420.0), 11, noise=0.3)
    if told is not None:
        rows += readings(lambda t: np.where(t < 4.9, before, told), 11, name="clock_sm_mhz", period_s=0.1)
    values = [counted] * len(EDGES) if np.isscalar(counted) or counted is None else counted
    made = [
        {**row, "counted_mhz": mhz}
        for row, mhz in zip(windows(EDGES, replays=50, variant=variant), values, strict=True)
    ]
    spans = phases(("latency", 4.0, 5.0), ("energy", 5.0, 9.0)) + iterations(100, 0.01, 4.0)
    return make_run(rows, spans=spans, window_rows=made)


def codes(run):
    return [warning.code for warning in run.warnings]


def test_the_counted_clock_is_that_of_the_workloads_windows():
    found = conditions(profile([1640.0, None, 1650.0, 1660.0, float("nan"), None, None, None]))["clocks_mhz"]
    assert found["sm_counted"] == {"mean": 1650.0, "min": 1640.0, "max": 1660.0}
    assert found["sm"]["mean"] == 1790.0


def test_windows_of_experiments_on_parts_do_not_count():
    run = profile()
    rows = run.windows.to_pylist()
    others = [{**rows[0], "variant": name, "counted_mhz": 1000.0} for name in ("step", "remove", "segment", "flush")]
    run.windows = tables.from_rows(rows + others, "windows")
    assert conditions(run)["clocks_mhz"]["sm_counted"] == {"mean": 1652.0, "min": 1652.0, "max": 1652.0}


def test_what_was_not_counted_is_none():
    assert conditions(profile(None))["clocks_mhz"]["sm_counted"] is None
    assert conditions(profile(variant="step"))["clocks_mhz"]["sm_counted"] is None


def test_windows_are_of_the_first_device():
    run = profile()
    run.devices.append(gpu())
    assert conditions(run, DEVICE)["clocks_mhz"]["sm_counted"]["mean"] == 1652.0
    assert conditions(run, gpu().id)["clocks_mhz"]["sm_counted"] is None


def test_a_clock_that_is_not_as_told_is_said_with_how_far_off_it_is():
    run = analyse(profile())
    (warning,) = run.warnings
    assert warning.code == "clock_not_as_told"
    assert warning.where == DEVICE
    assert warning.message == (
        "the SMs ran 8 % slower than the driver tells, by their own cycle counters: "
        "take the counted clock for figures per clock (FLOP per cycle, boards at equal clocks)"
    )
    assert "\n" not in warning.message
    assert "2 % faster" in analyse(profile(1826.0)).warnings[0].message


@pytest.mark.parametrize(("counted", "said"), [(1773.0, False), (1771.0, True), (1807.0, False), (1809.0, True)])
def test_up_to_one_percent_is_as_told(counted, said):
    assert (codes(analyse(profile(counted))) == ["clock_not_as_told"]) is said


@pytest.mark.parametrize(("counted", "told"), [(None, 1790.0), (1652.0, None)])
def test_nothing_is_said_where_one_of_both_is_not_known(counted, told):
    assert codes(analyse(profile(counted, told))) == []


def test_what_may_be_chance_is_not_said():
    apart = 1790.0 * (1 + np.array([0.06, -0.05, 0.07, -0.04, 0.05, -0.06, 0.06, 0.0]))
    assert apart.mean() / 1790 - 1 > 0.01
    assert codes(analyse(profile(list(apart)))) == []
    assert codes(analyse(profile(list(1790 * 1.05 + 0.2 * (apart - 1790))))) == ["clock_not_as_told"]
    assert codes(analyse(profile([1652.0] + [None] * 7))) == [], "one window says nothing of chance"


def test_a_clock_that_swings_may_be_polled_at_the_same_point_of_each_swing():
    def swinging(share):
        rows = profile(1790 * 1.03, told=None)
        told = readings(
            lambda t: 1790 * (1 + share * (np.floor(10 * t + 0.25) % 2 - 0.5)), 11, name="clock_sm_mhz", period_s=0.1
        )
        rows.samples = tables.from_rows([*rows.samples.to_pylist(), *told], "samples")
        return rows

    assert codes(analyse(swinging(0.1))) == []
    assert codes(analyse(swinging(0.02))) == ["clock_not_as_told"]


def test_only_windows_are_held_against_one_another():
    run = profile(1790.0, before=1400.0)
    run.spans = tables.from_rows(phases(("energy", 1.0, 9.0)), "spans")
    assert conditions(run)["clocks_mhz"]["sm"]["mean"] < 1700, "what the phase holds besides its windows"
    assert codes(analyse(run)) == []


def test_windows_that_were_not_counted_are_not_held_against_what_was_told_in_them():
    run = profile([1790.0] * 4 + [None] * 4)
    rows = run.samples.to_pylist()
    late = [row for row in rows if row["channel"] == "clock_sm_mhz"][-35:]
    for row in late:
        row["value"] = 1000.0
    run.samples = tables.from_rows(rows, "samples")
    assert codes(analyse(run)) == []


def test_it_is_said_once_however_often_it_is_computed(tmp_path):
    run = analyse(profile())
    again = load(save(run, tmp_path / "run"))
    assert codes(analyse(analyse(again))) == ["clock_not_as_told"]
    assert again.windows["counted_mhz"].to_pylist() == [1652.0] * len(EDGES)


def test_repeats_together_say_it_once():
    repeats = [analyse(profile(counted)) for counted in (1652.0, 1600.0)]
    assert len({run.warnings[0].message for run in repeats}) == 2
    merged = merge([repeats[0], later(repeats[1])])
    assert len(merged.warnings) == 2
    assert [warning.message for warning in analyse(merged).warnings] == [
        repeats[0].warnings[0].message.replace("8 %", "9 %")
    ]


def later(run, by_ns=60_000_000_000):
    """The same a minute later."""
    for name in ("samples", "spans", "windows"):
        rows = [
            {key: value + by_ns if key.endswith("_ns") else value for key, value in row.items()}
            for row in run.table(name).to_pylist()
        ]
        setattr(run, name, tables.from_rows(rows, name))
    return run


def test_each_side_of_ab_is_held_against_what_was_told_of_it():
    run = profile()
    rows = [{**row, "variant": "ab"[i % 2], "block": i // 4} for i, row in enumerate(run.windows.to_pylist())]
    for row in rows:
        row["counted_mhz"] = 1788.0 if row["variant"] == "a" else 1652.0
    run.windows, run.kind = tables.from_rows(rows, "windows"), "ab"
    assert conditions(run)["clocks_mhz"]["sm_counted"] == {"mean": 1720.0, "min": 1652.0, "max": 1788.0}
    (message,) = paired(run).warnings
    assert message.startswith("B: the SMs ran 8 % slower than the driver tells")
    warn_if_not_as_told(run)
    assert codes(run) == ["clock_not_as_told"]
