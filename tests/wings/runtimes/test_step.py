"""``profile --backend``: models in onnxruntime and OpenVINO, their inputs, streams, nodes and failures."""

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from commands import PATIENCE_S, command, only_run
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.profiler import ProfileSettings, Progress, profile_workload
from jouletrace.profiler.detail.kernel_recording import nodes as time_nodes
from jouletrace.profiler.prepare import for_workload
from jouletrace.run import DeviceInfo, Run, load
from jouletrace.wings.runtimes import RuntimeStep, make
from jouletrace.wings.runtimes.backend import device_for
from jouletrace.wings.runtimes.engine import TensorSpec, random_feeds, require
from jouletrace.wings.runtimes.onnxruntime import read_profile
from jouletrace.wings.runtimes.openvino import OpenVino
from jouletrace.workloads import WorkloadOptions, resolve

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("torchlib_once")]

BACKENDS = ("onnxruntime", "openvino")
QUICK = {"warmup_s": 0.3, "latency_s": 0.2, "device": "cpu"}


INNER = 16_384
"""So wide that the product takes some microseconds: a runtime leaves out nodes far below one."""


def model(path, batch=2, length=4, vocabulary=10, nan=False):
    """Looks tokens up in a table, multiplies by a matrix, and takes the softmax."""
    draws = np.random.default_rng(0)
    table = draws.standard_normal((vocabulary, INNER)).astype(np.float32)
    if nan:
        table[:] = np.nan
    weights = draws.standard_normal((INNER, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "tokens"], ["looked"], name="look"),
            helper.make_node("MatMul", ["looked", "weights"], ["multiplied"], name="multiply"),
            helper.make_node("Softmax", ["multiplied"], ["out"], name="squash"),
        ],
        "small",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [batch, length])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [batch, length, 3])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(path))
    return str(path)


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_file_becomes_a_run_like_any_other(tmp_path, backend):
    pytest.importorskip(backend)
    run = profile_workload(model(tmp_path / "m.onnx"), ProfileSettings(backend=backend, threads=1, **QUICK))
    assert run.result("latency_s").value > 0
    assert run.result("throughput_per_s").value > 0
    assert run.workload["batch"] == 2
    assert run.workload["backend"] == run.workload["mode"] == backend
    assert run.workload["step"]["streams"] == 1
    assert run.result("energy_total_j").value is None or not run.simulated
    if not run.channel(run.devices[0].id, "power_w"):
        assert run.result("energy_total_j").reason in ("rapl_absent", "rapl_unreadable", "no_power_sensor")
    ops = {unit["op"] for unit in run.units.to_pylist() if unit["level"] == "op"}
    assert ops & {"MatMul", "FullyConnected"}
    assert run.result("perturbation").value > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_nodes_are_timed_by_the_runtime_and_add_up(tmp_path, backend):
    pytest.importorskip(backend)
    made = make(resolve(model(tmp_path / "m.onnx", 8, 32)), WorkloadOptions(), backend, threads=1)
    found = made.step.node_times(5)
    made.step.close()
    n = len(found.began_ns)
    assert n * found.mean_of == 5
    names = [found.nodes[node].op for node in found.node[found.iteration == 0]]
    assert "Gather" in names
    assert "Parameter" not in names  # has nothing to run
    for k in range(n):
        inside = found.iteration == k
        took = (found.end_ns - found.start_ns)[inside]
        assert np.all(took >= 0)
        assert 0 < took.sum() <= 1.5 * (found.ended_ns[k] - found.began_ns[k])
    assert abs(int(found.began_ns[0]) - time.time_ns()) < 60e9


