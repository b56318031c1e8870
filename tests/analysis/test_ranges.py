"""Ranges by path: which spans are of one kind, for as many as a long recording has."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.ranges import _marked
from jouletrace.run import Run, tables


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
