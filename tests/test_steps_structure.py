"""The calls of an iteration, and the units that they make up."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from jouletrace.errors import NotPossibleError  # noqa: E402
from jouletrace.steps.altered import record_structures  # noqa: E402
from jouletrace.steps.counting import count_workload  # noqa: E402
from jouletrace.steps.operators import aten, is_idempotent, out_form  # noqa: E402
from jouletrace.steps.structure import record_structure  # noqa: E402
from jouletrace.steps.units import Unit, group  # noqa: E402
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve  # noqa: E402
from jouletrace.workloads.base import Built  # noqa: E402

pytestmark = pytest.mark.thorough

CPU = torch.device("cpu")


def structure(target, *inputs, inference=True):
    def call(_i):
        with torch.inference_mode(inference):
            return target(*inputs)

    return record_structure(Built(call, target if isinstance(target, nn.Module) else None, [()], {}), 0, CPU)


def brief(found):
    return [(unit.op.removeprefix("aten."), unit.shapes, unit.module, unit.count, unit.backward) for unit in found]


def test_a_unit_prints_as_operator_shapes_module_and_direction():
    assert str(Unit("aten.mm", "f16[2,3] f16[3,4]", "head", 3)) == "aten.mm f16[2,3] f16[3,4] in head"
    assert str(Unit("aten.mm", "f16[2]", "", backward=True)) == "aten.mm f16[2] (backward)"


def test_calls_are_grouped_in_the_order_of_their_first():
    keys = [("b", "", "x", False), ("a", "", "x", False), ("b", "", "x", False), ("b", "", "x", True)]
    assert group(keys) == [Unit("b", "", "x", 2), Unit("a", "", "x", 1), Unit("b", "", "x", 1, True)]


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8, bias=False), nn.Dropout(0.1)).eval()


@pytest.mark.parametrize("inference", [True, False])
def test_units_are_what_is_dispatched_below_autograd_in_inference_mode_too(inference):
    assert brief(structure(mlp(), torch.randn(3, 4), inference=inference).units()) == [
        ("addmm", "f32[8] f32[3,4] f32[4,8]", "0", 1, False),
        ("gelu", "f32[3,8]", "1", 1, False),
        ("mm", "f32[3,8] f32[8,8]", "2", 1, False),
    ]


def test_views_and_new_memory_are_no_units():
    found = structure(lambda x: torch.empty(3).fill_(x.view(2, 2).t()[0, 0].item()), torch.randn(4))
    assert [call.func for call in found.calls] == [aten._local_scalar_dense.default, aten.fill_.Scalar]
    assert brief(found.units()) == [("fill_", "f32[3]", "", 1, False)]
    assert found.calls[0].looks


def test_the_same_operator_on_the_same_shapes_in_one_module_is_one_unit():
    (unit,) = structure(lambda x: x.exp().exp().exp(), torch.randn(3)).units()
    assert unit.count == 3
    found = structure(lambda x: x.exp().exp().exp(), torch.randn(3))
    assert found.places(unit) == [0, 1, 2]
    assert found.places(Unit("aten.sin", "f32[3]", "")) == []


def test_backward_belongs_to_the_module_of_its_forward():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    built = Built(lambda _i: model(x).sum().backward(), model, [()], {})
    built.call(0)
    backward = [unit for unit in record_structure(built, 0, CPU).units() if unit.backward]
    # A sum over no dimension and the last layer's gradient of the input come between.
    assert [(unit.op, unit.module) for unit in backward if unit.op in ("aten.mm", "aten.threshold_backward")] == [
        ("aten.mm", "2"),
        ("aten.mm", "2"),
        ("aten.threshold_backward", "1"),
        ("aten.mm", "0"),
    ]


def test_a_module_takes_the_path_that_it_takes_without_being_followed():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    assert brief(structure(layer, torch.randn(2, 5, 16)).units())[0][0] == "_transformer_encoder_layer_fwd"


def test_what_is_needed_are_results_that_others_read_who_still_run():
    def forward(x):
        a = x.exp()
        b = a.view(-1).sin()
        c = b.cos()
        return c.neg_(), a

    found = structure(forward, torch.randn(3))
    assert [call.func.overloadpacket for call in found.calls] == [aten.exp, aten.sin, aten.cos, aten.neg_]
    assert found.needed([1]) == {1}
    assert found.needed([1, 2]) == {2}
    assert found.needed([0, 1, 2, 3]) == {0, 2, 3}
    assert found.launching([0, 1], hidden=True).needed([1, 2]) == {1, 2}


def test_a_capture_tells_which_calls_launch():
    found = structure(lambda x: x.exp().sin(), torch.randn(3))
    assert [unit.op for unit in found.launching([1], hidden=False).units()] == ["aten.sin"]


def test_hooks_are_taken_away():
    from torch.nn.modules import module

    structure(mlp(), torch.randn(3, 4))
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


def test_input_sets_that_call_other_operators_are_refused():
    inputs = [torch.randn(3), torch.randn(4)]
    built = Built(lambda i: inputs[i % 2].exp(), None, [(), ()], {})
    with pytest.raises(NotPossibleError, match="input set 1 runs other operators than input set 0"):
        record_structures(built, CPU)


def test_a_workload_that_fails_under_the_mode_says_where():
    def call(_i):
        torch.randn(3).exp()
        raise RuntimeError("no modes\nplease")

    with pytest.raises(NotPossibleError, match=r"can't be followed at aten\.exp: RuntimeError: no modes") as info:
        record_structure(Built(call, None, [()], {}), 0, CPU)
    assert "\n" not in str(info.value)


def test_out_forms_are_those_with_a_kernel_of_their_own():
    assert out_form(aten.add_.Tensor, "CPU") is aten.add.out
    assert out_form(aten.mul_.Scalar, "CPU") is aten.mul.out
    assert out_form(aten.pow_.Scalar, "CPU") is aten.pow.Tensor_Scalar_out
    assert out_form(aten.relu_.default, "CPU") is None
    assert out_form(aten._foreach_add_.List, "CPU") is None
    assert out_form(aten.add.Tensor, "CPU") is None


def test_writing_twice_leaves_the_same_only_where_nothing_of_it_is_read():
    x, y = torch.randn(3), torch.randn(3)
    assert is_idempotent(aten.copy_.default, (x, y), {})
    assert not is_idempotent(aten.add_.Tensor, (x, y), {})
    assert is_idempotent(aten.add.out, (x, y), {"out": torch.empty(3)})
    assert not is_idempotent(aten.add.out, (x, y), {"out": x})
    places = (torch.tensor([0]),)
    assert is_idempotent(aten.index_put_.default, (x, places, y[:1]), {})
    assert not is_idempotent(aten.index_put_.default, (x, places, y[:1], True), {})


def test_units_agree_with_those_of_the_simulated_boards():
    config = {"num_hidden_layers": "1", "hidden_size": "32", "num_attention_heads": "2", "intermediate_size": "64"}
    options = WorkloadOptions(config=config, dtype="fp32")
    _, operators = count_workload(resolve("bert-base"), options)
    built = resolve("bert-base").build("cpu", options)
    real = record_structure(built, 0, CPU).units()
    simulated = group((one.op, one.shapes, one.module, one.backward) for one in operators)
    products = ("aten.addmm", "aten.gelu", "aten.native_layer_norm", "aten.embedding", "aten.tanh")
    assert [unit for unit in real if unit.op in products] == [unit for unit in simulated if unit.op in products]
    assert len([unit for unit in real if unit.op in products]) > 8


def test_a_callable_without_modules_has_units_without_modules():
    built = ObjectWorkload(torch.matmul, (torch.randn(3, 4), torch.randn(4, 5))).build("cpu", WorkloadOptions())
    assert brief(record_structure(built, 0, CPU).units()) == [("mm", "f32[3,4] f32[4,5]", "", 1, False)]
