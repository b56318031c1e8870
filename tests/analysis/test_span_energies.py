"""Power given to spans of any Run, and the energy of an inference from two levels and a latency."""

from types import SimpleNamespace

import numpy as np
import pytest

from import_logs import real, real_files
from jouletrace.analysis import analyse
from jouletrace.analysis.imported import energy_per_inference, stated_latency
from jouletrace.formats.importers import Coded, block
from jouletrace.run import DeviceInfo, Estimate, tables
from jouletrace.run.figures import Figures
from pace import worked
from records import DEVICE, channel, iterations, make_run, ns, readings

TRACE = "cuda:0"


def spans(rows, *, kind="range", device=DEVICE, lane="stream 7"):
    return [
        {"id": i, "kind": kind, "name": name, "device": device, "lane": lane, "start_ns": ns(a), "end_ns": ns(b)}
        for i, (name, a, b) in enumerate(rows)
    ]


def step(t):
    return np.where((t % 2) < 1, 400.0, 100.0)


def by_name(run):
    """Figures by name of what an imported timeline has."""
    run.kind = "import"
    analyse(run)
    found = {}
    for unit in run.units.to_pylist():
        if unit["level"] not in ("model", "device"):
            each, total, time = (
                run.result(f"{what}", unit["id"]) for what in ("energy_each_j", "energy_total_j", "time_s")
            )
            found[unit["name"]] = SimpleNamespace(
                each=each, total=total, time_s=time.value, count=unit["count"], flags=each.flags
            )
    return found


@pytest.mark.thorough
def test_a_span_that_the_sensor_follows_is_integrated():
    rows = [(("hot", "cool")[i % 2], float(i), float(i + 1)) for i in range(2, 8)]
    found = by_name(make_run(readings(step, 12, noise=0.3), spans=spans(rows)))
    hot, cool = found["hot"], found["cool"]
    assert (hot.count, hot.time_s) == (3, pytest.approx(3.0))
    assert hot.total.value == pytest.approx(1200.0, rel=5e-3)
    assert hot.each.value == pytest.approx(400.0, rel=5e-3)
    assert cool.total.value == pytest.approx(300.0, rel=2e-2)
    assert hot.total.low < 1200.0 < hot.total.high
    assert hot.total.method == "timeline"


@pytest.mark.thorough
def test_short_spans_that_repeat_are_distinguished_by_regression():
    period, busy = 0.0473, 0.012
    starts = np.arange(1.0, 40.0, period)

    def watts(t):
        return np.full_like(t, 100.0)

    run = make_run([], spans=spans([("burst", float(a), float(a + busy)) for a in starts]))
    # Each reading of 20 ms holds its own share of the bursts.
    at = np.arange(0.0, 42.0, 0.02)
    share = np.zeros(len(at))
    for a in starts:
        share += np.clip(np.minimum(at, a + busy) - np.maximum(at - 0.02, a), 0, None)
    noise = 0.3 * np.random.default_rng(2).standard_normal(len(at))
    values = watts(at) + 500.0 * share / 0.02 + noise
    rows = [
        {"time_ns": ns(t), "device": DEVICE, "channel": "power_w", "value": float(v)}
        for t, v in zip(at, values, strict=True)
    ]
    run.samples = tables.from_rows(rows, "samples")
    burst = by_name(run)["burst"]
    assert burst.each.method == "repeated"
    assert burst.each.value == pytest.approx(600.0 * busy, rel=0.03)
    assert burst.total.value == pytest.approx(burst.each.value * len(starts))


def test_a_span_too_short_for_the_sensor_is_null_with_the_reason():
    run = make_run(readings(200.0, 5, noise=0.3), spans=spans([("tiny", 1.0, 1.0001), ("tiny", 2.0, 2.0001)]))
    tiny = by_name(run)["tiny"]
    assert (tiny.total.value, tiny.total.reason) == (None, "sensor_too_slow")
    assert tiny.count == 2


