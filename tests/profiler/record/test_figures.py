"""Ranges and steps of the user's own loop: figures of recordings whose power is known."""

import numpy as np
import pytest

from live_runs import energy, marked, unit
from pace import worked
from records import EXACT, channel


@pytest.mark.thorough
def test_a_long_range_is_a_window_and_several_are_a_mean():
    def watts(t):
        return np.where((t % 2) < 1, 100.0, 500.0)

    run = marked([("range", "busy", 1.0 + 2 * i, 2.0 + 2 * i) for i in range(10)], watts, 24.0)
    found = energy(run, "busy")
    assert found.value == pytest.approx(500.0, rel=2e-3)
    assert found.low <= 500.0 <= found.high
    assert found.half_width < 5.0
    assert found.n == 10
    assert unit(run, "busy")["count"] == 10
    single = energy(marked([("range", "busy", 1.0, 2.0)], watts, 6.0), "busy")
    assert single.value == pytest.approx(500.0, rel=1e-2)
    assert single.low <= 500.0 <= single.high


def test_ranges_that_cover_the_whole_agree_with_it_and_with_the_truth():
    spans = [("range", "slow", 0.1, 8.0), ("range", "fast", 8.0, 15.9)]
    run = marked(spans, lambda t: np.where(t < 8.0, 200.0, 450.0), 16.0)
    device = next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    whole = run.result("energy_total_j", device)
    parts = [run.result("energy_total_j", unit(run, name)["id"]) for name in ("slow", "fast")]
    for figure, drawn in zip((*parts, whole), (200 * 7.9, 450 * 7.9, 650 * 7.9), strict=True):
        assert figure.low <= drawn <= figure.high
    assert abs(sum(one.value for one in parts) - whole.value) <= whole.half_width


def short_steps(n=1500):
    """Steps of about 13 ms: 5 ms forward, 5 ms backward, the rest between; not in tune with the sensor."""
    rng = np.random.default_rng(3)
    spans, at = [], 1.0
    for _ in range(n):
        a = at + 0.001
        b, c = a + 0.005, a + 0.0055
        end = c + 0.005 + 0.0015 + rng.uniform(0, 0.001)
        spans += [("range", "forward", a, b), ("range", "backward", c, c + 0.005), ("iteration", "step", at, end)]
        at = end
    return spans, at


def power_of(spans, levels, seconds):
    """20 ms means of levels by name of range, 100 W elsewhere, as ``readings`` asks for them: at mid-period."""
    edges, watts = [0.0], [100.0]
    for _, name, start, end in sorted((s for s in spans if s[0] == "range"), key=lambda s: s[2]):
        edges += [start, end]
        watts += [levels[name], 100.0]
    edges, watts = np.array(edges), np.array(watts)
    total = np.concatenate([[0.0], np.cumsum(np.diff(np.append(edges, seconds + 1)) * watts)])
    knots = np.append(edges, seconds + 1)

    def mean(t):
        return (np.interp(t + 0.01, knots, total) - np.interp(np.maximum(t - 0.01, 0), knots, total)) / 0.02

    return mean


@pytest.mark.thorough
def test_short_ranges_that_repeat_are_distinguished():
    spans, end = short_steps()
    run = marked(spans, power_of(spans, {"forward": 600.0, "backward": 300.0}, end + 2), round(end + 1.5, 1))
    for name, joules in (("forward", 3.0), ("backward", 1.5)):
        found = energy(run, name)
        assert found.method == "repeated"
        assert found.value == pytest.approx(joules, rel=0.1)
        assert found.low <= joules <= found.high
        assert run.result("time_mean_s", unit(run, name)["id"]).value == pytest.approx(0.005, rel=0.01)


