"""A local folder of transformers, with and without weights."""

import json

import pytest

from jouletrace.errors import BadInputError
from jouletrace.workloads import WorkloadOptions, resolve

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99}


@pytest.fixture
def saved(tmp_path):
    """A tiny BERT saved with its weights, and the model itself."""
    torch.manual_seed(3)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL)).eval()
    model.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved", model


@pytest.mark.thorough
def test_weights_in_the_folder_are_loaded(saved):
    folder, model = saved
    built = resolve(str(folder)).build("cpu", WorkloadOptions(batch=2, seq_len=8))
    with torch.inference_mode():
        expected = model(**built.inputs[0][1]).logits
    torch.testing.assert_close(built.call(0).logits, expected)
    assert built.facts["weights"] == f"loaded from {folder}"
    assert built.facts["model"] == "BertForSequenceClassification"


@pytest.mark.thorough
def test_without_weights_they_are_random_and_it_says_so(saved):
    folder, _ = saved
    (folder / "model.safetensors").unlink()
    built = resolve(str(folder)).build("cpu", WorkloadOptions(dtype="bf16"))
    assert built.facts["weights"] == "random, seed 0"
    assert built.call(0).logits.dtype == torch.bfloat16
    assert built.facts["seq_len"] == 128


def test_weights_that_are_missing_from_the_files_are_counted(saved):
    folder, _ = saved
    built = resolve(str(folder)).build("cpu", WorkloadOptions(config={"num_hidden_layers": "2"}))
    assert "but 16 tensors random" in built.facts["weights"]
    assert built.facts["config"] == {"num_hidden_layers": 2}


def test_without_a_named_architecture_the_bare_model_is_taken(saved):
    folder, _ = saved
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    assert resolve(str(folder)).build("cpu", WorkloadOptions()).facts["model"] == "BertModel"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "no-such-type"}, r"config\.json: .*no-such-type"),
        ({"architectures": ["NoSuchModel"]}, r"has no NoSuchModel"),
        ({"auto_map": {"AutoConfig": "code.Config"}}, r"needs its own code"),
    ],
)
def test_a_configuration_that_names_nothing_known_is_refused(saved, change, message):
    folder, _ = saved
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInputError, match=message):
        resolve(str(folder)).build("cpu", WorkloadOptions())


def test_broken_files_are_bad_input(saved):
    folder, _ = saved
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BadInputError, match=r"weights can't be loaded"):
        resolve(str(folder)).build("cpu", WorkloadOptions())
    (folder / "config.json").write_text("{")
    with pytest.raises(BadInputError, match=r"config\.json"):
        resolve(str(folder)).build("cpu", WorkloadOptions())


def test_a_model_that_no_one_knows_how_to_feed_says_what_to_do_instead(tmp_path):
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=50)
    config.architectures = ["T5ForConditionalGeneration"]
    config.save_pretrained(tmp_path)
    with pytest.raises(
        BadInputError, match=r"T5ForConditionalGeneration: inputs for .* are unknown .*file\.py:callable"
    ):
        resolve(str(tmp_path)).build("cpu", WorkloadOptions())
