"""The whole model's figures, from records whose joules are known."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import load, save, tables
from jouletrace.sensor.calibration import StepResponse
from jouletrace.stats import Z95, student
from records import DEVICE, EXACT, START, channel, iterations, make_run, ns, phases, readings, windows

IDLE, CONTEXT, LOAD = 70.0, 120.0, 420.0
PHASES = (
    ("deep idle", 0.0, 2.0),
    ("context idle before", 2.0, 4.0),
    ("latency", 4.0, 5.0),
    ("energy", 5.0, 9.0),
    ("context idle after", 9.0, 11.0),
)
EDGES = [(5.0 + 0.5 * i, 5.5 + 0.5 * i) for i in range(8)]
NULLS = (
    "power_w",
    "energy_total_j",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
    "baseline_context_idle_w",
    "baseline_deep_idle_w",
    "counter_ratio",
)


def course(t):
    """A profile's power: deep idle, context idle, the load from 4 s to 9 s, context idle."""
    return np.select([t < 2, t < 4, t < 9], [IDLE, CONTEXT, LOAD], CONTEXT)


def profile(rows=None, **changes):
    facts = {
        "spans": phases(*PHASES) + iterations(100, 0.01, 4.0),
        "window_rows": windows(EDGES, replays=50),
        "workload": {"name": "toy", "items": 8},
        "settings": {"first_stage": 8, "target_ci": 0.01},
    }
    return make_run(readings(course, 11, noise=0.3) if rows is None else rows, **{**facts, **changes})


def counter(watts, seconds, start=0.0):
    """A counter that steps every 100 ms, read as often."""
    joules = 1000.0
    rows = []
    for i in range(round(seconds * 10)):
        rows.append({"time_ns": ns(start + i / 10), "device": DEVICE, "channel": "energy_counter_j", "value": joules})
        joules += 0.1 * float(watts(np.array([start + (i + 0.5) / 10]))[0])
    return rows


@pytest.mark.thorough
def test_every_figure_of_a_profile():
    run = analyse(profile())
    figure = run.result
    assert figure("latency_s").value == pytest.approx(0.01)
    assert figure("iteration_time_s").value == pytest.approx(0.01)
    assert figure("throughput_per_s").value == pytest.approx(800.0)
    assert figure("power_w").value == pytest.approx(LOAD, rel=1e-3)
    assert figure("energy_total_j").value == pytest.approx(LOAD * 0.01, rel=1e-3)
    assert figure("baseline_context_idle_w").value == pytest.approx(CONTEXT, rel=2e-3)
    assert figure("baseline_deep_idle_w").value == pytest.approx(IDLE, rel=2e-3)
    assert figure("energy_active_over_context_idle_j").value == pytest.approx(3.0, rel=2e-3)
    assert figure("energy_active_over_deep_idle_j").value == pytest.approx(3.5, rel=2e-3)
    assert (figure("energy_total_j").n, figure("energy_total_j").method) == (8, "windows")
    assert run.result("energy_total_j").flags == ()
    assert run.warnings == []


@pytest.mark.thorough
def test_an_active_energy_is_less_certain_than_its_total():
    run = analyse(profile(readings(course, 11, noise=2.0)))
    total, active = run.result("energy_total_j"), run.result("energy_active_over_context_idle_j")
    assert active.half_width >= total.half_width
    assert active.low <= 3.0 <= active.high


def bursts(t):
    """Bursts of half a second, a second apart, from 5 s on."""
    return np.where((t >= 5) & (t < 13) & ((t - 5) % 1 < 0.5), LOAD, CONTEXT)


def bursting(noise=0.3, response=None, before=CONTEXT, after=CONTEXT):
    """A profile whose windows are bursts, with context idle at these levels before and after."""

    def watts(t):
        return np.select([t < 4, t < 14], [before, bursts(t)], after)

    rows = windows([(5.0 + i, 5.5 + i) for i in range(8)], replays=50)
    spans = phases(("context idle before", 0.0, 4.0), ("energy", 5.0, 13.0), ("context idle after", 14.0, 18.0))
    channels = [channel() if response is None else channel(response=response)]
    return analyse(profile(readings(watts, 18, noise=noise), window_rows=rows, spans=spans, channels=channels))


@pytest.mark.thorough
def test_what_windows_share_is_in_energies_and_power_in_full():
    """Of eight windows' spread the mean has an eighth of the variance; what they share it has in full."""
    run = bursting(response=replace(StepResponse.from_dict(EXACT), noise_w=0.3).to_dict())
    for metric in ("energy_total_j", "power_w", "energy_active_over_context_idle_j"):
        figure = run.result(metric)
        sources = dict(figure.budget)
        own = student(0.975, 7) * sources.pop("scatter of windows")
        assert figure.half_width == pytest.approx(math.hypot(own, *(Z95 * u for u in sources.values())))
        assert figure.half_width > 1.1 * own