@pytest.mark.thorough
def test_what_runs_in_a_pause_of_the_loop_is_not_taken_for_its_rest():
    """Half a second at 650 W between two epochs, and before and after, while between ranges it is 100 W."""
    spans, end = short_steps(1000)
    middle = spans[1500][2]
    parted = [s if i < 1500 else (s[0], s[1], s[2] + 0.5, s[3] + 0.5) for i, s in enumerate(spans)]
    others = [("range", "other", 0.2, 0.9), ("range", "other", middle + 0.01, middle + 0.49)]
    others.append(("range", "other", end + 0.51, end + 1.2))
    levels = {"forward": 600.0, "backward": 300.0, "other": 650.0}
    run = marked(parted, power_of(parted + others, levels, end + 3), round(end + 2.5, 1))
    for name, joules in (("forward", 3.0), ("backward", 1.5)):
        found = energy(run, name)
        assert found.value == pytest.approx(joules, rel=0.005), name
        assert abs(found.value - joules) < 2 * found.half_width


def test_ranges_of_microseconds_have_no_energy():
    run = marked([("range", "blink", 1 + 0.0137 * i, 1.00003 + 0.0137 * i) for i in range(200)], 300.0, 5.0)
    assert energy(run, "blink").reason == "sensor_too_slow"


@pytest.mark.thorough
def test_steps_in_a_row_are_blocks():
    spans, end = short_steps()
    run = marked(spans, power_of(spans, {"forward": 600.0, "backward": 300.0}, end + 2), round(end + 1.5, 1))
    seconds = (end - 1.0) / 1500
    joules = 100 * seconds + 500 * 0.005 + 200 * 0.005
    found = energy(run, "step")
    assert found.value == pytest.approx(joules, rel=5e-3)
    assert found.low <= joules <= found.high
    assert found.half_width < 0.02 * joules
    assert 20 <= found.n <= 41


@pytest.mark.thorough
def test_steps_of_two_epochs_leave_out_what_lies_between():
    """300 W in the steps, 100 W in between: the pause is in no step."""

    def watts(t):
        return np.where((t >= 4.0) & (t < 6.0), 100.0, 300.0)

    steps = [("iteration", "step", at, at + 0.1) for at in (*np.arange(2.0, 3.95, 0.1), *np.arange(6.0, 7.95, 0.1))]
    found = energy(marked(steps, watts, 10.0), "step")
    assert found.value == pytest.approx(30.0, rel=5e-3)


def test_a_short_range_that_came_once_is_null_and_says_why():
    run = marked([("range", "blink", 2.0, 2.005)], 300.0, 5.0)
    assert energy(run, "blink").reason == "sensor_too_slow"
    assert run.result("time_s", unit(run, "blink")["id"]).value == pytest.approx(0.005)


def test_short_ranges_of_threads_that_overlap_are_null():
    spans = [("range", "a", 1 + 0.0137 * i, 1.008 + 0.0137 * i, None, "one") for i in range(40)]
    spans += [("range", "a", 1.004 + 0.0137 * i, 1.012 + 0.0137 * i, None, "two") for i in range(40)]
    assert energy(marked(spans, 300.0, 5.0), "a").reason == "ranges_overlap"


@pytest.mark.thorough
def test_ranges_of_one_name_in_different_ranges_are_different():
    spans = [("range", "train", 1.0, 4.0), ("range", "load", 1.0, 2.0, 1)]
    spans += [("range", "test", 5.0, 8.0), ("range", "load", 5.0, 7.0, 3)]
    run = marked(spans, 300.0, 10.0)
    assert [row["name"] for row in run.units.to_pylist() if row["level"] == "range"] == [
        "train",
        "train/load",
        "test",
        "test/load",
    ]
    assert unit(run, "test/load")["parent"] == unit(run, "test")["id"]
    assert energy(run, "test/load").value == pytest.approx(600.0, rel=5e-3)


@pytest.mark.thorough
def test_ranges_that_overlap_without_nesting_are_flagged_and_keep_their_figures():
    spans = [("range", "load", 1.0, 3.0), ("range", "train", 2.0, 6.0, 1), ("range", "test", 7.0, 8.0)]
    spans.append(("range", "inside", 7.2, 7.8, 3))
    run = marked(spans, 300.0, 10.0)
    flags = {
        name: [metric for metric in ("time_s", "energy_total_j") if "ranges_crossed" in flags_of(run, name, metric)]
        for name in ("load", "load/train", "test", "test/inside")
    }
    both = ["time_s", "energy_total_j"]
    assert flags == {"load": both, "load/train": both, "test": [], "test/inside": []}
    assert energy(run, "load/train").value == pytest.approx(1200.0, rel=5e-3)