def test_times_of_openvino_are_freed_of_the_first_iterations_in_its_means():
    pytest.importorskip("openvino")

    class Request:
        """Its first two iterations take 10 ms each, all later ones 1 ms; the counters give the mean so far."""

        ran = 0

        def infer(self, share_outputs):
            self.ran += 1

        @property
        def profiling_info(self):
            mean_us = (10_000 * min(self.ran, 2) + 1_000 * max(self.ran - 2, 0)) / self.ran
            stated = {"node_type": "MatMul", "exec_type": "gemm"}
            real = SimpleNamespace(node_name="a", status="Status.EXECUTED", real_time=timedelta(microseconds=mean_us))
            fused = SimpleNamespace(node_name="b", status="Status.NOT_RUN", real_time=timedelta(0))
            return [SimpleNamespace(**vars(one), **stated) for one in (real, fused)]

    engine = OpenVino.__new__(OpenVino)
    engine._compile = lambda streams, **options: None
    engine._request = lambda compiled: Request()
    found = engine.node_times(50)
    assert [node.name for node in found.nodes] == ["a"]
    assert found.mean_of == 50
    assert (found.end_ns - found.start_ns).tolist() == pytest.approx([1_000_000], rel=0.01)


def test_the_figures_of_nodes_are_computed_again_from_what_is_stored(tmp_path, capsys):
    said = command(capsys, "profile", model(tmp_path / "m.onnx"), "--warmup", "0.3", "-d", "cpu", "--detail", "kernel")
    assert said.code == 0, said.err
    assert "Gather" in said.out
    assert "look" in said.out
    run = load(str(only_run(tmp_path)))
    before = run.results.to_pylist()
    assert analyse(run).results.to_pylist() == before
    shares = [row["value"] for row in before if row["metric"] == "share"]
    assert sum(shares) == pytest.approx(1, abs=0.3)


