"""Models of the Hugging Face hub, from a cache that is made here: nothing is downloaded."""

import json
from types import SimpleNamespace

import pytest

from commands import command
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import WorkloadOptions, resolve

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
huggingface_hub = pytest.importorskip("huggingface_hub")

ID, REVISION = "acme/tiny-gpt", "0123456789abcdef0123456789abcdef01234567"
SMALL = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 60}


def save_tokenizer(folder):
    """A tokenizer of single letters, with as few parts as one can have."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    letters = {letter: place for place, letter in enumerate("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="_"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="_").save_pretrained(folder)


def snapshot(home, config=None):
    """The folder of a revision in the layout of the hub's cache."""
    place = home / "hub" / f"models--{ID.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(REVISION)
    folder = place / "snapshots" / REVISION
    folder.mkdir(parents=True)
    torch.manual_seed(5)
    model = transformers.GPT2LMHeadModel(config or transformers.GPT2Config(**SMALL)).eval()
    model.save_pretrained(folder)
    return folder, model


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.thorough
def test_a_model_of_the_cache_has_its_weights_and_reads_text(home):
    folder, model = snapshot(home)
    save_tokenizer(folder)
    options = WorkloadOptions(batch=2, seq_len=16, input_sets=2, dtype="fp32")
    built = resolve(f"hf:{ID}").build("cpu", options)
    first, second = (given["input_ids"] for _, given in built.inputs)
    assert first.shape == second.shape == (2, 16)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)
    with torch.inference_mode():
        torch.testing.assert_close(built.call(1).logits, model(second).logits)
    facts = built.facts
    assert facts["weights"] == f"loaded from hf:{ID}"
    assert facts["source"] == f"the local cache, revision {REVISION[:12]}"
    assert facts["inputs"] == "English text in the model's own tokens, 2 sets"
    assert (facts["name"], facts["seq_len"], facts["batch"], facts["model"]) == (f"hf:{ID}", 16, 2, "GPT2LMHeadModel")


def test_the_text_is_the_tokenizers(home):
    folder, _ = snapshot(home)
    save_tokenizer(folder)
    built = resolve(f"hf:{ID}").build("cpu", WorkloadOptions(seq_len=9))
    letters = "".join(
        "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX"[i] for i in built.inputs[0][1]["input_ids"][0]
    )
    assert letters == "The_power"


def test_random_weights_need_the_configuration_alone(home):
    folder, _ = snapshot(home)
    (folder / "model.safetensors").unlink()
    built = resolve(f"hf:{ID}").build("cpu", WorkloadOptions(random=True, seed=3))
    assert built.facts["weights"] == "random, seed 3"
    assert built.facts["inputs"] == "random uniform tokens, seed 3, 1 set"
    assert built.facts["seq_len"] == 64  # all that the model takes


def test_random_leaves_the_weights_of_a_local_folder_alone(home):
    folder, _ = snapshot(home)
    assert resolve(str(folder)).build("cpu", WorkloadOptions(random=True)).facts["weights"] == "random, seed 0"
    assert resolve(str(folder)).build("cpu", WorkloadOptions()).facts["weights"] == f"loaded from {folder}"


def test_shapes_alone_need_no_weights(home):
    folder, _ = snapshot(home)
    (folder / "model.safetensors").unlink()
    assert resolve(f"hf:{ID}").build("meta", WorkloadOptions()).facts["weights"] == "shapes only"


def test_weights_that_are_not_in_the_cache_are_reported_to_be_missing(home):
    folder, _ = snapshot(home)
    (folder / "model.safetensors").unlink()
    said = rf"hf:{ID}: not in the local cache, weights missing \(--random .*hf download {ID} --local-dir DIR"
    with pytest.raises(NotPossibleError, match=said):
        resolve(f"hf:{ID}").build("cpu", WorkloadOptions())


def test_a_download_that_was_broken_off_is_not_taken_for_a_model(home):
    folder, _ = snapshot(home)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(NotPossibleError, match=r"model-00002-of-00002\.safetensors missing"):
        resolve(f"hf:{ID}").build("cpu", WorkloadOptions())


def test_what_is_not_in_the_cache_and_out_of_reach_offers_the_nearest_that_is(home):
    snapshot(home)
    with pytest.raises(
        NotPossibleError, match=rf"can't be reached \(Offline\w+\): on a machine.*; did you mean '{ID}'\?$"
    ):
        resolve("hf:acme/tiny-gtp").build("cpu", WorkloadOptions())


@pytest.mark.parametrize("random", [False, True])
def test_what_is_missing_is_downloaded_and_said(home, monkeypatch, random):
    folder, _ = snapshot(home)
    elsewhere = home / "elsewhere"
    folder.rename(elsewhere)
    (elsewhere / "model.safetensors").rename(home / "kept")
    asked = []

    def download(name, *, revision=None, local_files_only=False, allow_patterns=None):
        if local_files_only:
            raise FileNotFoundError(name)
        assert (name, revision) == ("gpt-tiny", REVISION)
        asked.extend(allow_patterns)
        if allow_patterns == ["model*.safetensors"]:
            (home / "kept").rename(elsewhere / "model.safetensors")
        return str(elsewhere)

    monkeypatch.setattr(huggingface_hub, "model_info", lambda name, timeout: SimpleNamespace(sha=REVISION))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    built = resolve("hf:gpt-tiny").build("cpu", WorkloadOptions(random=random))
    assert built.facts["source"] == "the Hugging Face hub, downloaded, revision elsewhere"
    assert ("model*.safetensors" in asked) is not random
    assert "pytorch_model*.bin" not in asked


@pytest.mark.parametrize("kind", ["RepositoryNotFoundError", "GatedRepoError"])
def test_refusals_of_the_hub_are_reported_in_one_line(home, monkeypatch, kind):
    class Refused(getattr(huggingface_hub.errors, kind)):
        def __init__(self):
            Exception.__init__(self, "no\nsuch")

    def refuse(name, timeout):
        raise Refused

    monkeypatch.setattr(huggingface_hub, "model_info", refuse)
    with pytest.raises(
        BadInputError, match=r"^hf:a/b: the hub has no such model, or .*huggingface\.co/a/b, .* hf auth"
    ):
        resolve("hf:a/b").build("cpu", WorkloadOptions())


@pytest.mark.parametrize("spec", ["hf:", "hf:a/b/c", "hf:a b"])
def test_what_is_no_name_of_the_hub_is_refused(spec):
    with pytest.raises(BadInputError, match=r"write hf:ORG/NAME"):
        resolve(spec)


def test_a_tokenizer_of_another_vocabulary_is_refused(home):
    folder, _ = snapshot(home, transformers.GPT2Config(**SMALL | {"vocab_size": 10}))
    save_tokenizer(folder)
    with pytest.raises(BadInputError, match=r"outside its vocabulary of 10"):
        resolve(f"hf:{ID}").build("cpu", WorkloadOptions())


@pytest.mark.thorough
def test_the_command_prints_where_a_model_came_from(home, workspace, capsys):
    snapshot(home)
    options = ("--device", "sim:h100", "--max-time", "1", "--warmup", "0.5")
    said = command(capsys, "profile", f"hf:{ID}", *options, "-v")
    assert said.code == 0, said.err
    assert f"model from the local cache, revision {REVISION[:12]}" in " ".join(said.out.split())
    said = command(capsys, "profile", "hf:gpt2", *options)
    assert said.code == 3
    assert "hf:gpt2: not in the local cache" in said.complaint
