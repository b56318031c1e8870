"""The GPT-2 chain: a model in ONNX, TensorRT and OpenVINO, timed, traced, counted, and drawn on one timeline."""

import csv
import json

import numpy as np
import pytest

import check_trace
from commands import command, done
from import_logs import TRTEXEC_LOG
from import_timelines import GEMM, RELU, ncu_details, nsys
from jouletrace.run import load
from stand_ins import called, install

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("short_passes", "torchlib_once")]

STABLE = {"scale_attn_by_inverse_layer_idx": "True", "reorder_and_upcast_attn": "True", "vocab_size": "50"}
SMALL = {"n_layer": "2", "n_embd": "16", "n_head": "2", "n_positions": "16", "bos_token_id": "1", "eos_token_id": "1"}
CHANGES = [part for key, value in (STABLE | SMALL).items() for part in ("--config", f"{key}={value}")]
LENGTH = 8
KERNELS = [(GEMM, (8, 1, 1)), (RELU, (16, 1, 1))]
LAUNCHES = 3
BUILDS = """
if "--help" in arguments:
    print("  --onnx=<file>\\n  --saveEngine=<file>\\n  --fp16\\n  --workspace=N\\n  --profilingVerbosity=mode")
    sys.exit(0)
(here / "trtexec.called").write_text("\\n".join(arguments))
pathlib.Path(option("--saveEngine")).write_bytes(b"engine")
"""


def page(path, metrics):
    """ncu's details page of every launch; ``metrics`` gives the percentage of a launch by section and metric."""
    lines = [[*key, "%", f"{percent}"] for key, percent in metrics.items()]
    return ncu_details(path, KERNELS * LAUNCHES, metrics=lines)


@pytest.fixture(scope="module")
def exported(study):
    """A small GPT-2 in ONNX: what convert said of it."""
    options = ("--opset", "15", "--input-names", "input", "--output-names", "output", "--seq-len", str(LENGTH))
    return json.loads(
        done("convert", "gpt2-large", "--to", "onnx", "-o", "gpt2.onnx", *options, *CHANGES, "--json").out
    )


@pytest.fixture(scope="module")
def converted(exported):
    """The same in OpenVINO."""
    pytest.importorskip("openvino")
    return done("convert", "gpt2.onnx", "--to", "openvino", "-o", "gpt2.xml")


@pytest.fixture(scope="module")
def benchmarked(converted):
    """It is timed for the shortest latency, node by node."""
    quick = ("-d", "cpu", "--warmup", "0.3", "--threads", "1", "--hint", "latency")
    done("profile", "gpt2.xml", "--backend", "openvino", "--detail", "kernel", *quick, "-o", "openvino")
    return load("openvino")


@pytest.fixture(scope="module")
def merged(study):
    """A timeline of nsys with two pages of ncu on it."""
    nsys(study / "report.sqlite", launches=LAUNCHES)
    speed = "GPU Speed Of Light Throughput"
    page(study / "sol.csv", {(speed, "Memory [%]"): 13.5, (speed, "Compute (SM) [%]"): 71.25})
    page(
        study / "occupancy.csv",
        {("Occupancy", "Theoretical Occupancy"): 50.0, ("Occupancy", "Achieved Occupancy"): 44.5},
    )
    done("import", "report.sqlite", "sol.csv", "occupancy.csv", "-o", "merged")
    done("export", "merged", "-f", "chrome", "-o", "merged.json")
    return check_trace.read(study / "merged.json")


def test_gpt2_is_built_from_its_configuration_with_changes(exported, study):
    model = onnx.load(str(study / "gpt2.onnx"))
    shapes = {tuple(one.dims) for one in model.graph.initializer}
    assert (50, 16) in shapes, "the table of the vocabulary that was asked for"
    assert exported["difference"] < 1e-3


def test_it_is_exported_to_onnx_15_without_a_cache_and_with_its_names(exported, study):
    model = onnx.load(str(study / "gpt2.onnx"))
    assert [one.version for one in model.opset_import if one.domain == ""] == [15]
    assert [one.name for one in model.graph.input] == ["input"]
    assert [one.name for one in model.graph.output] == ["output"]
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, LENGTH]
    assert not [node for node in model.graph.node if node.op_type == "Dropout"]


