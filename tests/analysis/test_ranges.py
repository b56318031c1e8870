"""Ranges by path: which spans are of one kind, for as many as a long recording has."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from energy_signals import SENSORS, Load, calibrated
from energy_signals import ns as at_ns
from jouletrace.analysis import analyse
from jouletrace.analysis.ranges import _marked
from jouletrace.run import DeviceInfo, Run, load, tables
from live_runs import energy, marked, unit
from records import DEVICE, channel, make_run, ns, phases, readings


def by_hand(rows):
    """The same one span at a time: path, whether steps, edges, whether crossed."""
    paths, found, ends = {}, {}, {row["id"]: row["end_ns"] for row in rows}
    for row in sorted(rows, key=lambda row: row["id"]):
        if row["kind"] not in ("range", "iteration"):
            continue
        above = paths.get(row["parent"], ())
        path = paths[row["id"]] = (*above, "step" if row["kind"] == "iteration" else str(row["name"]))
        kind = found.setdefault(path, {"steps": False, "crossed": False, "edges": []})
        kind["steps"] |= row["kind"] == "iteration"
        kind["edges"].append((row["start_ns"], row["end_ns"]))
        if row["parent"] in paths and row["end_ns"] > ends[row["parent"]]:
            kind["crossed"] = found[above]["crossed"] = True
    return {path: (one["steps"], one["crossed"], sorted(one["edges"])) for path, one in found.items()}


@pytest.mark.parametrize("seed", range(40))
def test_kinds_are_as_if_determined_one_span_at_a_time(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(1, int(rng.integers(2, 80))):
        start = int(rng.integers(0, 1000))
        rows.append(
            {
                "id": i,
                "parent": None if rng.random() < 0.3 else int(rng.integers(0, i)),
                "kind": str(rng.choice(["range", "iteration", "phase", "kernel"], p=[0.6, 0.2, 0.1, 0.1])),
                "name": rng.choice(["a", "b", "c", None], p=[0.4, 0.3, 0.25, 0.05]),
                "lane": str(rng.choice(["x", "y"])),
                "start_ns": start,
                "end_ns": start + int(rng.integers(0, 300)),
            }
        )
    rng.shuffle(rows)
    kinds = _marked(Run(spans=tables.from_rows(rows, "spans")))
    found = {
        k.path: (k.steps, k.crossed, sorted(zip(*(edge.tolist() for edge in k.edges_ns), strict=True))) for k in kinds
    }
    assert found == by_hand(rows)
    assert all(np.all(np.diff(kind.start_ns) >= 0) for kind in kinds)


def many(number):
    """Steps with a range in each."""
    k = np.arange(number)

    def text(codes, words):
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), words)

    columns = {
        "id": k + 1,
        "parent": pa.array(np.where(k % 2, k, 0), mask=k % 2 == 0),
        "kind": text(k % 2, ["iteration", "range"]),
        "name": text(k % 2, ["step", "inner"]),
        "lane": text(k * 0, ["main"]),
        "start_ns": k * 1000,
        "end_ns": k * 1000 + 900,
    }
    return tables.conform(pa.table(columns), "spans")


def test_many_spans_take_little_memory():
    run = Run(spans=many(100_000))
    tracemalloc.start()
    try:
        kinds = _marked(run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [kind.path for kind in kinds] == [("step",), ("step", "inner")]
    assert peak < 250 * 100_000  # some twenty numbers each; as Python objects they took 500 bytes


def test_columns_without_a_value_share_one_memory():
    spans = many(10_000)
    before = pa.total_allocated_bytes()
    again = tables.conform(spans.drop_columns(["grid_x", "bytes", "unit", "correlation"]), "spans")
    assert pa.total_allocated_bytes() - before < 10_000
    assert again.equals(spans)
    again.validate(full=True)
    assert {again[name].null_count for name in ("grid_x", "bytes", "device", "unit")} == {10_000}


def test_ranges_nested_without_end_are_reported():
    rows = [
        {"id": i, "parent": i - 1 or None, "kind": "range", "name": "deeper", "start_ns": i, "end_ns": 10_000 - i}
        for i in range(1, 2000)
    ]
    run = Run(kind="record", spans=tables.from_rows(rows, "spans"))
    analyse(run)
    assert "ranges_too_deep" in [warning.code for warning in run.warnings]
    assert max(name.count("/") for name in run.units["name"].to_pylist()) == 99


@pytest.mark.thorough
def test_a_mean_of_spans_that_have_nothing_in_common_is_none():
    """As of a trainer's steps, of which the first compiles."""
    edges_ns = np.cumsum([0, 7_000_000_000, *[100_000_000] * 15])
    names = ("id", "lane", "kind", "name", "start_ns", "end_ns")
    spans = [(id, "main", "iteration", "step", *pair) for id, pair in enumerate(pairwise(edges_ns.tolist()))]
    rows = [(10**18 + t, 300.0) for t in range(0, 9_000_000_000, 20_000_000)]
    samples = [{"time_ns": t, "device": DEVICE, "channel": "power_w", "value": w} for t, w in rows]
    shifted = [
        dict(zip(names, (*one[:4], one[4] + 10**18 + 10**8, one[5] + 10**18 + 10**8), strict=True)) for one in spans
    ]
    run = analyse(make_run(samples, kind="record", spans=shifted, channels=[channel()]))
    (unit,) = [row["id"] for row in run.units.to_pylist() if row["level"] == "range"]
    assert run.result("time_s", unit).value == pytest.approx(8.5)
    assert run.result("energy_total_j", unit).value == pytest.approx(8.5 * 300, rel=0.01)
    assert run.result("time_mean_s", unit).reason == run.result("energy_each_j", unit).reason == "spans_differ"


