"""Weights in 8 bits: what each scheme computes, what it stores, and what it refuses."""

import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps.counting import count_workload
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LLAMA = {"task": "generate", "batch": 2, "seq_len": 8, "max_new_tokens": 3}


def built(name="llama-tiny", **changes):
    return resolve(name).build("cpu", WorkloadOptions(**{**LLAMA, **changes}))


def logits(workload):
    with torch.inference_mode():
        return workload.module(**workload.inputs[0][1]).logits


@pytest.mark.parametrize(("scheme", "most"), [("int8", 0.03), ("int8wo", 0.03), ("fp8wo", 0.06)])
@pytest.mark.parametrize("name", ["llama-tiny", "gpt2"])
def test_outputs_are_those_of_full_weights_but_for_rounding(scheme, most, name):
    small = {} if name == "llama-tiny" else {"n_layer": "1", "n_embd": "32", "n_head": "2"}
    full, rounded = (logits(built(name, config=small, quantization=one)) for one in (None, scheme))
    apart = float((full - rounded).norm() / full.norm())
    assert 1e-4 < apart < most


@pytest.mark.parametrize("scheme", ["int8", "int8wo", "fp8wo"])
def test_linear_layers_but_the_head_hold_8_bits_and_the_facts_say_so(scheme):
    found = built(quantization=scheme)
    kept = torch.float8_e4m3fn if scheme.startswith("fp8") else torch.int8
    weights = {name: one.dtype for name, one in found.module.named_parameters() if name.endswith("_proj.weight")}
    assert len(weights) == 14
    assert set(weights.values()) == {kept}
    assert found.module.lm_head.weight.dtype == torch.float32
    facts = found.facts["quantized"]
    assert found.facts["quantization"] == scheme
    assert facts["layers"] == 14
    assert facts["bytes"] == sum(one.numel() * one.element_size() for one in found.module.parameters())
    assert facts["bytes_before"] == 4 * found.facts["parameters"]
    assert found.facts["dtype"] == "fp32"


def test_a_product_in_int8_is_computed_in_int8():
    workload = built(quantization="int8")
    with torch.profiler.profile() as seen:
        workload.generation.segments[0].call(0)
    calls = {event.key: event.count for event in seen.key_averages()}
    assert calls["aten::_int_mm"] == 14
    assert calls["aten::mm"] == 1, "the head alone"


def test_large_activations_neither_overflow_nor_vanish():
    """Sums of int8 products exceed fp16's largest number, and one large token must not round the others to 0."""
    model = torch.nn.Sequential(torch.nn.Linear(4096, 8, bias=False))
    torch.nn.init.constant_(model[0].weight, 1.0)
    rows = torch.stack([torch.full((4096,), 10.0), torch.full((4096,), 1e-3)]).half()

    from jouletrace.workloads.quantization import quantize

    quantize(model.half(), "int8", torch.device("cpu"), "ones")
    found = model(rows).float()
    assert torch.allclose(found, torch.tensor([[40960.0], [4.096]]).expand(2, 8), rtol=0.01)


def test_counted_products_are_of_8_bits_and_their_weights_half_the_bytes():
    options = {"task": "infer", "batch": 1, "seq_len": 32, "dtype": "fp16"}
    _, plain = count_workload(resolve("llama-1b"), WorkloadOptions(**options))
    for scheme, op in (("int8", "aten._int_mm"), ("fp8", "aten._scaled_mm")):
        _, counted = count_workload(resolve("llama-1b"), WorkloadOptions(**options, quantization=scheme))
        products = [one for one in counted if one.op == op]
        wanted = [one for one in plain if one.op == "aten.mm" and "proj" in one.module]
        assert len(products) == len(wanted) == 112
        assert {one.dtype for one in products} == {scheme}
        assert [one.flops for one in products] == [one.flops for one in wanted]
        down = next(one for one in products if one.module.endswith("0.mlp.down_proj"))
        assert down.bytes_moved == pytest.approx(8192 * 2048, rel=0.05)
        assert {one.dtype for one in counted} <= {scheme, "fp16", "fp32"}


def test_what_can_not_be_computed_is_refused_in_one_line(tmp_path):
    with pytest.raises(NotPossibleError, match="fp8: a CPU has no products of float8; use fp8wo"):
        built(quantization="fp8")
    with pytest.raises(BadInputError, match="gpt2: --quantization int8: weights of 8 bits can't be trained"):
        resolve("gpt2").build("cpu", WorkloadOptions(task="train", quantization="int8"))
    with pytest.raises(BadInputError, match="gemm has none"):
        resolve("gemm").build("cpu", WorkloadOptions(quantization="int8"))
    with pytest.raises(BadInputError, match="would lose its weights"):
        ObjectWorkload(torch.nn.Linear(4, 4), torch.ones(1, 4)).build("cpu", WorkloadOptions(quantization="int8"))
    place = tmp_path / "own.py"
    place.write_text("import torch\ndef make(): return torch.nn.ReLU(), torch.ones(2)\n")
    with pytest.raises(BadInputError, match=r"own.py:make has no linear layers"):
        resolve(f"{place}:make").build("cpu", WorkloadOptions(quantization="int8"))
    place.write_text(
        "import torch\ndef make(): return torch.nn.Sequential(torch.nn.Linear(12, 8)), torch.ones(2, 12)\n"
    )
    with pytest.raises(BadInputError, match=r"is 12 wide, and the product takes multiples of 8; use .*int8wo"):
        count_workload(resolve(f"{place}:make"), WorkloadOptions(quantization="int8"))


def test_a_users_module_that_is_itself_a_linear_layer_is_refused_rather_than_left_as_it_is(tmp_path):
    place = tmp_path / "bare.py"
    place.write_text("import torch\ndef make(): return torch.nn.Linear(16, 8), torch.ones(2, 16)\n")
    with pytest.raises(BadInputError, match="no linear layers"):
        resolve(f"{place}:make").build("cpu", WorkloadOptions(quantization="int8"))
