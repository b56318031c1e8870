"""Differences in how two sides were run change a comparison."""

import re

import pyarrow.compute as pc
import pytest

from compare_runs import side, stated, thing
from jouletrace import compare
from jouletrace.errors import BadInputError
from jouletrace.report.comparison import render
from jouletrace.report.comparison_words import verdict
from jouletrace.run import Run, tables
from make_runs import gpu

OTHER = gpu(id="GPU-99999999-2222-3333-4444-555555555555")


def energy(found, **keys):
    return found.row("energy_total_j", **keys)


def test_what_differs_in_how_sides_were_run_is_reported():
    found = compare(side(1.0), side(1.0, task="train", dtype="fp32", mode="eager"))
    said = " ".join(stated(found)["notes"])
    for text in ("task differs: infer in A, train in B", "dtype differs: fp16 in A, fp32 in B", "mode differs"):
        assert text in said


def changed(settings=(), versions=(), environment=(), **workload):
    """One side: a run with these besides."""
    run = thing(1.0, **workload)
    run.settings, run.versions, run.environment = dict(settings), dict(versions), dict(environment)
    return [(run, "run")]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ({"settings": {"seed": 0}}, {"settings": {"seed": 3}}, "seed differs: 0 in A, 3 in B"),
        (
            {"settings": {"label_smoothing": 0.0}},
            {"settings": {"label_smoothing": 0.1}},
            "label smoothing differs: 0 in A, 0.1 in B",
        ),
        (
            {"settings": {"max_time_s": None}},
            {"settings": {"max_time_s": 20.0}},
            "max time (s) differs: default in A, 20 in B",
        ),
        (
            {"settings": {"detail": "model"}},
            {"settings": {"detail": "layer"}},
            "detail differs: model in A, layer in B",
        ),
        (
            {"settings": {"config": {}}},
            {"settings": {"config": {"num_hidden_layers": "2"}}},
            "--config num_hidden_layers differs: default in A, 2 in B",
        ),
        (
            {"parameters": 25175040},
            {"parameters": 29255424},
            "number of parameters differs: 25175040 in A, 29255424 in B",
        ),
        (
            {"counted": {"flops": 2e9}},
            {"counted": {"flops": 3e9}},
            "number of FLOPs of an iteration differs: 2e+09 in A, 3e+09 in B",
        ),
        ({"attention": "sdpa"}, {"attention": "eager"}, "attention differs: sdpa in A, eager in B"),
        (
            {"torch_flags": {"cudnn_benchmark": False}},
            {"torch_flags": {"cudnn_benchmark": True}},
            "torch's cudnn_benchmark differs: False in A, True in B",
        ),
        (
            {"versions": {"transformers": "5.1"}},
            {"versions": {"transformers": "5.2"}},
            "transformers differs: 5.1 in A, 5.2 in B",
        ),
        ({"versions": {}}, {"versions": {"torch": "2.11"}}, "torch differs: not stated in A, 2.11 in B"),
        (
            {"backend": "openvino", "versions": {"openvino": "1"}},
            {"backend": "openvino", "versions": {"openvino": "2"}},
            "openvino differs: 1 in A, 2 in B",
        ),
        (
            {"environment": {"NCCL_ALGO": "Ring"}},
            {},
            "$NCCL_ALGO differs: Ring in A, not set in B",
        ),
    ],
)
def test_an_option_a_version_or_a_variable_that_differs_is_reported_with_both_values(a, b, said):
    assert said in stated(compare(changed(**a), changed(**b)))["notes"]
    assert not any("differs" in note for note in stated(compare(changed(**a), changed(**a)))["notes"])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"settings": {"pid": 1, "device": "cuda:0"}}, {"settings": {"pid": 2, "device": "auto"}}),
        ({"settings": {"seed": 0}}, {}),
        ({"versions": {"openvino": "1", "numpy": "1"}}, {"versions": {"numpy": "2"}}),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, {"environment": {"CUDA_VISIBLE_DEVICES": "1"}}),
    ],
)
def test_what_changes_no_figure_or_only_one_side_knows_is_not_said(a, b):
    assert not any("differs" in note for note in stated(compare(changed(**a), changed(**b)))["notes"])


def test_an_option_that_varies_within_a_side_is_reported_with_all_its_values():
    found = compare([*changed({"seed": 1}), *changed({"seed": 2}, note="another")], changed({"seed": 1}))
    assert "seed differs: 1, 2 in A, 1 in B" in stated(found)["notes"]