def test_a_workload_is_exported_and_runs_on_its_own_inputs(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    (tmp_path / "toy.py").write_text(
        "import torch\ndef toy(batch=2):\n    return torch.nn.Linear(4, 4), torch.randn(batch, 4)\n"
    )
    made = make(resolve("toy.py:toy"), WorkloadOptions(batch=3, input_sets=1), "onnxruntime")
    assert made.built.items == 3
    assert made.built.facts["export"]["difference"] < 1e-5
    assert made.step.replay(3).seconds > 0
    assert len(made.step.node_times(2).nodes) > 0  # its file is still there
    folder = made.step._folder.path
    made.step.close()
    with pytest.raises(FileNotFoundError):
        open(folder)  # noqa: SIM115


def test_streams_run_at_once_and_their_throughput_is_that_of_whole_windows(tmp_path):
    settings = ProfileSettings(backend="onnxruntime", threads=2, streams=2, first_stage=2, **QUICK)
    run = profile_workload(model(tmp_path / "m.onnx"), settings)
    assert run.workload["step"]["streams"] == 2
    windows = run.windows.to_pylist()
    assert len(windows) >= 2
    items = sum(window["replays"] for window in windows) * 2
    seconds = sum(window["time_s"] for window in windows)
    assert run.result("throughput_per_s").value == pytest.approx(items / seconds, rel=0.3)


def test_openvino_is_opened_with_as_many_streams_as_are_asked_for(tmp_path):
    pytest.importorskip("openvino")
    made = make(resolve(model(tmp_path / "m.onnx")), WorkloadOptions(), "openvino", threads=2, streams=2)
    assert made.step.replay(20).seconds > 0
    assert len(made.step.latencies(20)) == 20
    assert made.step.describe()["streams"] == 2
    made.step.close()


@pytest.mark.parametrize(("hint", "threads"), [("throughput", 2), ("latency", 2)])
def test_a_hint_has_openvino_choose_how_many_run_at_once(tmp_path, hint, threads):
    openvino = pytest.importorskip("openvino")
    path = model(tmp_path / "m.onnx")
    options = {"PERFORMANCE_HINT": hint.upper(), "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    streams = openvino.compile_model(path, "CPU", options).get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    assert streams == 1 or hint == "throughput"
    settings = ProfileSettings(backend="openvino", hint=hint, threads=threads, first_stage=2, **QUICK)
    run = profile_workload(path, settings)
    assert (run.workload["step"]["hint"], run.workload["step"]["streams"]) == (hint, streams)
    assert run.settings["hint"] == hint
    assert run.result("throughput_per_s").value > 0
    assert run.result("latency_s").value > 0
    assert len(run.windows) > 0 or streams == 1, "latencies that overlap give no throughput"


def test_without_a_hint_openvino_has_as_many_streams_as_are_asked_for(tmp_path):
    pytest.importorskip("openvino")
    path = model(tmp_path / "m.onnx")
    for streams, hint in ((1, "latency"), (2, "throughput")):
        made = make(resolve(path), WorkloadOptions(), "openvino", threads=2, streams=streams)
        assert (made.step.describe()["hint"], made.step.streams) == (hint, streams)
        made.step.close()


class Engine:
    """Notes which stream ran which number, and how long each took; fails at one on request.

    The first ones wait until ``together`` of them run at once.
    """

    name = "engine"
    inputs = ()

    def __init__(self, fails_at=None, takes_s=0.002, together=1):
        self.ran, self.took_s, self.at_once, self.most = [], [], 0, 0
        self.fails_at, self.takes_s, self.together = fails_at, takes_s, together
        self.changed = threading.Condition()

    def infer(self, stream, number):
        began = time.perf_counter()
        with self.changed:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.together, PATIENCE_S)
        time.sleep(self.takes_s)
        if number == self.fails_at:
            raise RuntimeError("no memory\nfor this")
        with self.changed:
            self.at_once -= 1
            self.ran.append(number)
        self.took_s.append(time.perf_counter() - began)

    def describe(self):
        return {"runtime": "engine"}

    def close(self):
        pass


@pytest.mark.parametrize("streams", [1, 3])
def test_every_iteration_runs_once_and_as_many_at_once_as_there_are_streams(streams):
    engine = Engine(together=streams)
    step = RuntimeStep(engine, streams)
    step.replay(10)
    assert len(step.latencies(11)) == 11
    step.close()
    assert sorted(engine.ran) == list(range(21))
    assert engine.most == streams


def test_latencies_of_streams_are_those_of_single_iterations():
    engine = Engine(takes_s=0.01)
    step = RuntimeStep(engine, 4)
    seconds = step.latencies(12)
    step.close()
    assert np.all(seconds >= 0.01)
    assert np.median(seconds) < 1.5 * np.median(engine.took_s), "not those of four at once"


@pytest.mark.parametrize("streams", [1, 2])
def test_a_runtime_that_fails_in_a_pass_says_so_in_one_line(streams):
    step = RuntimeStep(Engine(fails_at=5), streams)
    with pytest.raises(BrokenOffError, match="engine failed in the middle of a pass: no memory for this"):
        step.replay(10)
    step = RuntimeStep(Engine(fails_at=5), streams)
    with pytest.raises(BrokenOffError, match="no memory for this"):
        step.latencies(10)


def spec(shape, name="x", kind="f4", vocabulary=None):
    return TensorSpec(name, np.dtype(kind) if kind else None, shape, vocabulary)


def test_tokens_are_of_the_vocabulary_and_masks_are_ones():
    specs = [
        spec((4, 500), "ids", "i8", 7),
        spec((4, 500), "attention_mask", "i8"),
        spec((4, 3), "x"),
        spec((2,), "f", "?"),
    ]
    (feed,) = random_feeds(specs, WorkloadOptions(), "m.onnx")
    assert set(feed["ids"].ravel()) == set(range(1, 7))
    assert set(feed["attention_mask"].ravel()) == {1}
    assert feed["x"].std() > 0.3
    assert feed["x"].dtype == np.float32
    assert feed["f"].all()


def test_open_lengths_are_filled_with_batch_and_sequence():
    specs = [spec((None, None), "ids", "i8", 9), spec((None, 3), "x")]
    (feed,) = random_feeds(specs, WorkloadOptions(batch=5, seq_len=6), "m.onnx")
    assert feed["ids"].shape == (5, 6)
    assert feed["x"].shape == (5, 3)
    with pytest.raises(BadInputError, match=r"m\.onnx: its input 'ids' \(\?x\?\) leaves a length open: give --seq-len"):
        random_feeds(specs, WorkloadOptions(batch=5), "m.onnx")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 4}, r"--batch 4: m\.onnx takes 'x' \(2x8\); export it with that batch"),
        ({"seq_len": 4}, r"--seq-len 4: m\.onnx takes 'x' \(2x8\)"),
    ],
)
def test_a_batch_or_length_that_the_model_does_not_have_is_refused(options, says):
    with pytest.raises(BadInputError, match=says):
        random_feeds([spec((2, 8))], WorkloadOptions(**options), "m.onnx")
    with pytest.raises(BadInputError, match="a type without random numbers here"):
        random_feeds([spec((2, 8), kind=None)], WorkloadOptions(), "m.onnx")