def test_its_constants_are_folded(exported, study):
    options = ("--opset", "15", "--seq-len", str(LENGTH), "--no-fold")
    done("convert", "gpt2-large", "--to", "onnx", "-o", "plain.onnx", *options, *CHANGES)
    plain, folded = (len(onnx.load(str(study / name)).graph.node) for name in ("plain.onnx", "gpt2.onnx"))
    assert folded < plain


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_engines_of_both_precisions_are_built_with_details_for_profilers(exported, study, monkeypatch, capsys, dtype):
    bin = install(study, monkeypatch, "trtexec", BUILDS)
    options = ("--dtype", dtype, "--workspace", "30000", "-o", f"gpt2-{dtype}.engine")
    said = command(capsys, "convert", "gpt2.onnx", "--to", "tensorrt", *options)
    assert said.code == 0, said.err
    asked = called(bin, "trtexec")
    assert {"--onnx=gpt2.onnx", "--profilingVerbosity=detailed", "--workspace=30000"} <= set(asked)
    assert ("--fp16" in asked) == (dtype == "fp16")
    assert (study / f"gpt2-{dtype}.engine").read_bytes() == b"engine"


def test_a_log_of_trtexec_has_its_summary_and_its_means_of_ten_runs(study, capsys):
    (study / "trtexec.log").write_text(TRTEXEC_LOG)
    said = command(capsys, "import", "trtexec.log", "-o", "trtexec")
    assert said.code == 0, said.err
    run = load("trtexec")
    stated = {"queries_per_s": 31.25, "latency_s": 0.0425, "latency_min_s": 0.041, "latency_p99_s": 0.044}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    windows = run.windows.to_pylist()
    assert {window["replays"] for window in windows} == {10}
    means_s = [window["time_s"] / 10 for window in windows if window["variant"] == "GPU latency"]
    assert means_s == pytest.approx([0.031, 0.033])
    assert {window["variant"] for window in windows} == {"GPU latency", "host latency", "enqueue"}


def test_kernels_and_their_times_are_taken_out_of_the_report_of_nsys(merged, study):
    done("export", "merged", "-f", "csv", "-o", "tables")
    with open("tables/spans.csv", newline="") as file:
        kernels = [row for row in csv.DictReader(file) if row["kind"] == "kernel"]
    assert [row["name"] for row in kernels] == [GEMM, RELU] * LAUNCHES
    assert all(int(row["end_ns"]) > int(row["start_ns"]) > 0 for row in kernels)


def test_counters_of_two_pages_stand_on_the_kernels_of_the_timeline(merged):
    run = load("merged")
    found = {}
    for row in run.counters.to_pylist():
        found.setdefault(row["span"], {})[row["metric"]] = row["value"]
    assert len(found) == 2 * LAUNCHES
    kernels = {span["id"] for span in run.spans.to_pylist() if span["kind"] == "kernel" and span["start_ns"]}
    assert set(found) == kernels
    wanted = {"Memory [%]": 13.5, "Compute (SM) [%]": 71.25, "Theoretical Occupancy": 50.0, "Achieved Occupancy": 44.5}
    for metrics in found.values():
        assert metrics == pytest.approx(wanted)


def test_kernels_and_counters_are_one_trace_that_chrome_opens(merged):
    assert check_trace.problems(merged) == []
    events = merged["traceEvents"]
    drawn = [one for one in events if one["ph"] == "X" and one["name"] in (GEMM, RELU)]
    assert len(drawn) == 2 * LAUNCHES
    starts = {one["ts"] for one in drawn}
    lines = {"Memory": 13.5, "Compute": 71.25, "Theoretical occupancy": 50.0, "Achieved occupancy": 44.5}
    for name, percent in lines.items():
        points = [one for one in events if one["ph"] == "C" and one["name"].startswith(name)]
        raised = {one["ts"] for one in points if percent in one["args"].values()}
        assert starts <= raised, name


def test_it_is_converted_to_openvino(converted, study):
    import openvino

    model = openvino.Core().read_model(str(study / "gpt2.xml"))
    assert [port.any_name for port in model.inputs] == ["input"]
    assert (study / "gpt2.bin").exists()


def test_openvino_is_timed_for_latency_in_fp32_with_what_each_node_took(benchmarked, capsys):
    step = benchmarked.workload["step"]
    assert (step["hint"], step["streams"], step["inference_precision"]) == ("latency", 1, "f32")
    shown = json.loads(command(capsys, "show", "openvino", "--json").out)
    latency = shown["model"]["latency_ms"]
    assert 0 < latency["min"] <= latency["median"] <= latency["max"]
    assert latency["min"] <= latency["mean"] <= latency["max"]
    nodes = {unit["id"]: unit for unit in benchmarked.units.to_pylist() if unit["level"] == "op"}
    assert {"FullyConnected", "MatMul"} & {unit["op"] for unit in nodes.values()}
    times = [benchmarked.result("time_s", unit).value for unit in nodes]
    assert np.sum(times) > 0


def test_the_machine_is_named_in_every_run(benchmarked, capsys):
    device = benchmarked.devices[0]
    assert device.kind == "cpu"
    assert device.name
    assert benchmarked.workload["step"]["runtime_device"]
    assert {"python", "system", "machine"} <= set(benchmarked.versions)
    assert device.name in command(capsys, "show", "openvino").out