def clocked(mhz, counted=None):
    run = thing(1.0)
    rows = [{"time_ns": i, "device": run.devices[0].id, "channel": "clock_sm_mhz", "value": mhz} for i in range(5)]
    run.samples = tables.from_rows(rows, "samples")
    window = {"variant": "untouched", "block": 0, "replays": 1, "start_ns": 0, "end_ns": 5, "counted_mhz": counted}
    run.windows = tables.from_rows([{**window, "order": i} for i in range(3)], "windows")
    return [(run, f"run at {mhz}, {counted}")]


def test_clocks_more_than_a_percent_apart_are_reported():
    text = "SM clock differs: 1980 MHz in A, 1755 MHz in B, on average, as the driver reports it"
    assert text in stated(compare(clocked(1980.0), clocked(1755.0)))["notes"]
    assert not any("clock" in note for note in stated(compare(clocked(1980.0), clocked(1975.0)))["notes"])


def clock_notes(a, b):
    return [note for note in stated(compare(a, b))["notes"] if "clock" in note]


def test_where_both_sides_are_counted_the_measured_clock_decides():
    assert clock_notes(clocked(1980.0, 1851.0), clocked(1980.0, 1652.0)) == [
        "SM clock differs: 1851 MHz in A, 1652 MHz in B, on average, by the SMs' cycle counters"
    ]
    assert clock_notes(clocked(1980.0, 1652.0), clocked(1790.0, 1655.0)) == []


def test_a_measured_clock_is_not_compared_with_one_that_is_only_reported():
    expected = ["SM clock differs: 1980 MHz in A, 1790 MHz in B, on average, as the driver reports it"]
    assert clock_notes(clocked(1980.0, 1851.0), clocked(1790.0)) == expected
    assert clock_notes(clocked(1980.0), clocked(1790.0, 1652.0)) == expected
    assert clock_notes(clocked(1980.0, 1851.0), clocked(1980.0)) == []
    some = [*clocked(1980.0, 1851.0), *clocked(1979.0)]
    assert clock_notes(some, clocked(1980.0, 1652.0)) == [], "all runs of a side must have been counted"


def test_a_warning_names_the_runs_that_it_is_of_unless_all_have_it():
    a, b = side(1.0, 1.001), side(1.0, 1.002)
    a[1][0].warn("hot", "the GPU was hot")
    for run, _ in b:
        run.warn("hot", "the GPU was hot")
    assert stated(compare(a, b))["warnings"] == ["A (run 1): the GPU was hot", "B: the GPU was hot"]


def test_sides_without_a_figure_in_common_are_named_by_their_places():
    one, other = thing(1.0), thing(1.0)
    one.results = one.results.filter(pc.equal(one.results["metric"], "power_w"))
    other.results = other.results.filter(pc.equal(other.results["metric"], "latency_s"))
    with pytest.raises(BadInputError, match=r"no figure in common.*\(before and after\)"):
        compare([(one, "before")], [(other, "after")])


def test_another_batch_is_compared_per_sample():
    found = compare(side(1.0, 1.001), side(2.0, 2.002, batch=16, items=16))
    assert energy(found).change.value == pytest.approx(0.0, abs=1e-9)
    assert found.row("power_w").change.value == pytest.approx(1.0)
    assert any("per sample" in note for note in stated(found)["notes"])
    assert "energy per sample" in " ".join(verdict(found))
    assert "per iteration" not in re.sub("latency per iteration", "", render(found), flags=re.IGNORECASE)


def test_a_side_without_a_batch_is_compared_per_iteration():
    """A callable that takes the same inputs as a module states no batch."""
    found = compare(side(1.0, 1.001), side(1.0, 1.002, batch=None, items=1))
    assert energy(found).change.value == pytest.approx(0.0, abs=1e-3)
    assert "B states no batch: iterations are compared" in stated(found)["notes"]
    assert "energy per iteration" in " ".join(verdict(found))


def test_runs_without_figures_are_left_out_and_said():
    found = compare([*side(1.0, 1.01), (Run(kind="measure"), "empty")], side(1.0, 1.01))
    assert found.a.count == 2
    assert any("empty holds no figures" in note for note in stated(found)["notes"])
    with pytest.raises(BadInputError, match="none of its Runs holds figures"):
        compare([(Run(kind="measure"), "empty")], side(1.0))


def test_an_incomplete_run_is_reported():
    run = thing()
    run.complete = False
    assert any("broken is incomplete" in note for note in stated(compare([(run, "broken")], side(1.0)))["notes"])
