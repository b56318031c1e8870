"""The log and the exported files of trtexec."""

import json

import numpy as np
import pytest

from import_logs import (
    TRTEXEC_LAYERS,
    TRTEXEC_LOG,
    TRTEXEC_PRINTED,
    TRTEXEC_PRINTED_7,
    TRTEXEC_PRINTED_8,
    TRTEXEC_PROFILE,
    codes,
    left_out,
    read,
    real,
    real_files,
    trtexec_times,
)
from jouletrace.analysis.latency import latencies_s
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import importer
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.run import load, save


def test_the_summary_of_a_log_becomes_figures_with_the_tool_named(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_LOG)
    stated = {"latency_s": 0.0425, "latency_min_s": 0.041, "latency_p90_s": 0.043, "gpu_compute_time_mean_s": 0.032}
    stated |= {"queries_per_s": 31.25, "host_walltime_s": 3.125, "gpu_compute_time_total_s": 3.0}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert run.result("latency_s").method == "stated by trtexec"
    assert run.result("latency_s").low is None
    assert run.devices[0].name == "NVIDIA A100-SXM4-40GB"
    assert run.workload["name"] == "gpt2.onnx"
    assert run.created_ns > 0


@pytest.mark.parametrize(("batch", "facts"), [("8", {"batch": 8}), ("Explicit", {"batch_stated": "Explicit"})])
def test_the_batch_of_a_log_is_a_number_or_kept_as_stated(tmp_path, batch, facts):
    line = f"[03/07/2024-10:00:00] [I] Batch: {batch}\n"
    run = read(tmp_path, "trtexec", line + TRTEXEC_LOG)
    again = load(save(run, tmp_path / "run"))
    assert {name: value for name, value in again.workload.items() if "batch" in name} == facts


def test_averages_of_a_log_are_windows_without_a_place_in_time(tmp_path):
    rows = read(tmp_path, "trtexec", TRTEXEC_LOG).windows.to_pylist()
    assert [(r["variant"], r["replays"], r["time_s"], r["start_ns"]) for r in rows[:2]] == [
        ("GPU latency", 10, pytest.approx(0.31), None),
        ("host latency", 10, pytest.approx(0.41), None),
    ]
    assert len(rows) == 6


def test_times_are_iterations_and_the_first_200_ms_are_warm_up(tmp_path):
    run = read(tmp_path, "trtexec", trtexec_times(60, first=100.0))
    assert latencies_s(run) == pytest.approx([0.01] * 50)
    assert "warm_up_assumed" in codes(run)
    spans = run.spans.to_pylist()
    compute = [s["end_ns"] - s["start_ns"] for s in spans if s["name"] == "GPU compute"]
    assert compute == [8_000_000] * 60
    assert sum(s["kind"] == "memcpy" for s in spans) == 120
    assert len({s["id"] for s in spans}) == len(spans)