def flags_of(run, name, metric):
    return run.result(metric, unit(run, name)["id"]).flags


def test_ranges_without_a_power_sensor_have_time_only():
    run = marked([("range", "a", 1.0, 3.0)], 300.0, 5.0, channels=[])
    assert energy(run, "a").reason == "no_power_sensor"
    assert run.result("time_s", unit(run, "a")["id"]).value == pytest.approx(2.0)


def test_a_range_that_did_not_wait_for_the_gpu_says_so():
    run = marked([("range", "a", 1.0, 3.0)], 300.0, 5.0, settings={"not_synchronised": ["a"]})
    assert run.result("energy_total_j", unit(run, "a")["id"]).flags[0] == "host_time"


def test_steps_of_threads_that_overlap_are_null():
    spans = [
        ("iteration", "step", 1 + 0.1 * i + lane, 1.1 + 0.1 * i + lane, None, f"t{lane}")
        for i in range(20)
        for lane in (0, 0.03)
    ]
    assert energy(marked(spans, 300.0, 5.0), "step").reason == "ranges_overlap"


@pytest.mark.thorough
def test_of_very_many_names_those_with_the_most_time_are_looked_at():
    """Of 301 too short for the sensor, which is the reason, the shortest isn't looked at."""
    run = marked([("range", f"batch {i}", 1 + 0.01 * i, 1.005 + 0.01 * i + 1e-5 * i) for i in range(301)], 300.0, 6.0)
    assert {energy(run, f"batch {i}").reason for i in range(1, 301)} == {"sensor_too_slow"}
    assert energy(run, "batch 0").reason == "too_many_names"
    assert run.result("time_s", unit(run, "batch 0")["id"]).value == pytest.approx(0.005)


@pytest.mark.thorough
def test_short_ranges_of_ten_thousand_names_are_no_reason_to_wait():
    spans = [("range", f"batch {i}", 1 + 1e-3 * i, 1.0005 + 1e-3 * i) for i in range(2000)]
    with worked() as work:
        run = marked(spans, 300.0, 5.0)
    assert work.loops < 300
    assert energy(run, "batch 0").reason == "sensor_too_slow"


def test_short_ranges_of_which_no_reading_is_have_no_energy():
    """A dozen within a reading or two: all readings see what ran before or after."""
    found = energy(
        marked([("range", "short", 1 + i / 1000, 1.0005 + i / 1000) for i in range(12)], 300.0, 4.0), "short"
    )
    assert (found.value, found.reason) == (None, "no_samples")


@pytest.mark.thorough
def test_the_mean_of_a_few_is_no_surer_than_what_isnt_known_of_the_sensor():
    """Three that are alike share its delay: their mean isn't known better than one of them."""
    unsure = channel(response={**EXACT, "covariance": [[4e-6, 0, 0], [0, 4e-6, 0], [0, 0, 0]], "origin": "calibrated"})

    def half_of(number):
        spans = [("range", "a", 1.0 + i, 1.2 + i) for i in range(number)]
        run = marked(spans, lambda t: np.where(t % 1 < 0.2, 500.0, 100.0), number + 2.0, channels=[unsure])
        return energy(run, "a").half_width

    assert half_of(3) > 0.5 * half_of(1)


def test_two_occurrences_have_the_interval_of_the_sensor():
    """Student's t with one degree of freedom would make 550 ± 3200 J of an epoch of 300 J and one of 800 J."""
    spans = [("range", "epoch", 1.0, 3.0), ("range", "epoch", 4.0, 6.0)]
    run = marked(spans, lambda t: np.where((t > 1) & (t < 3), 150.0, np.where((t > 4) & (t < 6), 400.0, 100.0)), 7.5)
    found = energy(run, "epoch")
    assert found.method == "together"
    assert found.value == pytest.approx(550.0, rel=1e-3)
    assert found.half_width < 0.02 * found.value, "it isn't that of how the two differ"
    time = run.result("time_mean_s", unit(run, "epoch")["id"])
    assert (time.value, time.half_width) == (pytest.approx(2.0), 0), "the clock knows the time of those that ran"
