"""Built-in models: their sizes, inputs, precision and facts. Small ones run; big ones are shapes only."""

from dataclasses import fields

import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import WorkloadOptions, resolve
from jouletrace.workloads.models import MODELS
from jouletrace.workloads.placement import named_tensors

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

# As published: DeiT with distillation token and one head; GPT-2 and Llama 3.2 with tied embeddings.
PARAMETERS = {
    "deit-tiny": 5_717_800,
    "deit-small": 22_051_432,
    "deit-base": 86_569_192,
    "vit-base": 86_567_656,
    "swin-tiny": 28_288_354,
    "resnet50": 25_557_032,
    "bert-base": 109_483_778,
    "bert-large": 335_143_938,
    "distilbert": 66_955_010,
    "minilm": 22_713_986,
    "mpnet": 109_488_002,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "llama-1b": 1_235_814_400,
    "llama-tiny": 106_816,
}
ONE_LAYER = {"num_hidden_layers": "1"}


def build(spec, device="cpu", **options):
    return resolve(spec).build(device, WorkloadOptions(**options))


@pytest.mark.parametrize("name", MODELS)
def test_each_model_has_its_published_size_and_never_looks_at_values(name):
    # On "meta" a forward that waits for the device to look at a value would fail.
    built = build(name, "meta", batch=2, dtype="fp16")
    assert built.facts["parameters"] == PARAMETERS[name]
    assert built.call(0).logits.shape[0] == built.items == 2
    assert built.facts["weights"] == "shapes only"


@pytest.mark.parametrize(("name", "dtype"), [("deit-tiny", "fp16"), ("swin-tiny", "amp"), ("gpt2", "bf16")])
def test_a_model_can_be_built_and_run_as_shapes_in_a_fake_tensor_mode(name, dtype):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        built = build(name, dtype=dtype)
        logits = built.call(0).logits
    assert logits.dtype == (torch.float16 if dtype == "fp16" else torch.bfloat16)
    assert built.facts["parameters"] == PARAMETERS[name]


