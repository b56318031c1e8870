"""Reports of torch.utils.benchmark, OpenVINO's benchmark_app and onnxruntime."""

import json

import pytest

from import_logs import OPENVINO_LAYERS, OPENVINO_REPORT, TORCH, left_out, read, real, real_files
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


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("torch_benchmark", "<torch.utils.benchmark.utils.common.Measurement object at 0x7f>\n"),
        ("openvino", '{"execution_results": {}}'),
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
