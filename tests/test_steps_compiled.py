"""Parts of compiled steps by repetition, with captures that a CPU can copy and play back."""

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from fake_capture import CPU  # noqa: E402
from fake_cuda_graphs import Generated, install, nothing_left  # noqa: E402
from jouletrace.errors import BadInputError, NotPossibleError  # noqa: E402
from jouletrace.steps import Unit, VariantRefusedError  # noqa: E402
from jouletrace.steps.base import DETACHED, KnowsLaunches, OnlyRepeated  # noqa: E402
from jouletrace.steps.cuda import compiled_calls  # noqa: E402
from jouletrace.steps.cuda.compiled_step import make_compiled_step  # noqa: E402
from jouletrace.steps.cuda.graph_nodes import Node  # noqa: E402
from jouletrace.workloads.base import Built  # noqa: E402

NORM = Generated("triton_per_fused_norm_0", lambda x: x / x.norm())
GELU = Generated("triton_poi_fused_gelu_1", torch.nn.functional.gelu)
GROW = Generated("triton_poi_fused_add_exp_2", lambda x, y: x.exp() + y)


class Code:
    """What a compiler might have made of a model: planned buffers, its own kernels, and torch's products."""

    def __init__(self, grows=False):
        torch.manual_seed(0)
        self.weights = [torch.randn(8, 8) for _ in range(2)]
        self.buffers = [torch.empty(4, 8) for _ in range(2)]
        self.grows = grows

    def __call__(self, x):
        a, b = self.buffers
        NORM(a, x)
        for weight in self.weights:
            torch.mm(a, weight, out=b)
            GELU(a, b)
        if self.grows:
            GROW(a, a, b)
        return a


def make(sets=1, code=None):
    code = code or Code()
    inputs = [torch.randn(4, 8) for _ in range(sets)]

    def call(i):
        with torch.inference_mode():
            return code(inputs[i % sets])

    return Built(call, None, [((x,), {}) for x in inputs], {"name": "blocks", "compile": {"backend": "inductor"}})


@pytest.fixture
def cuda(monkeypatch):
    return install(monkeypatch)


def names(cuda, variant):
    """The kernels that one iteration of a variant runs, in order."""
    cuda.launched.clear()
    variant.replay(1)
    by_number = {node.arguments: node for graph in cuda.graphs.values() for node in graph.nodes.values()}
    functions = [int.from_bytes(by_number[number].params[:8], "little") for number in cuda.launched]
    return [cuda.names[function] for function in functions]


PLAIN = ["triton_per_fused_norm_0", "mm", "triton_poi_fused_gelu_1", "mm", "triton_poi_fused_gelu_1"]


@pytest.mark.thorough
def test_generated_kernels_go_by_name_and_operators_that_compiled_code_calls_by_shapes(cuda):
    step = make_compiled_step(make(), CPU)
    assert [(unit.op, unit.shapes, unit.module, unit.count) for unit in step.units()] == [
        ("triton_per_fused_norm_0", "grid 8, block 32", "", 1),
        ("aten.mm", "f32[4,8] f32[8,8]", "", 2),
        ("triton_poi_fused_gelu_1", "grid 8, block 32", "", 2),
    ]
    assert isinstance(step, KnowsLaunches)
    assert [launch.name for launch in step.launches()] == PLAIN
    assert [launch.unit.op for launch in step.launches()][1] == "aten.mm"
    facts = step.describe()
    assert (facts["nodes"], facts["nodes_of_no_operator"], facts["mode"]) == (5, 0, "graph")
    assert facts["backend"] == "inductor"


def test_a_unit_is_repeated_wherever_it_runs_and_the_outputs_are_the_untouched_ones(cuda):
    built = make(sets=2)
    step = make_compiled_step(built, CPU)
    step.check()
    wanted = [built.call(i).clone() for i in range(2)]
    assert not torch.equal(*wanted)
    for unit in step.units():
        variant = step.variant({unit: 3})
        variant.check()
        for i in range(4):
            variant.replay(1)
            assert torch.equal(variant.outputs(), wanted[i % 2])
        variant.close()
    gelu = step.units()[2]
    twice = step.variant({gelu: 2})
    repeated = "triton_poi_fused_gelu_1"
    assert names(cuda, twice) == ["triton_per_fused_norm_0", "mm", repeated, repeated, "mm", repeated, repeated]
    assert twice.changes == {gelu: 2}