def test_spans_outside_of_the_record_are_not_guessed():
    run = make_run(readings(200.0, 5, noise=0.3), spans=spans([("a", 1.0, 2.0), ("a", 9.0, 10.0), ("b", 9.0, 10.0)]))
    found = by_name(run)
    assert found["a"].total.reason == "outside_record"
    assert found["a"].each.value == pytest.approx(200.0, rel=5e-3)
    assert "windows_left_out" in found["a"].flags
    assert found["b"].each.reason == "outside_record"


def test_a_hole_in_the_record_is_flagged_or_null():
    rows = readings(200.0, 10, noise=0.3, without=[(3.0, 3.1), (6.0, 6.8)])
    found = by_name(make_run(rows, spans=spans([("short hole", 1.0, 5.0), ("long hole", 5.5, 7.5)])))
    assert "hole_in_record" in found["short hole"].flags
    assert found["long hole"].total.reason == "hole_in_record"


def test_without_a_power_record_there_is_no_energy():
    run = make_run([], spans=spans([("a", 1.0, 2.0)]), channels=[])
    assert (by_name(run)["a"].total.value, by_name(run)["a"].time_s) == (None, 1.0)


def test_another_tools_name_for_the_gpu_is_recognised_by_its_index():
    run = make_run(readings(200.0, 5, noise=0.3), spans=spans([("a", 1.0, 3.0)], device=TRACE))
    run.devices[0].index = 0
    run.devices.append(DeviceInfo("other", "Another", index=1))
    run.channels.append(channel(device="other"))
    run.devices.append(DeviceInfo(TRACE, "Board", index=0))
    assert by_name(run)["a"].total.value == pytest.approx(400.0, rel=5e-3)


def test_the_only_power_record_is_assumed_to_be_of_the_only_device():
    run = make_run(readings(200.0, 5, noise=0.3), spans=spans([("a", 1.0, 3.0)], device=TRACE))
    assert "device_assumed" in by_name(run)["a"].flags
    run.devices.append(DeviceInfo("other", "Another"))
    run.channels.append(channel(device="other"))
    assert by_name(run)["a"].total.reason == "no_power_sensor"


@pytest.mark.thorough
def test_iterations_and_ranges_have_units():
    found = by_name(
        make_run(readings(step, 12, noise=0.3), spans=iterations(4, 1.0, start=2.0) + spans([("k", 2.0, 6.0)]))
    )
    assert found["iteration"].each.value == pytest.approx(250.0, rel=1e-2)
    assert found["k"].total.value == pytest.approx(1000.0, rel=1e-2)


def test_overlapping_spans_are_not_regressed():
    rows = [("a", 1.0 + 0.01 * i, 1.015 + 0.01 * i) for i in range(100)]
    assert by_name(make_run(readings(200.0, 5, noise=0.3), spans=spans(rows)))["a"].each.reason == "ranges_overlap"


@pytest.mark.thorough
def test_spans_far_below_the_sensor_cost_next_to_nothing():
    n = 200_000
    run = make_run(readings(200.0, 5, noise=0.3))
    start = ns(1.0) + np.arange(n, dtype=np.int64) * 10_000
    run.spans = block(
        "spans",
        n,
        id=np.arange(n),
        kind="range",
        name=Coded(np.arange(n) % 7, list("abcdefg")),
        device=DEVICE,
        start_ns=start,
        end_ns=start + 9_000,
    )
    with worked() as work:
        found = by_name(run)
    assert work.loops < 300
    assert {named.total.reason for named in found.values()} == {"sensor_too_slow"}
    assert sum(named.count for named in found.values()) == n


def test_the_artifact_method():
    difference = Estimate(26.0, 25.5, 26.5, 50, "levels")
    energy = energy_per_inference(difference, Estimate(4.37e-3, n=1, method="given"))
    assert energy.value == pytest.approx(113.62e-3)
    assert (energy.low, energy.high) == (pytest.approx(25.5 * 4.37e-3), pytest.approx(26.5 * 4.37e-3))
    assert energy_per_inference(Estimate.null("one_level"), Estimate(1.0)).reason == "one_level"
    assert energy_per_inference(difference, Estimate.null("no_iterations")).reason == "no_iterations"


