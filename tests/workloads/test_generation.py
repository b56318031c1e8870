"""``--task generate``: an iteration is transformers' own, and a loop of ours computes what it computes."""

from dataclasses import replace

import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


pytestmark = pytest.mark.thorough

OPTIONS = WorkloadOptions(task="generate", batch=2, seq_len=8, max_new_tokens=7)
GPT2 = {"n_layer": "1", "n_embd": "32", "n_head": "2"}


def built(name="llama-tiny", **changes):
    return resolve(name).build("cpu", replace(OPTIONS, **changes))


@pytest.fixture(scope="module")
def plain():
    return built()


def tiny(**changes):
    """A Llama of the user's own."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, **sizes, **changes))


def by_object(model, inputs, **changes):
    options = replace(OPTIONS, batch=None, seq_len=None, **changes)
    return ObjectWorkload(model, inputs).build("cpu", options)


def test_the_whole_is_what_generate_gives(plain):
    ids = plain.inputs[0][1]["input_ids"]
    wanted = plain.module.generate(ids, max_new_tokens=7, do_sample=False, attention_mask=torch.ones_like(ids))
    assert torch.equal(plain.call(0), wanted)
    assert plain.facts["tokens"] == 14
    assert plain.facts["cache"] == "dynamic"
    assert plain.items == 2


@pytest.mark.parametrize("name", ["llama-tiny", "gpt2"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_loop_of_our_own_generates_the_same_tokens(name, kind):
    config = GPT2 if name == "gpt2" else {}
    one, own = built(name, config=config), built(name, config=config, own_loop=kind)
    assert torch.equal(own.call(0), one.call(0))
    assert torch.equal(own.call(0), one.call(0)), "a second iteration must not see what the first one left"
    assert own.facts["cache"] == kind


@pytest.mark.parametrize("kind", [None, "dynamic", "static"])
def test_the_first_token_is_that_of_the_whole(kind):
    one = built(own_loop=kind)
    assert torch.equal(one.generation(1)(0), one.call(0)[:, :9])


def test_padding_on_the_left_is_masked():
    model, ids = tiny(pad_token_id=0, eos_token_id=None), torch.randint(1, 64, (2, 8))
    ids[0, :3] = 0
    mask = (ids != 0).long()
    one = by_object(model, {"input_ids": ids, "attention_mask": mask})
    own = by_object(model, {"input_ids": ids, "attention_mask": mask}, own_loop="static")
    assert torch.equal(one.call(0), own.call(0))
    alone = by_object(model, ids[:1, 3:])
    assert torch.equal(one.call(0)[0, 3:], alone.call(0)[0])


def test_a_model_with_an_end_goes_on_unless_it_may_stop():
    ids = torch.randint(1, 64, (1, 4))
    produced = by_object(tiny(eos_token_id=None), ids).call(0)[0, 4:]
    end = int(produced[3])
    model = tiny(eos_token_id=end)
    whole = by_object(model, ids)
    assert whole.call(0).shape == (1, 11)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens 0"),
        ({"task": "infer"}, "--max-new-tokens is for --task generate"),
        ({"input_sets": 2}, "--input-sets 2"),
    ],
)
def test_options_of_generation_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(BadInputError, match=words):
        built(**changes)


def test_a_sequence_that_does_not_fit_the_model_is_refused():
    with pytest.raises(BadInputError, match="1025 tokens, and gpt2 takes 1024"):
        built("gpt2", seq_len=1018, config=GPT2)


def test_models_that_do_not_generate_are_refused():
    with pytest.raises(BadInputError, match="isn't a transformers model with a head that generates"):
        built("deit-t", seq_len=None, config={"num_hidden_layers": "1"})
    with pytest.raises(BadInputError, match="Linear"):
        by_object(torch.nn.Linear(2, 2), torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(BadInputError, match="must be given input_ids"):
        by_object(tiny(), {"inputs_embeds": torch.randn(1, 4, 32)})


def test_layers_that_forget_are_refused():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "use_sliding_window": True}
    config = transformers.Qwen2Config(vocab_size=64, num_key_value_heads=2, **sizes, **layers)
    with pytest.raises(NotPossibleError, match="sliding_attention"):
        by_object(transformers.Qwen2ForCausalLM(config), torch.randint(1, 64, (1, 4)))


def test_a_folder_without_architectures_gets_a_head_that_generates(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    config.save_pretrained(tmp_path)
    one = resolve(str(tmp_path)).build("cpu", OPTIONS)
    assert one.facts["model"] == "LlamaForCausalLM"
    assert one.call(0).shape == (2, 15)
