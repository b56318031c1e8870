"""Compiled steps on a real GPU: the driver's copies of real kernels."""

import numpy as np
import pytest

from jouletrace.steps import VariantRefusedError, make_variable_step
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = "cuda:0"


def compiled(name="deit-t", **options):
    return make_variable_step(resolve(name).build(CUDA, WorkloadOptions(**options)), CUDA, "compile")


def logits(step):
    step.replay(1)
    outputs = step.outputs()
    return (outputs.logits if hasattr(outputs, "logits") else outputs).float()


def per_iteration(step, n=200):
    step.replay(n // 4)
    return np.median([step.replay(n).seconds / n for _ in range(5)])


def test_every_unit_of_a_compiled_model_is_repeated_and_its_outputs_are_the_untouched_ones_or_said_to_differ():
    step = compiled(batch=8)
    step.check()
    facts = step.describe()
    assert facts["nodes_of_no_operator"] == 0
    wanted = logits(step).clone()
    differ = set()
    for unit in step.units():
        variant = step.variant({unit: 3})
        variant.check()
        if not torch.allclose(logits(variant), wanted, rtol=2e-2, atol=5e-3 * wanted.abs().max().item()):
            differ.add(unit.op)
        variant.close()
    said = dict(step.remarks())
    assert "kernels_by_name" not in said
    assert all(op in said.get("changed_numbers", "") for op in differ)
    torch.testing.assert_close(logits(step), wanted)


def test_products_go_by_operator_and_shapes_and_all_else_by_the_name_of_its_kernel():
    step = compiled(batch=8)
    ops = {unit.op for unit in step.units()}
    assert any(op.startswith("triton_") for op in ops)
    products = [unit for unit in step.units() if unit.op in ("aten.addmm", "aten.mm")]
    assert sum(unit.count for unit in products) >= 4 * 12
    assert all(unit.shapes.startswith("f16[") for unit in products)
    assert all(launch.name for launch in step.launches() if launch.kind == "kernel")


def test_copies_take_time_in_proportion_to_their_number():
    step = compiled(batch=64)
    largest = max(step.units(), key=lambda unit: unit.count if unit.op.startswith("aten.") else 0)
    once = per_iteration(step.variant({}))
    twice, thrice = (per_iteration(step.variant({largest: times})) for times in (2, 3))
    assert twice > 1.01 * once
    assert thrice - once == pytest.approx(2 * (twice - once), rel=0.15)


def test_a_copied_graph_runs_as_fast_as_the_captured_one():
    step = compiled(batch=8)
    assert per_iteration(step.variant({})) == pytest.approx(per_iteration(step), rel=0.03)


def test_an_empty_compiled_step_takes_no_time_and_a_paced_one_its_pause():
    step = compiled(batch=8)
    plain = per_iteration(step)
    assert per_iteration(step.empty()) < 0.2 * plain
    for pieces in (1, 16):
        paced = step.paced(1e-3, pieces)
        assert per_iteration(paced) == pytest.approx(plain + 1e-3, rel=0.15)
        assert per_iteration(paced.empty()) == pytest.approx(1e-3, rel=0.15)
        paced.close()


def test_input_sets_rotate_in_variants_too():
    step = compiled(batch=2, input_sets=2)
    wanted = [logits(step).clone() for _ in range(2)]
    assert not torch.allclose(*wanted)
    null = step.variant({})
    for i in range(4):
        torch.testing.assert_close(logits(null), wanted[i % 2])


def test_branches_on_two_streams_are_copied_side_by_side():
    other = torch.cuda.Stream()

    def forward(x):
        here = torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            right = x.exp()
        left = x.sin()
        here.wait_stream(other)
        return left + right

    from jouletrace.steps.cuda.compiled_step import make_compiled_step

    built = ObjectWorkload(forward, (torch.randn(1 << 16),)).build(CUDA, WorkloadOptions())
    built.call(0)
    step = make_compiled_step(built, torch.device(CUDA))
    wanted = logits(step).clone()
    for unit in step.units():
        variant = step.variant({unit: 4})
        variant.check()
        torch.testing.assert_close(logits(variant), wanted)


def test_an_exponential_in_place_is_refused_once_it_is_infinite():
    from jouletrace.steps.cuda.compiled_step import make_compiled_step

    built = ObjectWorkload(lambda x: (x + 1).exp_(), (torch.ones(64),)).build(CUDA, WorkloadOptions(dtype="fp32"))
    built.call(0)
    step = make_compiled_step(built, torch.device(CUDA))
    grow = next(unit for unit in step.units() if "exp" in unit.op)
    with pytest.raises(VariantRefusedError, match="aren't finite"):
        step.variant({grow: 4}).check()
