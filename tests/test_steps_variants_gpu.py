"""Variants on a real GPU: right kernels, right data, right time."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.steps import make_variable_step
from jouletrace.steps.base import DETACHED
from jouletrace.steps.cuda.captured_nodes import check_same
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, names, resolve
from jouletrace.workloads.base import Built

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = "cuda:0"
SHALLOW = {
    "bert": {"num_hidden_layers": "1"}, "deit": {"num_hidden_layers": "1"}, "vit": {"num_hidden_layers": "1"},
    "minilm": {"num_hidden_layers": "1"}, "llama": {"num_hidden_layers": "1"}, "distilbert": {"n_layers": "1"},
    "gpt2": {"n_layer": "1"}, "resnet50": {"depths": "[1, 1, 1, 1]"}, "swin": {"depths": "[2]", "num_heads": "[3]"},
}  # fmt: skip
MODELS = [name for name in names() if name.startswith(tuple(SHALLOW))]
"""All that are models and can be captured."""

LANGUAGE = ("bert", "distilbert", "gpt2", "llama", "minilm")


def shallow(name, **options):
    config = next(config for prefix, config in SHALLOW.items() if name.startswith(prefix))
    return resolve(name).build(CUDA, WorkloadOptions(config=config, **options))


def two_sets(name):
    """A batch of two in each of two input sets."""
    return shallow(name, batch=2, input_sets=2, **({"seq_len": 64} if name.startswith(LANGUAGE) else {}))


def of(target, *inputs):
    return ObjectWorkload(target, inputs).build(CUDA, WorkloadOptions())


def logits(step):
    outputs = step.outputs()
    return outputs.logits if hasattr(outputs, "logits") else outputs


def per_iteration(step, n):
    step.replay(n // 4)
    return np.median([step.replay(n).seconds / n for _ in range(5)])


def outputs_of_both_sets(step):
    found = []
    for _ in range(2):
        step.replay(1)
        found.append(logits(step).clone())
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_unit_of_every_model_is_removed_and_repeated_with_all_other_kernels_and_data_as_they_were(name):
    step = make_variable_step(two_sets(name), CUDA, "graph")
    step.check()
    facts = step.describe()
    assert facts["nodes_of_no_operator"] == 0
    assert all(node.name for _, node in step.nodes[0].sequence if node.kind == "kernel")
    wanted = outputs_of_both_sets(step)
    total = 0
    for unit in step.units():
        removed = step.variant({unit: 0})
        removed.check()
        total += facts["nodes"] - len(removed.nodes[0].sequence)
        thrice = step.variant({unit: 3})
        thrice.check()
        for variant in (removed, thrice):
            for i in range(2):
                variant.replay(1)
                torch.testing.assert_close(logits(variant), wanted[i], rtol=5e-3, atol=1e-3)
            variant.replay(98)
            variant.replay(1)
            torch.testing.assert_close(logits(variant), wanted[0], rtol=5e-3, atol=1e-3)
            variant.close()
    assert total == facts["nodes"]
    empty = step.empty()
    empty.check()
    assert len(empty.nodes[0].sequence) == 0
    assert empty.replay(100).seconds > 0


@pytest.mark.parametrize("name", ["deit-tiny", "gpt2", "resnet50", "swin-tiny"])
def test_detached_units_launch_the_kernels_of_the_untouched_step_and_leave_its_outputs(name):
    step = make_variable_step(two_sets(name), CUDA, "graph")
    wanted = outputs_of_both_sets(step)
    units = step.units()
    for detached in (*([unit] for unit in units), units):
        variant = step.variant(dict.fromkeys(detached, DETACHED))
        variant.check()
        for reference, nodes in zip(step.reference, variant.nodes, strict=True):
            check_same(reference, nodes, "the step with detached units")
        variant.replay(98)  # what runs for nobody writes over nothing that a later replay reads
        for found, one in zip(outputs_of_both_sets(variant), wanted, strict=True):
            torch.testing.assert_close(found, one, rtol=5e-3, atol=1e-3)
        variant.close()


def test_what_reads_a_detached_product_gets_the_stored_one_and_the_product_takes_its_time():
    a = torch.randn(4096, 4096, dtype=torch.float16)
    step = make_variable_step(of(lambda x: (x @ x).relu(), a), CUDA, "graph")
    product = next(unit for unit in step.units() if unit.op == "aten.mm")
    step.replay(1)
    wanted = logits(step).clone()
    detached, removed = (step.variant({product: multiplicity}) for multiplicity in (DETACHED, 0))
    detached.replay(1)
    assert torch.equal(logits(detached), wanted)
    whole, without = per_iteration(step, 200), per_iteration(removed, 200)
    assert per_iteration(detached, 200) - without == pytest.approx(whole - without, rel=0.15)
    (stored,) = detached._altered.stored[0].values()
    torch.cuda.synchronize()
    stored.outputs.kept.fill_(0)  # every byte: the product is zero from here on, for whoever reads what is stored
    detached.replay(1)
    assert not logits(detached).any()


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp64", "amp"])
def test_every_dtype_has_the_same_kernels_under_the_mode_as_without(dtype):
    step = make_variable_step(shallow("deit-t", dtype=dtype, batch=4), CUDA, "graph")
    step.check()
    step.variant({unit: i % 3 for i, unit in enumerate(step.units())}).check()


def test_autocast_reaches_the_parts_of_composite_operators():
    a = torch.randn(256, 256)
    built = ObjectWorkload(lambda x, y: torch.einsum("ij,jk->ik", x, y).softmax(-1), (a, a)).build(
        CUDA, WorkloadOptions(dtype="amp")
    )
    make_variable_step(built, CUDA, "graph").check()


def test_a_captured_training_step_can_be_taken_apart_forward_backward_and_optimiser():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True), torch.nn.Flatten(),
        torch.nn.Dropout(0.1), torch.nn.LazyLinear(10),
    ).to(CUDA)  # fmt: skip
    x, y = torch.randn(8, 3, 16, 16, device=CUDA), torch.randint(10, (8,), device=CUDA)
    model(x)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True, capturable=True)

    def call(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    built = Built(call, model, [((x, y), {})], {"name": "training", "batch": 8})
    step = make_variable_step(built, CUDA, "graph")
    assert step.mode == "graph"
    step.check()
    units = step.units()
    assert {unit.module for unit in units if unit.backward} >= {"0", "1", "2", "5"}
    assert any(unit.op == "aten._fused_adamw_" for unit in units)
    for unit in units:
        removed = step.variant({unit: 0})
        removed.check()
        removed.replay(20)
        assert torch.isfinite(removed.outputs())
        removed.close()
        if "_fused_" not in unit.op and "foreach" not in unit.op:
            twice = step.variant({unit: 2})
            twice.check()
            twice.replay(20)
            assert torch.isfinite(twice.outputs())
            twice.close()


def test_the_null_variant_takes_the_untouched_steps_time():
    step = make_variable_step(resolve("deit-b").build(CUDA, WorkloadOptions(batch=1)), CUDA, "graph")
    null = step.variant({})
    step.replay(2000)
    pairs = np.array([[step.replay(300).seconds, null.replay(300).seconds] for _ in range(15)])
    assert np.median(pairs[:, 1] / pairs[:, 0]) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("batch", [1, 64])
def test_the_times_of_all_operators_add_up_to_the_step(batch):
    step = make_variable_step(resolve("deit-b").build(CUDA, WorkloadOptions(batch=batch)), CUDA, "graph")
    kinds: dict = {}
    for unit in step.units():
        kinds.setdefault((unit.op, unit.shapes), []).append(unit)
    n = 800 if batch == 1 else 60
    step.replay(n)
    whole = per_iteration(step, n)
    parts = per_iteration(step.empty(), n)
    for units in kinds.values():
        variant = step.variant(dict.fromkeys(units, 0))
        variant.check()
        parts += per_iteration(step, n) - per_iteration(variant, n)
        variant.close()
    assert parts / whole == pytest.approx(1, abs=0.08)


def test_a_known_operator_repeated_costs_its_own_time_again():
    a = torch.randn(4096, 4096, dtype=torch.float16)
    step = make_variable_step(of(lambda x: (x @ x).relu(), a), CUDA, "graph")
    product = next(unit for unit in step.units() if unit.op == "aten.mm")
    times = {k: per_iteration(step.variant({product: k}), 200) for k in (0, 1, 2, 4)}
    once = times[1] - times[0]
    assert times[2] - times[1] == pytest.approx(once, rel=0.15)
    assert times[4] - times[1] == pytest.approx(3 * once, rel=0.15)


def test_pacing_adds_its_time_and_keeps_the_kernels():
    step = make_variable_step(resolve("deit-b").build(CUDA, WorkloadOptions(batch=1)), CUDA, "graph")
    paced = step.paced(2e-3)
    paced.check()
    assert len(paced.nodes[0].sequence) == len(step.nodes[0].sequence) + 1
    assert paced.describe()["nodes_of_no_operator"] == 0
    assert per_iteration(paced, 200) - per_iteration(step, 200) == pytest.approx(2e-3, rel=0.1)
    paced.variant({paced.units()[0]: 0}).check()
    paced.empty().check()
    spread = step.paced(2e-3, pieces=12)
    spread.check()
    assert len(spread.nodes[0].sequence) == len(step.nodes[0].sequence) + 12
    assert spread.describe()["nodes_of_no_operator"] == 0
    assert per_iteration(spread, 200) - per_iteration(step, 200) == pytest.approx(2e-3, rel=0.1)
    spread.variant({spread.units()[0]: 0}).check()
    spread.variant({spread.units()[0]: DETACHED}).check()


def test_kept_outputs_are_few_and_go_when_the_variant_is_closed():
    built = resolve("gpt2").build(CUDA, WorkloadOptions(batch=8, seq_len=512))
    step = make_variable_step(built, CUDA, "graph")
    unit = next(one for one in step.units() if one.op == "aten.addmm")
    step.variant({unit: 0}).close()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    variant = step.variant({unit: 0})
    output_bytes = logits(variant).numel() * logits(variant).element_size()
    # its own output, and the final one
    assert torch.cuda.memory_allocated() - before < 1.2 * output_bytes + 64 * 2**20
    variant.close()
    del variant
    assert torch.cuda.memory_allocated() - before < 2**20


def test_work_that_no_operator_launches_is_counted():
    def forward(x):
        y = x.exp()
        torch.cuda._sleep(1000)
        return y.sin()

    step = make_variable_step(of(forward, torch.randn(100)), CUDA, "graph")
    step.check()
    assert step.describe()["nodes_of_no_operator"] == 1
    variant = step.variant({step.units()[0]: 0})
    variant.check()
    assert len(step.empty().nodes[0].sequence) == 1


def test_eager_steps_repeat_and_remove_too():
    built = resolve("deit-t").build(CUDA, WorkloadOptions(batch=64))
    step = make_variable_step(built, CUDA, "eager")
    assert step.mode == "eager"
    step.check()
    wanted = built.call(0).logits.clone()
    for unit in step.units()[:12]:
        for multiplicity in (0, 2):
            variant = step.variant({unit: multiplicity})
            variant.check()
            assert variant.replay(3).seconds > 0
            torch.testing.assert_close(variant._altered(0).logits, wanted, rtol=5e-3, atol=1e-3)
            variant.close()
    assert step.paced(1e-3).replay(3).seconds > 3e-3


def test_a_repeated_operator_in_an_eager_step_costs_its_time_again():
    a = torch.randn(8192, 8192, dtype=torch.float16)
    step = make_variable_step(of(lambda x: (x @ x).relu(), a), CUDA, "eager")
    product = next(unit for unit in step.units() if unit.op == "aten.mm")
    once, thrice = (per_iteration(step.variant({product: k}), 20) for k in (1, 3))
    none = per_iteration(step.variant({product: 0}), 20)
    assert thrice - once == pytest.approx(2 * (once - none), rel=0.15)


def test_a_step_that_waits_for_the_host_falls_back_to_eager_and_says_at_which_operator():
    def forward(x):
        return x + 1 if x.sum().item() > 0 else x - 1

    step = make_variable_step(of(forward, torch.ones(8)), CUDA, "graph")
    assert step.mode == "eager"
    fallback = step.describe()["fallback"]
    assert fallback["reason"] == "not_capturable"
    assert "aten.item" in fallback["text"] or "aten._local_scalar_dense" in fallback["text"]
    step.check()
    step.variant({step.units()[0]: 2}).check()
    # and what comes after can be captured again
    assert make_variable_step(of(torch.exp, torch.ones(8)), CUDA, "graph").mode == "graph"


def test_unknown_units_are_refused_on_graphs_too():
    one = make_variable_step(of(torch.exp, torch.ones(8)), CUDA, "graph")
    other = make_variable_step(of(torch.sin, torch.ones(8)), CUDA, "graph")
    with pytest.raises(BadInputError, match=r"no unit aten\.sin"):
        one.variant({other.units()[0]: 0})