def unequal_steps(sensor, mean_s, seed, number=30):
    """A simulated GPU's record of steps of 0.5 to 1.5 times a length that cover all of it, and their true energy."""
    rng = np.random.default_rng(seed)
    edges = 2.0 + np.append(0, np.cumsum(mean_s * rng.uniform(0.5, 1.5, number)))
    load = Load(rng, edges[-1] + 2, edges, [110.0, *rng.uniform(150, 650, number), 110.0])
    read = zip(*SENSORS[sensor].read(rng, load), strict=True)
    samples = [{"time_ns": int(t), "device": DEVICE, "channel": "power_w", "value": float(w)} for t, w in read]
    edges_ns = at_ns(edges).tolist()
    rows = [("phase", "monitor", edges_ns[0], edges_ns[-1])]
    rows += [("iteration", "step", *pair) for pair in pairwise(edges_ns)]
    names = ("id", "lane", "device", "kind", "name", "start_ns", "end_ns")
    spans = [dict(zip(names, (id, "main", DEVICE, *row), strict=True)) for id, row in enumerate(rows)]
    known = channel(response=calibrated(sensor).to_dict(), period_s=SENSORS[sensor].period)
    run = analyse(make_run(samples, kind="record", spans=spans, channels=[known]))
    (unit,) = [row["id"] for row in run.units.to_pylist() if row["level"] == "range"]
    return run, unit, float(load.energy(edges[0], edges[-1]))


@pytest.mark.thorough
def test_the_total_of_unequal_steps_has_the_uncertainty_of_their_sum():
    """95 % of totals hold the truth, none much wider than the whole record: how steps differ is in none."""
    cases = [("h100", 0.1), ("a100", 0.3)]
    held, wider, spread = [], [], []
    for sensor, mean_s in cases:
        for seed in range(6):
            run, unit, truth = unequal_steps(sensor, mean_s, seed)
            total, each = (run.result(name, unit) for name in ("energy_total_j", "energy_each_j"))
            held.append(total.low <= truth <= total.high)
            wider.append(total.half_width / run.result("energy_total_j", 1).half_width)
            spread.append(30 * each.half_width / total.half_width)
            assert total.value == pytest.approx(30 * each.value, rel=0.02)
    assert np.mean(held) >= 10 / 12, "fewer than 10 of 12 have a probability of 2 %"
    assert max(wider) < 1.2
    assert min(spread) > 5


@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_steps_with_a_pause_of_one_hundredth_between_them_are_integrated_as_a_row(gap):
    """The sensor can't see a step of 50 ms, but 200 in a row, whose pauses are theirs."""
    edges = 1.0 + 0.05 * np.arange(201)
    steps = [("iteration", "step", a, b - gap * 0.05) for a, b in pairwise(edges.tolist())]
    run = marked(steps, lambda t: np.full_like(t, 300.0), 12)
    each = energy(run, "step")
    assert each.value == pytest.approx(300.0 * 0.05, rel=0.003)
    assert each.half_width < 0.003 * each.value


def test_a_range_that_ran_once_is_one_measurement():
    run = marked([("range", "load", 1.0, 3.5)], lambda t: np.full_like(t, 300.0), 5)
    time, each = run.result("time_s", unit(run, "load")["id"]), energy(run, "load")
    assert (time.value, time.n) == (pytest.approx(2.5), 1)
    assert each.value == pytest.approx(750.0, rel=0.01)


def test_a_range_of_a_recording_of_two_gpus_is_of_both():
    span = {"id": 1, "kind": "range", "name": "load", "lane": "main", "start_ns": ns(1), "end_ns": ns(3.5)}
    samples = readings(300.0, 5, noise=0.3) + readings(200.0, 5, noise=0.3, device="other")
    phase = phases(("monitor", 0.1, 4.9))
    run = make_run(samples, kind="record", spans=[*phase, span], channels=[channel(), channel(device="other")])
    run.devices.append(DeviceInfo("other", "another GPU"))
    assert energy(analyse(run), "load").value == pytest.approx(2.5 * (300.0 + 200.0), rel=0.01)


def test_one_metric_of_a_range_means_one_thing_however_old_the_run_is(tmp_path):
    run, unit, _ = unequal_steps("a100", 0.3, 1)
    names = ("time_s", "time_mean_s", "energy_total_j", "energy_each_j")
    time, mean, _, each = (run.result(name, unit) for name in names)
    assert (time.value, time.half_width) == (pytest.approx(30 * mean.value), 0)
    rows = run.results.to_pylist()
    older = [row for row in rows if row["unit"] != unit]
    older += [
        {**row, "metric": new}
        for row in rows
        for old, new in zip(names[1::2], names[::2], strict=True)
        if (row["unit"], row["metric"]) == (unit, old)
    ]
    run.results = tables.from_rows(older, "results")
    found = load(run.save(str(tmp_path / "older")))
    assert found.result("energy_each_j", unit) == each
    assert found.result("time_mean_s", unit) == mean
    assert found.result("time_s", unit).half_width == 0
    whole = found.result("energy_total_j", unit)
    assert whole.value == pytest.approx(30 * each.value)
    assert whole.half_width == pytest.approx(30 * each.half_width), "all that an older version knew"
    assert load(found.save(str(tmp_path / "again"))).results.equals(found.results), "once"