def test_times_cut_off_keep_the_queries_that_are_whole(tmp_path):
    text = trtexec_times(60)
    run = read(tmp_path, "trtexec", text[: len(text) // 2])
    kept = sum(s["kind"] == "iteration" for s in run.spans.to_pylist())
    assert kept == text[: len(text) // 2].count('latencyMs": 10.0}')
    assert left_out(run)["cut_off"] == 1


def test_a_profile_with_names_that_are_not_escaped_is_read(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_PROFILE)
    layers = [row["name"] for row in run.units.to_pylist() if row["level"] == "layer"]
    assert layers == ["Conv_0 + Relu_1", 'say "hi" \\ there', "reshape"]
    assert run.result("time_s", 1).value == pytest.approx(1e-3)
    assert run.result("time_s", 1).n == 4
    assert run.result("time_s", 3).value == 0.0
    assert run.result("share", 2).value == pytest.approx(0.2)
    assert run.result("time_s").value == pytest.approx(1.25e-3)


def test_a_profile_laid_out_again_is_the_same(tmp_path):
    elements = [{"count": 4}, {"name": "a", "timeMs": 4, "averageMs": 1}, {"name": "b", "timeMs": 2, "averageMs": 0.5}]
    runs = [read(tmp_path, "trtexec", json.dumps(elements, indent=indent)) for indent in (None, 2)]
    assert runs[0].results.equals(runs[1].results)
    assert runs[0].result("time_s", 2).value == pytest.approx(0.5e-3)


def test_layers_are_objects_or_plain_names(tmp_path):
    rows = read(tmp_path, "trtexec", TRTEXEC_LAYERS).units.to_pylist()
    assert (rows[1]["name"], rows[1]["op"], rows[1]["shapes"]) == ("Conv_0", "CaskConvolution", "1x3x8x8 FP16")
    assert rows[2]["name"] == "Relu_1"


@pytest.mark.parametrize(
    "text",
    [
        "[I] === Performance summary ===\n",
        '[{"startEnqMs": 1, "computeMs": "x"}]',
        '{"Layers": []}',
        '{"Layers": [',
        '[{"count": 1}, {"timeMs": 1, "averageMs": 2}]',
    ],
)
def test_a_file_without_a_figure_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"log\.txt") as error:
        read(tmp_path, "trtexec", text)
    assert "\n" not in str(error.value)


@pytest.mark.samples
@real_files
def test_real_times_come_to_the_summary_that_trtexec_printed():
    for path in real("trex/examples/*/*/*/*/*.timing.json"):
        run = importer("trtexec").read(path, ImportOptions())
        ms = np.sort(latencies_s(run)) * 1e3
        summary = json.loads(path.with_name(path.name.replace("timing", "profile.metadata")).read_text())[
            "performance_summary"
        ]
        assert [ms[0], ms[-1], ms.mean(), np.median(ms)] == pytest.approx(summary["Latency"][:4], rel=1e-5)
        assert len(ms) == round(summary["Throughput"] * summary["Total Host Walltime"])
        # trtexec counts its percentiles down from the largest.
        assert ms[max(len(ms) - 1 - int(0.01 * len(ms)), 0)] == pytest.approx(summary["Latency"][4])


@pytest.mark.samples
@real_files
def test_real_profiles_and_layers_hold_as_many_layers_as_their_json():
    for path in real("trex/examples/*/*/*/*/*.profile.json"):
        layers = json.loads(path.read_text())[1:]
        run = importer("trtexec").read(path, ImportOptions())
        assert run.result("time_s").value == pytest.approx(sum(layer["averageMs"] for layer in layers) / 1e3)
        assert run.units["name"].to_pylist()[1:] == [layer["name"] for layer in layers]
        graph = path.with_name(path.name.replace("profile", "graph"))
        run = importer("trtexec").read(graph, ImportOptions())
        assert run.units["name"].to_pylist()[1:] == [layer["Name"] for layer in json.loads(graph.read_text())["Layers"]]


@pytest.mark.samples
@real_files
def test_a_real_log_has_its_nine_averages_and_its_medians():
    run = importer("trtexec").read(real("profiling_gpt2/*.log")[0], ImportOptions())
    assert len(run.windows) == 27
    assert run.result("latency_s").value == pytest.approx(0.0412759)
    assert run.result("gpu_compute_time_p99_s").value == pytest.approx(0.0311133)


@pytest.mark.parametrize("text", [TRTEXEC_PRINTED, TRTEXEC_PRINTED_8, TRTEXEC_PRINTED_7])
@pytest.mark.parametrize("before", ["", TRTEXEC_LOG])
def test_printed_layers_are_read_in_the_forms_of_all_versions(tmp_path, text, before):
    run = read(tmp_path, "trtexec", before + text)
    units = {unit["name"]: unit["id"] for unit in run.units.to_pylist() if unit["level"] == "layer"}
    assert list(units) == ["reformatter of {x + y} 0", "{ForeignNode[a...b 2.0 3.0]}"]
    node = units["{ForeignNode[a...b 2.0 3.0]}"]
    assert run.result("time_s", node).value == pytest.approx(5.75e-3)
    assert run.result("time_s", node).n == 290
    assert run.result("time_total_s", node).value == pytest.approx(1.6675)
    assert run.result("share", node).value == pytest.approx(0.977)
    if text != TRTEXEC_PRINTED_7:
        assert run.result("time_median_s", node).value == pytest.approx(5.7308e-3)
    assert run.result("time_s").value == pytest.approx(5.85e-3)
    assert not left_out(run)


def test_what_follows_printed_layers_is_read_again(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_PRINTED_8.rstrip().rsplit("\n", 1)[0] + "\n" + TRTEXEC_LOG)
    assert run.result("latency_s").value == pytest.approx(42.5e-3)


def test_a_damaged_layer_is_counted(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_PRINTED.replace("0.0973", "x"))
    assert left_out(run) == {"broken_layers": 1}