def test_several_units_at_once_and_none(cuda):
    step = make_compiled_step(make(), CPU)
    norm, product, _ = step.units()
    both = step.variant({norm: 2, product: 3})
    both.check()
    assert names(cuda, both) == [PLAIN[0]] * 2 + ["mm"] * 3 + [PLAIN[2]] + ["mm"] * 3 + [PLAIN[4]]
    null = step.variant({norm: 1})
    null.check()
    assert names(cuda, null) == PLAIN


def test_no_unit_can_be_removed(cuda):
    step = make_compiled_step(make(), CPU)
    assert isinstance(step, OnlyRepeated)
    for multiplicity in (0, DETACHED):
        with pytest.raises(VariantRefusedError, match=r"triton_per_fused_norm_0 .*can't go without it") as refused:
            step.variant({step.units()[0]: multiplicity})
        assert refused.value.reason == "compiled"
    with pytest.raises(BadInputError, match="the multiplicity must be 0 or more"):
        step.variant({step.units()[0]: -2})
    with pytest.raises(BadInputError, match=r"the step has no unit aten\.sin"):
        step.variant({Unit("aten.sin", "", ""): 2})


def test_the_empty_step_launches_nothing_and_paced_only_the_pause(cuda):
    step = make_compiled_step(make(), CPU)
    empty = step.empty()
    empty.check()
    assert names(cuda, empty) == []
    paced = step.paced(1e-3).empty()
    paced.check()
    assert names(cuda, paced) == ["full"]


def test_a_paced_step_and_its_variants_end_with_the_pause(cuda):
    step = make_compiled_step(make(), CPU)
    paced = step.paced(1e-3)
    paced.check()
    assert names(cuda, paced) == [*PLAIN, "full"]
    assert paced.units() == step.units()
    assert paced.describe()["spin_s"] == 1e-3
    assert names(cuda, paced.variant({step.units()[0]: 2})) == [PLAIN[0], *PLAIN, "full"]
    assert names(cuda, paced.paced(0)) == PLAIN
    with pytest.raises(BadInputError, match="0 seconds or more"):
        step.paced(-1.0)


def test_a_pause_in_pieces_is_spread_over_the_calls_of_an_iteration(cuda):
    step = make_compiled_step(make(), CPU)
    kernels = names(cuda, step.paced(1e-3, 3))
    assert kernels.count("full") == 3
    assert kernels[-1] == "full"
    assert [kernel for kernel in kernels if kernel != "full"] == PLAIN
    assert not any(a == b == "full" for a, b in pairwise(kernels))
    assert names(cuda, step.paced(1e-3, 99)).count("full") == 5
    assert names(cuda, step.paced(1e-3, 3).empty()).count("full") == 3


def test_a_kernel_that_writes_over_what_it_reads_is_repeated_and_said_so(cuda):
    step = make_compiled_step(make(code=Code(grows=True)), CPU)
    grow = step.units()[-1]
    assert not [code for code, _ in step.remarks() if code == "changed_numbers"]
    for unit in step.units():
        step.variant({unit: 2}).check()
    said = dict(step.remarks())
    assert "1 of 4 parts" in said["changed_numbers"]
    assert grow.op in said["changed_numbers"]
    assert "running it once more" in said["by_repetition"]


def test_a_repetition_that_leaves_numbers_that_are_not_finite_is_refused(cuda):
    step = make_compiled_step(make(code=Code(grows=True)), CPU)
    variant = step.variant({step.units()[-1]: 9})
    with pytest.raises(VariantRefusedError, match=r"add_exp_2 .*aren't finite") as refused:
        variant.check()
    assert refused.value.reason == "not_finite"


def test_an_untouched_step_without_finite_numbers_refuses_nothing(cuda):
    code = Code()
    code.weights[0].fill_(torch.nan)
    step = make_compiled_step(make(code=code), CPU)
    step.variant({step.units()[0]: 2}).check()


def test_closing_frees_all_graphs(cuda):
    with nothing_left(cuda):
        step = make_compiled_step(make(sets=2), CPU)
        variant, paced = step.variant({step.units()[0]: 2}), step.paced(1e-3)
        for one in (variant, paced.empty(), paced, step):
            one.close()