def test_what_is_not_known_of_the_baseline_is_in_active_energy():
    """Context idle at 116 W before and 124 W after: no one saw it in between, and active energy is no surer."""
    run = bursting(before=CONTEXT - 4, after=CONTEXT + 4)
    total, level = run.result("energy_total_j"), run.result("baseline_context_idle_w")
    active = run.result("energy_active_over_context_idle_j")
    assert level.half_width == pytest.approx(4.0, rel=0.02)
    of_baseline = level.half_width * run.result("iteration_time_s").value
    assert active.half_width == pytest.approx(np.hypot(total.half_width, of_baseline), rel=0.1)
    assert of_baseline > 3 * total.half_width


@pytest.mark.thorough
def test_what_is_not_known_of_the_total_is_in_active_energy():
    run = bursting(noise=10.0)
    total, active = run.result("energy_total_j"), run.result("energy_active_over_context_idle_j")
    assert active.half_width == pytest.approx(total.half_width, rel=0.2)


def test_the_same_tables_give_the_same_figures_again(tmp_path):
    run = analyse(profile())
    first, warnings = run.results, list(run.warnings)
    assert analyse(run).results.equals(first)
    assert run.warnings == warnings
    run.results, run.units = tables.empty("results"), tables.empty("units")
    assert analyse(load(save(run, tmp_path / "run"))).results.equals(first)


def test_without_power_every_figure_that_needs_it_has_one_reason():
    run = profile([], channels=[], window_rows=[])
    run.devices[0].details["no_power"] = "rapl_absent"
    analyse(run)
    assert {run.result(metric).reason for metric in NULLS} == {"rapl_absent"}
    assert run.result("latency_s").value == pytest.approx(0.01)
    assert run.result("throughput_per_s").value == pytest.approx(800.0, rel=1e-6)
    assert "iteration_time_s" not in run.results["metric"].to_pylist()


def test_a_run_that_ended_before_its_windows_was_not_measured():
    run = analyse(profile(window_rows=[]))
    assert run.result("energy_total_j").reason == "not_measured"
    assert run.result("power_w").reason == "not_measured"


@pytest.mark.thorough
def test_windows_without_a_figure_are_left_out_and_said():
    rows = readings(course, 11, noise=0.3, without=[(6.1, 6.4)])
    run = analyse(profile(rows))
    assert run.result("energy_total_j").n == 7
    assert run.result("power_w").n == 7
    assert run.result("power_w").value == pytest.approx(LOAD, rel=2e-3)
    assert "windows_left_out" in run.result("energy_total_j").flags
    assert [w.code for w in run.warnings] == ["hole_in_record"]


def test_where_no_window_has_a_figure_the_commonest_reason_is_given():
    run = analyse(profile(readings(course, 11, without=[(4.9, 9.1)])))
    for metric in ("energy_total_j", "power_w", "energy_active_over_context_idle_j"):
        assert run.result(metric).reason == "hole_in_record"


def test_a_hole_between_phases_harms_no_figure():
    spans = phases(("context idle before", 2.0, 4.0), ("energy", 5.0, 9.0)) + iterations(100, 0.01, 5.0)
    run = analyse(profile(readings(course, 11, noise=0.3, without=[(4.3, 4.8)]), spans=spans))
    assert run.warnings == []


@pytest.mark.thorough
def test_fewer_windows_than_wanted_are_flagged():
    run = analyse(profile(window_rows=windows(EDGES[:4], replays=50)))
    assert run.result("energy_total_j").flags == ("few_windows",)
    assert run.result("energy_total_j").n == 4


@pytest.mark.thorough
def test_an_interval_that_time_did_not_allow_is_flagged():
    steps = readings(lambda t: LOAD * (1 + 0.1 * (np.floor(2 * t) % 2)), 11)
    run = analyse(profile(steps))
    assert run.result("energy_total_j").half_width > 0.01 * run.result("energy_total_j").value
    assert "target_not_met" in run.result("energy_total_j").flags
    assert "target_not_met" not in analyse(profile(steps, settings={"first_stage": 8})).result("energy_total_j").flags


