"""The log and the exported files of trtexec."""

import json

import pytest

from import_logs import (
    TRTEXEC_LOG,
    TRTEXEC_PROFILE,
    read,
    real,
    real_files,
)
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


def test_a_profile_with_names_that_are_not_escaped_is_read(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_PROFILE)
    layers = [row["name"] for row in run.units.to_pylist() if row["level"] == "layer"]
    assert layers == ["Conv_0 + Relu_1", 'say "hi" \\ there', "reshape"]
    assert run.result("time_s", 1).value == pytest.approx(1e-3)
    assert run.result("time_s", 1).n == 4
    assert run.result("time_s", 3).value == 0.0
    assert run.result("share", 2).value == pytest.approx(0.2)
    assert run.result("time_s").value == pytest.approx(1.25e-3)


@pytest.mark.parametrize(
    "text",
    [
        "[I] === Performance summary ===\n",
        '[{"count": 1}, {"timeMs": 1, "averageMs": 2}]',
    ],
)
def test_a_file_without_a_figure_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"log\.txt") as error:
        read(tmp_path, "trtexec", text)
    assert "\n" not in str(error.value)


@pytest.mark.samples
@real_files
def test_real_profiles_hold_as_many_layers_as_their_json():
    for path in real("trex/examples/*/*/*/*/*.profile.json"):
        layers = json.loads(path.read_text())[1:]
        run = importer("trtexec").read(path, ImportOptions())
        assert run.result("time_s").value == pytest.approx(sum(layer["averageMs"] for layer in layers) / 1e3)
        assert run.units["name"].to_pylist()[1:] == [layer["name"] for layer in layers]


@pytest.mark.samples
@real_files
def test_a_real_log_has_its_nine_averages_and_its_medians():
    run = importer("trtexec").read(real("profiling_gpt2/*.log")[0], ImportOptions())
    assert len(run.windows) == 27
    assert run.result("latency_s").value == pytest.approx(0.0412759)
    assert run.result("gpu_compute_time_p99_s").value == pytest.approx(0.0311133)