@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_of_a_file_stay_within_its_table(tmp_path, backend):
    pytest.importorskip(backend)
    path = model(tmp_path / "m.onnx", vocabulary=3)
    made = make(resolve(path), WorkloadOptions(), backend)  # a larger token is out of the table, and refused
    made.step.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_that_hold_no_model_are_refused_in_one_line(tmp_path, backend):
    pytest.importorskip(backend)
    (tmp_path / "junk.onnx").write_bytes(b"junk" * 10)
    with pytest.raises(BadInputError, match=r"junk\.onnx: .* can't (load|read) it") as raised:
        make(resolve("junk.onnx"), WorkloadOptions(), backend)
    assert "\n" not in str(raised.value)
    (tmp_path / "empty.onnx").touch()
    for name, says in (("empty.onnx", "is empty"), ("absent.onnx", "no such file")):
        with pytest.raises(BadInputError, match=says):
            resolve(name)


def test_outputs_that_are_nan_are_warned_of(tmp_path):
    made = make(resolve(model(tmp_path / "m.onnx", nan=True)), WorkloadOptions(), "onnxruntime")
    made.step.close()
    assert [warning.code for warning in made.warnings] == ["nan_outputs"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend", "tensorflow"], "--backend tensorflow: must be one of auto, torch, onnxruntime, openvino"),
        (["--backend", "torch"], "m.onnx: a model file runs with --backend onnxruntime or openvino"),
        (["--mode", "graph"], "--mode graph with --backend onnxruntime"),
        (["--detail", "layer"], "--detail layer with --backend onnxruntime"),
        (["--streams", "0"], "--streams 0: must be at least 1"),
        (["--hint", "speed"], "--hint speed: must be one of latency, throughput"),
        (["--hint", "latency"], "--hint latency with --backend onnxruntime: only for openvino"),
        (["--hint", "latency", "--backend", "torch"], "--hint latency with --backend torch: only for openvino"),
        (
            ["--hint", "throughput", "--streams", "2", "--backend", "openvino"],
            "--hint throughput with --streams 2: with a hint OpenVINO chooses the streams",
        ),
        (["--batch", "7"], "--batch 7: m.onnx takes 'tokens' (2x4)"),
        (["--optimizer", "sgd"], "m.onnx: --optimizer and --label-smoothing are for --task train"),
        (["-d", "sim:h100"], "--backend onnxruntime runs on a real device"),
    ],
)
def test_what_a_runtime_cannot_do_is_refused(tmp_path, capsys, arguments, says):
    model(tmp_path / "m.onnx")
    said = command(capsys, "profile", "m.onnx", *(["-d", "cpu"] if "-d" not in arguments else []), *arguments)
    assert said.code == 2
    assert says in said.complaint


