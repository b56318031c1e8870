"""Workloads as ONNX and OpenVINO models: names, versions, checks, and what can't be exported."""

import numpy as np
import pytest

from commands import command
from jouletrace.errors import BadInputError, CheckFailedError
from jouletrace.wings.runtimes import ExportOptions, export_onnx
from jouletrace.wings.runtimes.signature import check_difference, compare_outputs
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("torchlib_once")]

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")

TINY = {"n_layer": "1", "n_embd": "16", "n_head": "2", "vocab_size": "50", "n_positions": "16"}
TINY |= {"bos_token_id": "1", "eos_token_id": "1"}
TINY_OPTIONS = [part for key, value in TINY.items() for part in ("--config", f"{key}={value}")]

MODELS = """
import torch

def two(batch=2):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.drop = torch.nn.Dropout(0.9)
        def forward(self, x, scale):
            y = self.drop(self.layer(x)) * scale
            return {"y": y, "more": (y.relu(), y.sum())}
    return Two(), (torch.randn(batch, 4), torch.randn(batch, 1))

def plain():
    return (lambda x: x @ x.T), (torch.randn(3, 4),)

@torch.library.custom_op("jouletrace_tests::strange", mutates_args=())
def strange(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@strange.register_fake
def _(x):
    return torch.empty_like(x)

def special():
    class Special(torch.nn.Module):
        def forward(self, x):
            return strange(x) + 1
    return Special(), (torch.randn(3),)

def branching():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else 2 * x
    return Branching(), (torch.randn(3),)

def counting():
    class Counting(torch.nn.Module):
        calls = 0
        def forward(self, x):
            Counting.calls += 1
            return x * Counting.calls
    return Counting(), (torch.randn(3),)

def words():
    return (lambda x: "none"), (torch.randn(3),)
"""


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)


def export(name, path, how=None, **options):
    return export_onnx(resolve(name), WorkloadOptions(**options), path, how)


@pytest.mark.parametrize("opset", [15, pytest.param(20, marks=pytest.mark.slow)])
def test_a_gpt2_without_cache_is_exported_in_the_version_asked_for(tmp_path, opset):
    found = export("gpt2-large", tmp_path / "g.onnx", ExportOptions(opset=opset), seq_len=8, config=TINY)
    model = onnx.load(str(found.path))
    assert [one.version for one in model.opset_import if one.domain == ""] == [opset]
    assert [one.name for one in model.graph.input] == ["input_ids"]
    assert [one.name for one in model.graph.output] == ["logits"]
    assert found.facts["inputs"] == {"input_ids": [1, 8]}
    assert found.facts["outputs"] == {"logits": [1, 8, 50]}
    assert found.facts["difference"] < 1e-5
    tokens = np.arange(1, 9).reshape(1, 8)
    (again,) = ort.InferenceSession(str(found.path)).run(None, {"input_ids": tokens})
    assert again.shape == (1, 8, 50)


def test_inputs_and_outputs_can_be_named(tmp_path):
    names = ExportOptions(input_names=("given",), output_names=("taken",))
    found = export("models.py:plain", tmp_path / "p.onnx", names)
    session = ort.InferenceSession(str(found.path))
    assert [session.get_inputs()[0].name, session.get_outputs()[0].name] == ["given", "taken"]
    with pytest.raises(BadInputError, match="--input-names a,b: there are 1, by default input"):
        export("models.py:plain", tmp_path / "q.onnx", ExportOptions(input_names=("a", "b")))


def test_a_model_of_several_tensors_is_exported_in_evaluation_mode(tmp_path):
    found = export("models.py:two", tmp_path / "two.onnx", batch=5)
    assert found.facts["inputs"] == {"x": [5, 4], "scale": [5, 1]}
    assert list(found.facts["outputs"]) == ["y", "more_0", "more_1"]
    assert "Dropout" not in {node.op_type for node in onnx.load(str(found.path)).graph.node}


def test_a_method_of_a_model_is_exported_with_its_weights(tmp_path):
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 3)

        def encode(self, x):
            return self.layer(x) * 2

    found = export_onnx(ObjectWorkload(Encoder().encode, (torch.randn(1, 2),)), WorkloadOptions(), tmp_path / "m.onnx")
    assert found.facts["difference"] < 1e-5
    assert found.facts["outputs"] == {"output": [1, 3]}
    assert len(onnx.load(str(found.path)).graph.initializer) >= 2


def test_a_callable_is_exported_too(tmp_path):
    assert export("models.py:plain", tmp_path / "p.onnx").facts["outputs"] == {"output": [3, 3]}


def test_an_operator_without_a_form_in_onnx_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"models\.py:special can't be exported.*jouletrace_tests\.strange"):
        export("models.py:special", tmp_path / "s.onnx")
    assert not list(tmp_path.glob("*.onnx*"))
    assert not list(tmp_path.glob(".s.onnx*"))


def test_what_depends_on_its_data_is_refused_in_one_line(tmp_path):
    with pytest.raises(BadInputError, match=r"models\.py:branching can't be exported to ONNX") as raised:
        export("models.py:branching", tmp_path / "b.onnx")
    assert "\n" not in str(raised.value)


