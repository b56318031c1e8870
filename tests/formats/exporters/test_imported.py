"""Traces of the spans of an import, whose figures are by name; and counters that several files hold."""

import json

import pytest

from jouletrace.formats.exporters import export
from jouletrace.run import DeviceInfo, Estimate, Run, tables
from make_runs import GPU, e, result
from timeline_runs import OTHER, span


def imported(**changes):
    """Kernels of two names on two GPUs; of one name a figure, of the other none."""
    run = Run(kind="import", devices=[DeviceInfo(GPU, "NVIDIA H100", index=0)])
    run.spans = tables.from_rows(
        [
            span(1, "kernel", "gemm", 0, 10, device=GPU, lane="7", unit=0),
            span(2, "kernel", "gemm", 20, 30, device=GPU, lane="7"),
            span(3, "kernel", "gemm", 20, 30, device=OTHER, lane="7"),
            span(4, "kernel", "relu", 40, 50, device=GPU, lane="7"),
            span(5, "op", "gemm", 0, 50, lane="thread 1"),
            span(6, "kernel", "gemm", 60, 70, device=GPU, lane="7", unit=9),
        ],
        "spans",
    )
    where = changes.pop("where", None)
    units = [
        {"id": 0, "level": "model", "name": "m"},
        {"id": 1, "level": "kernel", "name": "gemm", "module": where, "count": 3},
        {"id": 2, "level": "kernel", "name": "relu", "module": where, "count": 1},
        {"id": 9, "level": "kernel", "name": "own", "op": "aten::mm", "module": "layer.0", "count": 1},
    ]
    run.units = tables.from_rows(units, "units")
    figures = [
        result(1, "energy_total_j", e(3.0, 0.1)),
        result(1, "energy_each_j", e(1.0, 0.1, method="timeline")),
        result(2, "energy_each_j", Estimate.null("sensor_too_slow", "timeline")),
        result(9, "energy_total_j", e(0.5, 0.1)),
    ]
    run.results = tables.from_rows(figures, "results")
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def slices(run, folder):
    document = json.loads(export(run, "chrome", folder / "t.json").read_text())
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def args(run, folder, name, category="kernel"):
    return [event["args"] for event in slices(run, folder) if (event["name"], event["cat"]) == (name, category)]


def test_a_span_says_the_mean_energy_of_its_name(tmp_path):
    first, second, own, other = args(imported(), tmp_path, "gemm")
    for found in (first, second, other):
        assert found["unit"] == "all 3 of this name"
        assert found["energy_each_j"] == {**e(1.0, 0.1, method="timeline").to_dict(), "flags": []}
        assert "energy_total_j" not in found  # what all of them took is no figure of one
    assert (own["unit"], own["energy_total_j"]["value"]) == ("aten::mm in layer.0", 0.5)


def test_where_there_is_no_figure_the_reason_stands(tmp_path):
    (found,) = args(imported(), tmp_path, "relu")
    assert (found["energy_each_j"]["value"], found["energy_each_j"]["reason"]) == (None, "sensor_too_slow")


def test_an_operator_isnt_taken_for_the_kernel_of_its_name(tmp_path):
    assert args(imported(), tmp_path, "gemm", "op") == [{}]


def test_figures_of_one_device_arent_those_of_another(tmp_path):
    found = args(imported(where=GPU), tmp_path, "gemm")
    assert ["energy_each_j" in one for one in found] == [True, True, False, False]


def test_a_measured_run_has_the_figures_of_its_own_units_alone(tmp_path):
    found = args(imported(kind="profile"), tmp_path, "gemm")
    assert [one.get("unit") for one in found] == ["m", None, "aten::mm in layer.0", None]


COUNTERS = [
    (1, "Memory Throughput", "Speed", 41.5, "%"),
    (1, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", None, 42.5, "%"),
    (1, "Memory Throughput", "Speed", 43.5, "%"),
    (1, "sm__warps_active.avg.pct_of_peak_sustained_active", None, 10.0, "%"),
    (1, "sm__warps_active.avg.pct_of_peak_sustained_active", None, 11.0, "%"),
    (1, "sm__warps_active.avg.pct_of_peak_sustained_active", None, 12.0, "%"),
]


@pytest.mark.parametrize("turned", [False, True])
def test_of_counters_that_mean_the_same_the_first_is_drawn_and_all_are_reported(tmp_path, turned):
    rows = COUNTERS[::-1] if turned else COUNTERS
    run = imported()
    names = ("span", "metric", "section", "value", "value_unit")
    run.counters = tables.from_rows([dict(zip(names, row, strict=True)) for row in rows], "counters")
    document = json.loads(export(run, "chrome", tmp_path / "t.json").read_text())
    drawn = [one["args"]["Memory (%)"] for one in document["traceEvents"] if one["name"] == "Memory (%)"]
    assert drawn == [43.5 if turned else 41.5, 0.0]
    arguments = next(one["args"] for one in document["traceEvents"] if one.get("cat") == "kernel")
    values = [value for name, value in arguments.items() if name.endswith("(%)") or "(%), " in name]
    assert sorted(values) == [10.0, 11.0, 12.0, 41.5, 42.5, 43.5]