def test_weights_and_inputs_repeat_with_the_seed_and_leave_torch_s_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (build("deit-t", config=ONE_LAYER, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.call(0).logits, again.call(0).logits)
    assert not torch.equal(first.call(0).logits, other.call(0).logits)
    assert not torch.equal(first.inputs[0][1]["pixel_values"], other.inputs[0][1]["pixel_values"])


def test_inputs_are_random_and_never_zeros():
    pixels = build("deit-t", config=ONE_LAYER).inputs[0][1]["pixel_values"]
    assert abs(float(pixels.mean())) < 0.02
    assert abs(float(pixels.std()) - 1) < 0.02
    tokens = build("bert-b", config=ONE_LAYER, batch=4).inputs[0][1]["input_ids"]
    assert tokens.min() > 0
    assert len(tokens.unique()) > 400


def test_input_sets_differ_and_rotate():
    built = build("deit-t", config=ONE_LAYER, input_sets=3)
    outputs = [built.call(i).logits for i in range(4)]
    assert torch.equal(outputs[0], outputs[3])
    assert not torch.equal(outputs[0], outputs[1])
    assert built.facts["inputs"] == "random normal, seed 0, 3 sets"


def test_weights_drawn_for_half_precision_are_those_of_single_precision_rounded():
    half = build("deit-t", config=ONE_LAYER, dtype="fp16").module.state_dict()
    single = build("deit-t", config=ONE_LAYER, dtype="fp32").module.state_dict()
    assert all(torch.equal(half[key], single[key].half()) for key in single)


@pytest.mark.parametrize(
    ("dtype", "weights", "logits"),
    [
        ("fp32", "float32", "float32"),
        ("tf32", "float32", "float32"),
        ("fp16", "float16", "float16"),
        ("bf16", "bfloat16", "bfloat16"),
        ("fp64", "float64", "float64"),
        ("amp", "float32", "bfloat16"),
        (None, "float32", "float32"),
    ],
)
def test_a_dtype_decides_weights_inputs_and_arithmetic(dtype, weights, logits):
    built = build("deit-t", dtype=dtype, config=ONE_LAYER)
    held = {t.dtype for t in built.module.parameters()} | {t.dtype for _, t in named_tensors(built.inputs)}
    assert held == {getattr(torch, weights)}
    assert built.call(0).logits.dtype == getattr(torch, logits)
    assert built.facts["dtype"] == (dtype or "fp32")


def test_the_facts_say_what_a_reader_must_know():
    facts = build("deit-t", config=ONE_LAYER, batch=2).facts
    assert facts["name"] == "deit-tiny"
    assert facts["task"] == "infer"
    assert facts["batch"] == 2
    assert facts["weights"] == "random, seed 0"
    assert facts["attention"] == "sdpa"
    assert facts["config"] == {"num_hidden_layers": 1}
    assert facts["sample_shape"] == [3, 224, 224]
    assert facts["threads"] == torch.get_num_threads()
    assert facts["versions"]["torch"] == torch.__version__
    assert "distillation token" in facts["note"]


def test_a_convolutional_network_claims_no_attention():
    assert build("resnet50", "meta").facts["attention"] is None


def test_the_attention_implementation_can_be_chosen():
    built = build("bert-b", config={**ONE_LAYER, "attn_implementation": "eager"})
    assert built.facts["attention"] == "eager"


def test_a_model_is_built_for_inference():
    built = build("bert-b", config={**ONE_LAYER, "hidden_dropout_prob": "0.5"})
    assert not built.module.training
    assert torch.equal(built.call(0).logits, built.call(0).logits)
    assert built.call(0).logits.is_inference()


def test_a_causal_model_without_cache_computes_what_its_plain_forward_does():
    from jouletrace.workloads.kv_cache import cache_name

    built = build("gpt2", config={"n_layer": "2"}, seq_len=16, batch=2)
    tokens = built.inputs[0][1]["input_ids"]
    with torch.inference_mode():
        plain = built.module(input_ids=tokens, use_cache=False).logits
    ours = built.call(0)
    torch.testing.assert_close(ours.logits, plain)
    torch.testing.assert_close(built.call(1).logits, plain)
    assert getattr(ours, cache_name(field.name for field in fields(ours))) is None


def test_sequence_length_has_a_default_and_a_limit():
    assert build("bert-l", "meta").facts["seq_len"] == 128
    assert build("bert-l", "meta", seq_len=320).facts["seq_len"] == 320
    assert build("gpt2-large", "meta").facts["seq_len"] == 1024
    with pytest.raises(BadInputError, match=r"--seq-len 513: bert takes 512 tokens at most"):
        build("bert-l", "meta", seq_len=513)
    roomy = build("bert-l", "meta", seq_len=513, config={"max_position_embeddings": "513"})
    assert roomy.call(0).logits.shape == (1, 2)


def test_images_have_no_sequence_length():
    with pytest.raises(BadInputError, match=r"--seq-len 64: deit takes images"):
        build("deit-t", "meta", seq_len=64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, r"--batch 0: must be at least 1"),
        ({"seq_len": -1}, r"--seq-len -1: must be at least 1"),
        ({"input_sets": 0}, r"--input-sets 0: must be at least 1"),
        ({"task": "dream"}, r"bert-base: no task 'dream': infer"),
        ({"dtype": "fp61"}, r"unknown dtype 'fp61': fp32, .*did you mean 'fp64'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        build("bert-b", "meta", **options)


def test_a_device_that_is_no_device_is_refused():
    with pytest.raises(BadInputError, match=r"'gpu7' is no torch device"):
        build("deit-t", "gpu7")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_possible():
    with pytest.raises(NotPossibleError, match=r"cuda:0: torch .* is built"):
        build("deit-t", "cuda:0")


def test_memory_that_is_not_there_is_reported_in_one_line():
    with pytest.raises(
        NotPossibleError, match=r"deit-tiny, batch 90000000 on cpu: out of memory \(asked for .* GiB"
    ) as info:
        build("deit-t", batch=90_000_000, config=ONE_LAYER)
    assert "\n" not in str(info.value)
