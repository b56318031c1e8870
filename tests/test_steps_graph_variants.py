"""Captured variants, with captures that a CPU can play back."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fake_capture import CPU, install  # noqa: E402
from jouletrace.errors import BadInputError, JouletraceError  # noqa: E402
from jouletrace.steps import Unit  # noqa: E402
from jouletrace.steps.base import DETACHED  # noqa: E402
from jouletrace.steps.cuda.graph_variants import VariableGraphStep  # noqa: E402
from jouletrace.steps.pacing import with_spin  # noqa: E402
from jouletrace.workloads.base import Built  # noqa: E402

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _captures(monkeypatch):
    install(monkeypatch)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        y = self.up(self.norm(x))
        y += x
        return y.relu_()


def make(sets=2, forward=None):
    model = nn.Sequential(Block(), Block())
    inputs = [torch.randn(4, 8) for _ in range(sets)]

    def call(i):
        with torch.inference_mode():
            return (forward or model)(inputs[i % sets])

    return Built(call, model, [((x,), {}) for x in inputs], {"name": "blocks"})


def unit(step, op, module):
    (found,) = [one for one in step.units() if (one.op, one.module) == (op, module)]
    return found


def launched(variant):
    return [node.name for _, node in variant.nodes[0].sequence]


def test_the_untouched_step_is_captured_without_the_mode_and_has_the_nodes_of_one_with():
    step = VariableGraphStep(make(), CPU)
    assert step.mode == "graph"
    assert launched(step) == ["native_layer_norm", "addmm", "add", "relu"] * 2
    step.check()
    assert step.describe()["nodes"] == 8
    assert step.describe()["nodes_of_no_operator"] == 0
    assert len(step.units()) == 8


def test_every_variant_of_every_unit_passes_its_check_and_computes_the_outputs_of_all_input_sets():
    built = make()
    step = VariableGraphStep(built, CPU)
    wanted = [built.call(i).clone() for i in range(2)]
    for one in step.units():
        for multiplicity in (0, 1, 3):
            variant = step.variant({one: multiplicity})
            variant.check()
            assert len(variant.nodes[0].sequence) == 8 + multiplicity - 1
            for i in range(6):
                variant.replay(1)
                assert torch.equal(variant.outputs(), wanted[i % 2])
            variant.close()
    assert torch.equal(built.call(0), wanted[0])


def test_a_removed_product_leaves_the_other_kernels():
    step = VariableGraphStep(make(), CPU)
    variant = step.variant({unit(step, "aten.addmm", "1.up"): 0})
    assert launched(variant) == ["native_layer_norm", "addmm", "add", "relu", "native_layer_norm", "add", "relu"]


def test_several_units_at_once_and_all_of_them():
    step = VariableGraphStep(make(), CPU)
    both = step.variant({unit(step, "aten.addmm", "0.up"): 0, unit(step, "aten.native_layer_norm", "1.norm"): 3})
    both.check()
    assert len(launched(both)) == 8 - 1 + 2
    empty = step.empty()
    empty.check()
    assert launched(empty) == []
    assert empty.replay(2).seconds >= 0


def test_an_empty_graph_is_no_cause_for_a_warning(recwarn):
    VariableGraphStep(make(), CPU).empty()
    assert not [warning for warning in recwarn if "Graph is empty" in str(warning.message)]


def test_a_paced_step_and_all_its_variants_end_with_the_spin():
    step = VariableGraphStep(make(), CPU)
    paced = step.paced(1e-3)
    paced.check()
    assert paced.describe()["spin_s"] == 1e-3
    assert paced.describe()["nodes_of_no_operator"] == 0
    assert launched(paced) == [*launched(step), "full"]
    assert [one.key for one in paced.units()] == [one.key for one in step.units()]
    variant = paced.variant({unit(paced, "aten.addmm", "0.up"): 0})
    variant.check()
    assert launched(variant)[-1] == "full"
    assert launched(paced.paced(2e-3)) == launched(paced)
    assert launched(paced.paced(0)) == launched(step)
    with pytest.raises(BadInputError, match="0 seconds or more"):
        step.paced(-1.0)


def test_a_pause_in_pieces_is_spread_over_the_operators_of_the_step_and_of_all_its_variants():
    step = VariableGraphStep(make(), CPU)
    paced = step.paced(1e-3, pieces=4)
    paced.check()
    spread = [name for one in zip(launched(step)[::2], launched(step)[1::2], strict=True) for name in (*one, "full")]
    assert launched(paced) == spread
    assert paced.describe()["nodes_of_no_operator"] == 0
    for multiplicity in (0, 1, 3, DETACHED):
        variant = paced.variant({unit(paced, "aten.addmm", "0.up"): multiplicity})
        variant.check()
        assert launched(variant).count("full") == 4
    assert launched(paced.empty()) == ["full"] * 4
    assert launched(step.paced(1e-3, pieces=100)).count("full") == 8, "no more pieces than operators"
    assert with_spin(make(), 1e-3, CPU, 4, 8).call.cycles * 4 == with_spin(make(), 1e-3, CPU).call.cycles


def test_work_of_no_operator_is_counted_and_keeps_all_removed_outputs_alive():
    model = Block()

    def forward(x):
        y = model(x)
        torch.cuda._sleep(10)
        return model(y)

    step = VariableGraphStep(make(forward=forward), CPU)
    step.check()
    assert step.describe()["nodes_of_no_operator"] == 1
    assert launched(step.empty()) == ["full"]
    kept = step.empty()._altered.stored[0]
    assert all(output.kept for one in kept.values() for output in torch.utils._pytree.tree_leaves(one.outputs)
               if output.argument is None)  # fmt: skip


def test_a_kernel_that_changes_with_the_variant_is_found_by_the_check():
    step = VariableGraphStep(make(), CPU)
    variant = step.variant({unit(step, "aten.addmm", "0.up"): 0})
    place, node = variant.nodes[1].sequence[-1]
    variant.nodes[1].sequence[-1] = (place, type(node)("kernel", 1, name="other"))
    with pytest.raises(JouletraceError, match=r"other kernels in aten\.relu_ .* in 1: kernel 0 is other"):
        variant.check()


def test_unknown_units_are_refused():
    step = VariableGraphStep(make(), CPU)
    with pytest.raises(BadInputError, match=r"no unit aten\.mm"):
        step.variant({Unit("aten.mm", "", ""): 0})


def test_a_closed_variant_keeps_nothing():
    step = VariableGraphStep(make(), CPU)
    variant = step.variant({unit(step, "aten.addmm", "0.up"): 0})
    variant.close()
    assert variant._altered.stored == [{}, {}]
    assert variant._outputs == []
    step.replay(1)