@pytest.mark.thorough
def test_spread_within_and_between_runs_is_distinguished():
    """Three runs at 400, 420 and 440 W, two windows each that differ by 4 W."""
    levels = [398.0, 402.0, 418.0, 422.0, 438.0, 442.0]
    edges = [(2.0 + i, 3.0 + i) for i in range(6)]
    rows = readings(lambda t: np.array(levels)[np.clip(np.floor(t - 2).astype(int), 0, 5)], 9)
    found = [row for i, edge in enumerate(edges) for row in windows([edge], replays=100, block=i // 2)]
    for order, row in enumerate(found):
        row["order"] = order
    run = analyse(profile(rows, window_rows=found, spans=phases(("energy", 2.0, 8.0))))
    assert run.result("energy_total_j").value == pytest.approx(4.2, rel=1e-3)
    assert (run.result("energy_total_j").n, run.result("energy_total_j").method) == (3, "runs")
    within = run.result("energy_total_spread_within_pct").value
    between = run.result("energy_total_spread_between_pct").value
    assert within == pytest.approx(100 * np.sqrt(8) / 420, rel=0.02)
    assert between == pytest.approx(100 * 20 / 420, rel=0.01)


@pytest.mark.thorough
def test_one_window_a_run_has_a_spread_between_runs_only():
    rows = readings(lambda t: 400 + 10.0 * np.floor(t - 2), 9)
    found = [row for i in range(3) for row in windows([(2.0 + i, 3.0 + i)], block=i)]
    run = analyse(profile(rows, window_rows=found, spans=phases(("energy", 2.0, 5.0))))
    metrics = run.results["metric"].to_pylist()
    assert "energy_total_spread_between_pct" in metrics
    assert "energy_total_spread_within_pct" not in metrics


def test_the_record_agrees_with_the_counter():
    channels = [channel(), channel("energy_counter_j", period_s=0.1)]
    run = analyse(profile(readings(course, 11, noise=0.3) + counter(course, 11), channels=channels))
    ratio = run.result("counter_ratio")
    assert ratio.low <= 1.0 <= ratio.high
    assert ratio.half_width < 0.05


def test_the_counter_is_compared_over_the_longest_segment_without_a_hole():
    channels = [channel(), channel("energy_counter_j", period_s=0.1)]
    rows = readings(course, 11, noise=0.3, without=[(2.5, 3.2)]) + counter(course, 11)
    ratio = analyse(profile(rows, channels=channels)).result("counter_ratio")
    assert ratio.reason is None
    assert ratio.low <= 1.0 <= ratio.high


def test_without_a_counter_there_is_nothing_to_compare():
    assert analyse(profile()).result("counter_ratio").reason == "no_counter"


@pytest.mark.parametrize(
    ("seconds", "gained_s", "said"),
    [
        (11, 0.0, False),
        (11, 0.03, False),
        (11, -3600.0, True),
        (11, 0.5, True),
        (600, 0.3, False),  # a time daemon slews by 500 ppm (adjtimex(2)): 0.3 s in ten minutes
        (600, 1.5, True),
    ],
)
def test_a_clock_that_was_set_is_reported(seconds, gained_s, said):
    pairs = [
        {"time_ns": START, "monotonic_ns": 7},
        {"time_ns": ns(seconds + gained_s), "monotonic_ns": 7 + seconds * 1_000_000_000},
    ]
    codes = [warning.code for warning in analyse(profile(clock_pairs=pairs)).warnings]
    assert codes == (["clock_stepped"] if said else [])


def test_readings_that_are_no_numbers_are_counted():
    rows = readings(course, 11, noise=0.3)
    rows[40]["value"] = float("nan")
    rows[60]["value"] = -5.0
    codes = {warning.code for warning in analyse(profile(rows)).warnings}
    assert {"record_nan", "record_negative"} <= codes


@pytest.mark.thorough
def test_a_sensor_that_is_not_calibrated_is_flagged():
    run = analyse(profile(channels=[channel(response={})]))
    # iterations of 10 ms alias with the nominal response's readings every 20 ms
    assert set(run.result("energy_total_j").flags) == {"nominal_response", "aliased_with_sensor"}
    assert "nominal_response" in run.result("energy_active_over_context_idle_j").flags
    assert run.result("baseline_context_idle_w").flags == ()


def test_windows_that_pause_for_an_iteration_in_all_alias_with_nothing():
    run = profile(channels=[channel(response={})])
    elapsed_s = (run.windows["end_ns"].to_numpy() - run.windows["start_ns"].to_numpy()) / 1e9
    place = run.windows.schema.get_field_index("time_s")
    run.windows = run.windows.set_column(place, "time_s", pa.array(elapsed_s - 10e-3))
    assert set(analyse(run).result("energy_total_j").flags) == {"nominal_response"}


def test_an_empty_run_has_a_reason_for_everything():
    run = analyse(make_run([], channels=[]))
    assert all(row["value"] is None and row["reason"] for row in run.results.to_pylist())
    run.devices = []
    assert analyse(run).result("energy_total_j").reason == "no_power_sensor"
