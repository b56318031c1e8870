"""Reports of torch.utils.benchmark, OpenVINO's benchmark_app and onnxruntime."""

import json

import pytest

from import_logs import OPENVINO_LAYERS, OPENVINO_REPORT, TORCH, codes, left_out, onnxruntime, read, real, real_files
from jouletrace.analysis.latency import latencies_s
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import importer
from jouletrace.formats.importers.base import ImportOptions


def test_a_measurement_is_the_latency_of_the_model(tmp_path):
    run = read(tmp_path, "torch_benchmark", TORCH)
    stated = {"latency_s": 4.37e-3, "latency_iqr_s": 0.06e-3, "latency_p25_s": 4.36e-3, "latency_p75_s": 4.42e-3}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert run.result("latency_s").n == 226
    assert run.workload["runs_per_measurement"] == 100
    assert run.workload["title"].startswith("y = model(x): batch_size 1 method pre-ln")
    assert left_out(run) == {"compare_table": 1}


def test_several_measurements_are_units_of_their_own(tmp_path):
    block = TORCH.split("[---", maxsplit=1)[0]
    run = read(tmp_path, "torch_benchmark", block + block.replace("4.37", "8.5").replace("Base", "Fast"))
    assert run.result("latency_s").value is None
    assert [run.result("latency_s", unit).value for unit in (1, 2)] == pytest.approx([4.37e-3, 8.5e-3])


def test_a_measurement_of_one_block_has_no_spread(tmp_path):
    text = "<torch.utils.benchmark.utils.common.Measurement object at 0x7f>\nf()\n"
    text += "  12.50 us\n  1 measurement, 100 runs , 1 thread\n"
    run = read(tmp_path, "torch_benchmark", text)
    assert run.result("latency_s").value == pytest.approx(12.5e-6)


def test_the_report_of_benchmark_app_becomes_figures(tmp_path):
    run = read(tmp_path, "openvino", OPENVINO_REPORT)
    assert run.result("latency_s").value == pytest.approx(5e-3)
    assert run.result("throughput_per_s").value == 180
    assert run.result("latency_s").n == 200
    assert (run.workload["name"], run.devices[0].kind) == ("toy", "cpu")


def test_layers_that_did_not_run_are_not_counted_as_layers(tmp_path):
    run = read(tmp_path, "openvino", OPENVINO_LAYERS)
    assert run.units["name"].to_pylist()[1:] == ["mm"]
    assert run.result("time_s", 1).value == pytest.approx(3e-3)
    assert run.result("time_s", 1).n == 2
    assert left_out(run) == {"not_run": 2}


def test_layers_as_csv_are_the_same(tmp_path):
    table = "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)\n"
    table += "mm;Status.EXECUTED;MatMul;jit;{};{}\nrelu;Status.NOT_RUN;Relu;undef;0;0\nTotal;;;;2.0;2.0\n\n"
    run = read(tmp_path, "openvino", table.format(2.0, 2.0) + table.format(4.0, 4.0))
    assert run.result("time_s", 1).value == pytest.approx(3e-3)
    assert len(run.units) == 2


def test_a_report_as_csv_is_the_same(tmp_path):
    text = "Command line parameters\n-m;toy.xml\n\n"
    text += "Configuration setup\ntopology;toy\ntarget device;CPU\n\n"
    text += "Execution results\nlatency (ms);0.05\nthroughput;180.0\n\n"
    run = read(tmp_path, "openvino", text)
    assert run.result("latency_s").value == pytest.approx(5e-5)
    assert "rounded" in codes(run)


def test_printed_latencies_are_read_in_their_unit(tmp_path):
    text = "[ INFO ] Latency:\n[ INFO ]    Median:        9.54 us\n"
    text += "[ INFO ]    Average:       16.46 us\n[ INFO ] Throughput:   43715.15 FPS\n"
    run = read(tmp_path, "openvino", text)
    assert run.result("latency_s").value == pytest.approx(9.54e-6)
    assert run.result("throughput_per_s").value == 43715.15


def test_a_profile_of_onnxruntime_has_runs_and_their_nodes(tmp_path):
    run = read(tmp_path, "onnxruntime", onnxruntime(3))
    assert latencies_s(run) == pytest.approx([80e-6] * 3)
    spans = run.spans.to_pylist()
    ops = [s for s in spans if s["kind"] == "op"]
    assert [s["name"] for s in ops] == ["mm", "relu"] * 3
    runs = {s["id"]: s for s in spans if s["kind"] == "iteration"}
    assert all(runs[s["parent"]]["start_ns"] <= s["start_ns"] for s in ops[:5])
    assert run.workload["providers"] == ["CPUExecutionProvider"]


def test_fences_and_damaged_events_are_counted(tmp_path):
    events = json.loads(onnxruntime(1))
    events += [
        {"cat": "Node", "ph": "X", "ts": 1, "dur": 0, "name": "mm_fence_before"},
        {"cat": "Node", "name": "x"},
        7,
    ]
    run = read(tmp_path, "onnxruntime", json.dumps(events))
    assert left_out(run) == {"fences": 1, "broken_events": 2}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("torch_benchmark", "<torch.utils.benchmark.utils.common.Measurement object at 0x7f>\n"),
        ("openvino", '{"execution_results": {}}'),
        ("onnxruntime", '[{"name": "x_kernel_time"}]'),
    ],
)
def test_a_report_without_a_figure_is_refused(tmp_path, form, text):
    with pytest.raises(BadInputError, match=r"log\.txt"):
        read(tmp_path, form, text)


@pytest.mark.samples
@real_files
def test_real_reports_of_benchmark_app_hold_their_figures():
    report = real("generated_here/openvino/benchmark_report.json")[0]
    run = importer("openvino").read(report, ImportOptions())
    results = json.loads(report.read_text())["execution_results"]
    assert run.result("latency_s").value == pytest.approx(float(results["latency (ms)"]) / 1e3)
    assert run.result("throughput_per_s").n == int(results["total number of iterations"])
    run = importer("openvino").read(real("profiling_gpt2/openvino*.txt")[0], ImportOptions())
    assert run.result("latency_s").value == pytest.approx(2.1015)