def test_the_latency_is_that_given_then_stated_then_timed():
    run = make_run([], spans=iterations(10, 0.004))
    assert stated_latency(run).value == pytest.approx(0.004)
    figures = Figures()
    figures.add(0, "latency_s", Estimate(0.005, n=226, method="stated by torch.utils.benchmark"))
    figures.become(run)
    assert stated_latency(run).value == 0.005
    run.settings["latency_s"] = 0.00437
    assert stated_latency(run).value == 0.00437


@pytest.mark.thorough
def test_the_parts_of_a_repeated_step_are_resolved_and_close():
    parts, steps, pause = {"a": (0.026, 700.0), "b": (0.029, 300.0), "c": (0.019, 500.0)}, 300, 0.0213
    rows, edges, level = [], [0.0], [100.0]
    at = 1.0
    for _ in range(steps):
        for name, (took, watts) in parts.items():
            rows.append((name, at, at + took))
            edges.append(at)
            level.append(watts)
            at += took
        edges.append(at)
        level.append(100.0)
        at += pause
    # Readings are means of the 20 ms before them: differences of the energy so far.
    energy = np.append(0.0, np.cumsum(np.array(level[:-1]) * np.diff(edges)))

    def so_far(t):
        i = np.searchsorted(edges, t, side="right") - 1
        return energy[i] + np.array(level)[i] * (t - np.array(edges)[i])

    stamps = np.arange(0.02, at + 1, 0.02)
    noise = 0.5 * np.random.default_rng(3).standard_normal(len(stamps))
    watts = (so_far(stamps) - so_far(stamps - 0.02)) / 0.02 + noise
    run = make_run([], spans=spans(rows))
    run.samples = tables.from_rows(
        [
            {"time_ns": ns(t), "device": DEVICE, "channel": "power_w", "value": float(w)}
            for t, w in zip(stamps, watts, strict=True)
        ],
        "samples",
    )
    found = by_name(run)
    for name, (took, level_w) in parts.items():
        assert found[name].each.value == pytest.approx(took * level_w, rel=0.02)
        assert found[name].each.method == "repeated"


def test_a_mean_over_the_spans_that_were_not_too_slow_is_not_given():
    rows = [("mixed", 1.0, 1.5), ("mixed", 2.0, 2.001)]
    assert by_name(make_run(readings(200.0, 5, noise=0.3), spans=spans(rows)))["mixed"].each.reason == "sensor_too_slow"


@pytest.mark.samples
@real_files
def test_the_parts_of_a_step_recorded_on_an_h100_close():
    (rows,), (steps,) = real("h100/wave_rows.npy"), real("h100/wave_iters.npy")
    time_us, first = np.unique(np.load(rows)[:, 0].astype(np.int64), return_index=True)
    watts = np.load(rows)[first, 1] / 1e3
    iters = np.load(steps)
    ends = iters[:, :1].astype(np.int64) + (iters[:, 2:6] * 1e6).astype(np.int64)
    starts = np.column_stack([iters[:, 0].astype(np.int64), ends[:, :-1]])
    n = ends.size
    run = make_run([], channels=[channel(response={})])
    columns = {"device": DEVICE, "channel": "power_w"}
    run.samples = block("samples", len(watts), time_ns=time_us * 1000, value=watts, **columns)
    names = Coded(np.arange(n) % 4, ["bf16 GEMM", "copy", "spin", "fp32 GEMM"])
    edges = {"start_ns": starts.ravel(), "end_ns": ends.ravel()}
    run.spans = block("spans", n, id=np.arange(n), kind="range", name=names, device=DEVICE, **edges)
    found = by_name(run)
    assert all(named.each.method == "repeated" for named in found.values())
    inside = (time_us * 1000 > starts.min()) & (time_us * 1000 < ends.max())
    seconds = (ends.max() - starts.min()) / 1e9
    rest_j = watts[inside].mean() * seconds - sum(named.total.value for named in found.values())
    rest_s = seconds - sum(named.time_s for named in found.values())
    assert 70 < rest_j / rest_s < 150  # the GPU at rest with a context draws 120 to 135 W