def test_a_variant_that_the_driver_refuses_leaves_nothing_behind(cuda):
    step = make_compiled_step(make(), CPU)
    cuda.fail["cuGraphInstantiateWithFlags"] = 2
    with nothing_left(cuda), pytest.raises(Exception, match="cuGraphInstantiateWithFlags failed with CUDA error 2"):
        step.paced(1e-3)


def test_kernels_go_by_name_where_the_operators_are_not_known(cuda, monkeypatch):
    def fails(*_arguments):
        raise RuntimeError("no modes here")

    monkeypatch.setattr(compiled_calls._Operators, "operator", fails)
    step = make_compiled_step(make(), CPU)
    assert [(unit.op, unit.shapes) for unit in step.units()][1] == ("mm", "grid 8, block 32")
    assert "no modes here" in dict(step.remarks())["kernels_by_name"]
    step.variant({step.units()[1]: 2}).check()


def test_a_torch_that_does_not_run_compiled_code_under_a_mode_is_not_tried(cuda, monkeypatch):
    monkeypatch.setattr(compiled_calls, "TorchDispatchMode", object)
    step = make_compiled_step(make(), CPU)
    assert "this torch doesn't run compiled code" in dict(step.remarks())["kernels_by_name"]


def test_kernels_go_by_name_where_the_mode_makes_others_run(cuda):
    class Fickle(Code):
        def __call__(self, x):
            if torch._C._len_torch_dispatch_stack() > 1:  # the capture's own mode, and one more
                NORM(self.buffers[0], x)
            return super().__call__(x)

    step = make_compiled_step(make(code=Fickle()), CPU)
    assert "other kernels were captured" in dict(step.remarks())["kernels_by_name"]
    assert [launch.name for launch in step.launches()] == PLAIN


def test_input_sets_with_other_kernels_are_refused(cuda):
    code = Code()
    inputs = [torch.randn(4, 8), torch.randn(4, 8)]

    def call(i):
        with torch.inference_mode():
            out = code(inputs[i % 2])
            if i % 2:
                GELU(out, out)
            return out

    built = Built(call, None, [((x,), {}) for x in inputs], {"name": "blocks"})
    with nothing_left(cuda), pytest.raises(NotPossibleError, match="input set 1 runs other kernels than input set 0"):
        make_compiled_step(built, CPU)


def test_a_torch_that_does_not_keep_graphs_is_too_old(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    with pytest.raises(NotPossibleError, match=r"torch 2\.8 or later"):
        make_compiled_step(make(), CPU)


def test_copies_and_fills_are_units_and_what_can_not_be_copied_is_none():
    named = [
        compiled_calls.Named(Node("memcpy", grid=(4096, 1, 1))),
        compiled_calls.Named(Node("memset", grid=(256, 1, 1), block=(4, 1, 1)), 0, "aten.mm", "f16[8,8]"),
        compiled_calls.Named(Node("kernel", 1, (3, 2, 1), (64, 1, 1), name="gemm"), 0, "aten.mm", "f16[8,8]"),
        compiled_calls.Named(Node("empty")),
        compiled_calls.Named(Node("kernel", 1, (3, 2, 1), (64, 1, 1), name="gemm"), 1, "aten.mm", "f16[8,8]"),
        compiled_calls.Named(Node("kernel", 2, (3, 2, 1), (64, 1, 1))),
    ]
    assert [(call.key[:2], call.nodes) for call in compiled_calls.group_calls(named)] == [
        (("memcpy", "4096 bytes"), (0,)),
        (("aten.mm", "f16[8,8]"), (1, 2)),
        (("aten.mm", "f16[8,8]"), (4,)),
        (("kernel", "grid 3x2, block 64"), (5,)),
    ]


@pytest.mark.thorough
def test_compiled_code_runs_under_the_mode_that_names_its_operators():
    ran = []

    def backend(module, _inputs):
        def compiled(*inputs):
            ran.append(True)
            return module(*inputs)

        return compiled

    compiled, x = torch.compile(lambda x: (x @ x).relu(), backend=backend), torch.ones(2, 2)
    with torch.inference_mode():
        compiled(x)
        with compiled_calls._Operators(CPU) as mode:
            compiled(x)
    assert ran == [True, True]
    assert [op for op, _ in mode.called] == ["aten.mm", "aten.relu"]