def test_threads_streams_and_hint_are_for_runtimes_alone(capsys):
    for option, value in (("--threads", "2"), ("--streams", "2"), ("--hint", "throughput")):
        said = command(capsys, "profile", "deit-t", option, value, "-d", "cpu")
        assert said.code == 2
        assert f"{option} {value if option == '--hint' else ''}".strip() + " with --backend torch" in said.complaint


def test_a_model_file_is_run_by_the_runtime_that_it_is_for(tmp_path):
    (tmp_path / "m.xml").write_text("<net/>")
    settings = for_workload(resolve("m.xml"), ProfileSettings())
    assert (settings.backend, settings.device) == ("openvino", "cpu")
    assert for_workload(resolve(model(tmp_path / "m.onnx")), ProfileSettings()).backend == "onnxruntime"
    assert for_workload(resolve("deit-t"), ProfileSettings()).backend == "auto"
    assert device_for("openvino", "cuda:0") == "cuda:0"
    with pytest.raises(BadInputError, match="OpenVINO runs on the CPU here"):
        make(resolve("deit-t"), WorkloadOptions(), "openvino", cuda=0)
    with pytest.raises(BadInputError, match="runs with --backend openvino"):
        make(resolve("m.xml"), WorkloadOptions(), "onnxruntime")


def test_a_gpu_that_onnxruntime_cannot_use_is_reported_and_not_replaced_by_the_cpu(tmp_path, monkeypatch):
    path = resolve(model(tmp_path / "m.onnx"))
    with pytest.raises(NotPossibleError, match="pip install onnxruntime-gpu"):
        make(path, WorkloadOptions(), "onnxruntime", cuda=0)
    import onnxruntime

    providers = ["CUDAExecutionProvider", *onnxruntime.get_available_providers()]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    with pytest.raises(NotPossibleError, match="CUDA provider doesn't start"):
        make(path, WorkloadOptions(), "onnxruntime", cuda=0)
    assert device_for("onnxruntime", "auto") == "auto"


def test_nodes_of_a_gpu_are_not_timed_by_their_launches():
    run = Run()
    session = SimpleNamespace(devices=[SimpleNamespace(info=DeviceInfo("GPU-1", "a GPU", kind="gpu"))], run=run)
    time_nodes(session, None, 0.01, Progress())
    assert [warning.code for warning in run.warnings] == ["nodes_not_timed"]
    assert "nodes" not in run.workload


def test_a_library_that_is_missing_is_named_with_how_to_get_it():
    with pytest.raises(NotPossibleError, match=r"no_such_runtime can't be imported .*pip install 'jouletrace\[onnx\]'"):
        require("no_such_runtime")


def test_a_profile_of_onnxruntime_keeps_the_last_runs_and_leaves_fences_out():
    def node(name, ts, dur, cat="Node"):
        args = {"op_name": "Gemm", "input_type_shape": [{"float": [1, 2]}]}
        return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}

    events = [{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5}, {"ph": "M"}]
    for start in (100, 200, 300):
        events += [
            {"cat": "Session", "name": "model_run", "ts": start, "dur": 50},
            node("a_kernel_time", start + 10, 20),
            node("a_fence_before", start + 5, 1),
            node("a_kernel_time", start + 80, 1),  # outside of any run
        ]
    found = read_profile(events, 2, anchor_ns=1_000_000)
    assert [one.name for one in found.nodes] == ["a"]
    assert found.nodes[0].shapes == "float[1,2]"
    assert found.began_ns.tolist() == [1_000_000, 1_100_000]
    assert found.start_ns.tolist() == [1_010_000, 1_110_000]
    assert (found.end_ns - found.start_ns).tolist() == [20_000, 20_000]
    with pytest.raises(BadInputError, match="holds 3 runs of the model, not 4"):
        read_profile(events, 4, anchor_ns=0)


def test_only_torch_flushes_a_cache():
    with pytest.raises(BadInputError, match="--l2 cold with --backend openvino"):
        ProfileSettings(l2="cold", backend="openvino")