def test_a_model_that_differs_after_export_is_refused_by_how_much_and_not_written(tmp_path):
    with pytest.raises(
        CheckFailedError, match=r"c\.onnx differs from the model in torch: output 'output' by .* of its"
    ):
        export("models.py:counting", tmp_path / "c.onnx")
    assert not list(tmp_path.glob("*.onnx"))
    allowed = export("models.py:counting", tmp_path / "c.onnx", ExportOptions(tolerance=10.0))
    assert allowed.facts["difference"] > 0.1


def test_a_workload_that_returns_no_tensor_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="returns no tensor"):
        export("models.py:words", tmp_path / "w.onnx")


def test_differences_are_relative_to_the_largest_value():
    a = {"a": np.array([0.0, 100.0]), "b": np.array([1.0])}
    assert compare_outputs(a, [np.array([0.1, 100.0]), np.array([1.0])]).relative == pytest.approx(0.001)
    assert compare_outputs(a, [np.array([0.0, 100.0]), np.array([1.5])]).output == "b"
    assert compare_outputs(a, [np.array([0.0, np.nan]), np.array([1.0])]).relative == np.inf
    shapes = compare_outputs(a, [np.zeros((2, 1)), np.array([1.0])])
    assert shapes.relative == np.inf
    assert "2x1" in shapes.text
    assert compare_outputs(a, [np.zeros(2)]).relative == np.inf
    nothing = np.array([np.nan, np.inf])
    assert "nothing can be compared" in compare_outputs({"a": nothing}, [nothing]).text
    assert compare_outputs({"a": nothing}, [nothing]).relative == np.inf
    with pytest.raises(CheckFailedError, match=r"tolerance 0\.1"):
        check_difference(shapes, 0.1, "it")
    check_difference(compare_outputs(a, list(a.values())), 0.0, "it")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "onx"], "--to onx: must be one of onnx, openvino, tensorrt"),
        (["--to", "onnx", "--opset", "99"], "--opset 99"),
        (["--to", "onnx", "--dtype", "amp"], "--dtype amp: an exported model holds fp32"),
        (["--to", "onnx", "--tolerance", "-1"], "--tolerance -1"),
        (["--to", "onnx", "--tolerance", "0.5", "--opset", "3"], "--opset 3"),  # that tolerance is accepted
        (["--to", "onnx", "-o", "nowhere/x.onnx"], "folder nowhere doesn't exist"),
        (["--to", "onnx", "-o", "models.py"], "models.py exists"),
        (["--to", "openvino", "-o", "x.bin"], "needs a name of the form NAME.xml"),
        (["--to", "onnx", "--", "--fp16"], "only trtexec takes it"),
        (["--to", "onnx", "--workspace", "100"], "only trtexec takes it"),
    ],
)
def test_wrong_use_of_convert_is_refused(capsys, arguments, says):
    said = command(capsys, "convert", "models.py:plain", *arguments)
    assert said.code == 2
    assert says in said.complaint


def test_convert_says_what_it_wrote(capsys, tmp_path):
    said = command(capsys, "convert", "models.py:two", "--to", "onnx")
    assert said.code == 0, said.err
    assert (tmp_path / "two.onnx").exists()
    assert "x 2x4, scale 2x1" in said.out
    assert "0.001 allowed" in said.out
    said = command(capsys, "convert", "models.py:two", "--to", "onnx")
    assert said.code == 2
    assert "two.onnx exists" in said.complaint


def test_convert_to_openvino_gives_a_model_that_runs(capsys, tmp_path):
    openvino = pytest.importorskip("openvino")
    said = command(capsys, "convert", "models.py:two", "--to", "openvino", "--json")
    assert said.code == 0, said.err
    assert '"difference"' in said.out
    model = openvino.Core().read_model(str(tmp_path / "two.xml"))
    assert sorted(port.any_name for port in model.inputs) == ["scale", "x"]
    assert command(capsys, "convert", "models.py:plain", "--to", "onnx").code == 0
    said = command(capsys, "convert", "plain.onnx", "--to", "openvino")
    assert said.code == 0, said.err
    assert (tmp_path / "plain.bin").exists()


def test_a_file_that_is_no_onnx_is_refused(capsys, tmp_path):
    pytest.importorskip("openvino")
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    said = command(capsys, "convert", "junk.onnx", "--to", "openvino")
    assert said.code == 2
    assert "OpenVINO can't convert it" in said.complaint
    said = command(capsys, "convert", "junk.onnx", "--to", "onnx")
    assert "only a .onnx file is converted further" in said.complaint


def test_training_is_not_exported(tmp_path):
    with pytest.raises(BadInputError, match="--task train"):
        export("models.py:two", tmp_path / "t.onnx", task="train")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_gpt2_large_at_1024_tokens_is_exported(tmp_path):
    found = export("gpt2-large", tmp_path / "gpt2.onnx", batch=1, seq_len=1024)
    assert found.facts["difference"] < 1e-3
    assert found.facts["outputs"]["logits"] == [1, 1024, 50257]
    assert (tmp_path / "gpt2.onnx.data").stat().st_size > 3e9
