"""Real models on a simulated GPU: operators counted on fake tensors, kernels by the roofline."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from jouletrace.errors import BadInputError, NotPossibleError  # noqa: E402
from jouletrace.execution.steps import (  # noqa: E402
    SimulatedStep,
    count_operators,
    count_workload,
    fake_tensors,
    simulate_workload,
)
from jouletrace.execution.steps.simulated import kernels_of  # noqa: E402
from jouletrace.simulator.boards import PRESETS, SimulatedGpu  # noqa: E402
from jouletrace.workloads import Built, WorkloadOptions  # noqa: E402
from pace import worked  # noqa: E402
from step_truth import clock_mhz, steady_step  # noqa: E402


class Small:
    """A workload from a function that returns a module and its inputs."""

    name = "small"

    def __init__(self, make):
        self._make = make

    def build(self, device, options):
        assert device == "cpu"
        module, *inputs = self._make()
        facts = {"dtype": options.dtype}
        return Built(lambda _i: module(*inputs), module, [(tuple(inputs), {})], facts)


def count(make, grad=False):
    with fake_tensors(), torch.set_grad_enabled(grad):
        module, *inputs = make()
        return count_operators(lambda: module(*inputs), module)


def mlp():
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 8)).half().eval(), torch.randn(
        16, 32
    ).half()


@pytest.mark.thorough
def test_operators_have_shapes_modules_flops_and_bytes():
    first, gelu, second = count(mlp)
    assert (first.op, first.shapes, first.module) == ("aten.addmm", "f16[64] f16[16,32] f16[32,64]", "Sequential.0")
    assert first.flops == 2 * 16 * 32 * 64
    assert first.bytes_moved == 2 * (64 + 16 * 32 + 32 * 64 + 16 * 64)
    assert first.dtype == "fp16"
    assert (gelu.op, gelu.module, gelu.flops) == ("aten.gelu", "Sequential.1", 0)
    assert gelu.bytes_moved == 2 * 2 * 16 * 64
    assert second.module == "Sequential.3"


def test_inference_mode_counts_the_same():
    with fake_tensors(), torch.inference_mode():
        module, x = mlp()
        inside = count_operators(lambda: module(x), module)
    assert [(o.op, o.shapes, o.flops) for o in inside] == [(o.op, o.shapes, o.flops) for o in count(mlp)]


@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 4), lambda: nn.Conv1d(2, 2, 1, bias=False)])
def test_factors_of_different_types_are_refused_as_they_are_with_values(make):
    module, x = make(), torch.randn(2, 2, 4)
    for one in (count, lambda run: run()[0](x.double())):
        with pytest.raises(RuntimeError, match=r"same|Double|double"):
            one(lambda: (module, x.double()))
    assert count(lambda: (make(), torch.randn(2, 2, 4)))


def test_views_and_empty_tensors_are_no_kernels_but_the_host_goes_through_them():
    class Views(nn.Module):
        def forward(self, x):
            y = torch.empty(3, 3)
            return x.view(8, 4).t().unsqueeze(0).expand(2, 4, 8)[0].detach().reshape(4, 8).add(1), y

    (add,) = count(lambda: (Views(), torch.randn(4, 8)))
    assert add.op == "aten.add"
    assert add.host_calls > 4


def test_a_table_is_read_only_where_it_is_looked_up():
    def make():
        return nn.Embedding(100_000, 64), torch.zeros(10, dtype=torch.int64)

    (look_up,) = count(make)
    assert look_up.bytes_moved == 10 * 8 + 2 * 10 * 64 * 4


def test_an_expanded_tensor_has_the_bytes_that_are_there():
    class Expand(nn.Module):
        def forward(self, x):
            return x.expand(1000, 8) * 1.0

    (mul,) = count(lambda: (Expand(), torch.randn(1, 8)))
    assert mul.bytes_moved == 4 * (8 + 8000)


def test_attention_counts_by_the_formula_of_the_gpu():
    class Attention(nn.Module):
        def forward(self, q):
            return nn.functional.scaled_dot_product_attention(q, q, q)

    operators = count(lambda: (Attention(), torch.randn(2, 4, 128, 64)))
    assert sum(operator.flops for operator in operators) == 2 * 2 * 2 * 4 * 128 * 128 * 64
    assert all("cpu" not in operator.op for operator in operators)


def test_products_of_a_model_in_8_bits_are_of_their_own_pipes():
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.zeros(64, 256, dtype=torch.int8)

        def forward(self, rows):
            return torch._int_mm(rows.to(torch.int8), self.weight.t()).to(rows.dtype)

    one = next(one for one in count(lambda: (Quantised(), torch.ones(32, 256).half())) if one.op == "aten._int_mm")
    assert (one.dtype, one.flops, one.bytes_moved) == ("int8", 2 * 32 * 64 * 256, 256 * (32 + 64) + 4 * 32 * 64)


def test_repeated_and_shared_modules_are_distinguished_by_name_and_hooks_are_taken_away():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.alias = self.inner
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.alias(self.inner(x))) + 1

    modules = []

    def make():
        modules.append(Twice())
        return modules[0], torch.randn(2, 8)

    assert [operator.module for operator in count(make)] == ["inner", "inner", "last", ""]
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in modules[0].modules())


def test_backward_belongs_to_the_module_of_its_forward():
    with fake_tensors():
        module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        x = torch.randn(2, 8)
        operators = count_operators(lambda: module(x).sum().backward(), module)
    products = [(o.module, o.backward) for o in operators if o.flops]
    # the first layer needs no gradient of its input
    assert products == [
        ("Sequential.0", False),
        ("Sequential.2", False),
        ("Sequential.2", True),
        ("Sequential.2", True),
        ("Sequential.0", True),
    ]
    assert [o.module for o in operators if "threshold" in o.op] == ["Sequential.1"]


class Training:
    """A workload whose iteration is a training step."""

    name = "training"

    def build(self, device, options):
        module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer, x = torch.optim.AdamW(module.parameters()), torch.randn(2, 8)

        def call(_i):
            module(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return Built(call, module, [((x,), {})], {})


def test_a_training_step_is_counted_without_its_first_iteration():
    _, operators = count_workload(Training(), WorkloadOptions())
    names = [operator.op for operator in operators]
    # made once: the optimiser's state
    assert "aten.zeros_like" not in names
    assert any("addcdiv" in name for name in names)
    assert not any("record_function" in name for name in names)
    assert sum(operator.backward for operator in operators) > 5


def test_questions_about_values_are_answered_as_for_an_ordinary_input():
    class Asks(nn.Module):
        def forward(self, x, mask):
            if not mask.all() or x.isnan().any():
                return x * 2
            if x.abs().max().item() > 1e30:
                return x * 3
            return x.exp()

    operators = count(lambda: (Asks(), torch.randn(4), torch.ones(4, dtype=torch.bool)))
    assert operators[-1].op == "aten.exp"
    assert "aten._local_scalar_dense" not in [operator.op for operator in operators]


def test_a_shape_that_depends_on_values_is_refused_with_operator_and_module():
    class Picks(nn.Module):
        def forward(self, x):
            return x.nonzero()

    with pytest.raises(NotPossibleError, match=r"aten\.nonzero.* in pick"):
        count(lambda: named_pick(Picks()))


def named_pick(inner):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.pick = inner

        def forward(self, x):
            return self.pick(x)

    return Outer(), torch.randn(4)


@pytest.mark.thorough
def test_a_model_of_transformers_is_counted_without_running_it():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(num_hidden_layers=12)

    def make():
        return vit(transformers, config), torch.randn(64, 3, 224, 224).half()

    with worked() as work:  # 2.2e12 operations, if it ran
        operators = count(make)
    assert work.loops < 500
    products = sum(operator.flops for operator in operators)
    # ViT-B/16 at 224: 17.6 G multiply-adds a picture
    assert products / 64 == pytest.approx(2 * 17.5e9, rel=0.02)
    named = [operator for operator in operators if operator.module]
    assert len(named) == len(operators)
    assert {o.module.split(".")[-1] for o in operators if o.op == "aten.gelu"} != {""}


def vit(transformers, config):
    """The model without its initialisation, which draws numbers that no one needs."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        return transformers.ViTModel(config, add_pooling_layer=False).half().eval()


@pytest.mark.thorough
def test_deit_like_models_take_about_what_they_take_on_an_h100():
    transformers = pytest.importorskip("transformers")

    def make(batch):
        return lambda: (vit(transformers, transformers.ViTConfig()), torch.randn(batch, 3, 224, 224).half())

    # recorded on an H100, as a graph: batch 64 6.7 ms, 4.6 J, capped; batch 1 0.706 ms, 0.21 J
    for batch, latency_s, energy_j in ((64, 6.7e-3, 4.6), (1, 0.706e-3, 0.21)):
        gpu = SimulatedGpu("sim:h100")
        _, step = simulate_workload(Small(make(batch)), WorkloadOptions(), gpu, "graph")
        step.replay(round(3 / latency_s))
        n = round(2 / latency_s)
        interval = step.replay(n)
        assert interval.seconds / n == pytest.approx(latency_s, rel=0.08)
        assert gpu.truth.energy_j(interval.start_ns, interval.end_ns) / n == pytest.approx(energy_j, rel=0.08)
        capped = clock_mhz(gpu, interval.start_ns, interval.end_ns) < 1900
        assert capped == (batch == 64)


def test_a_simulated_workload_is_a_step_with_counted_facts():
    gpu = SimulatedGpu("sim:h100")
    built, step = simulate_workload(Small(mlp), WorkloadOptions(), gpu, "eager")
    assert built.facts["dtype"] == "fp16"
    assert built.facts["device"] == "SIMULATED H100 80GB"
    assert built.facts["counted"]["operators"] == 3
    assert [kernel.module for kernel in step.schedule.kernels] == ["Sequential.0", "Sequential.1", "Sequential.3"]
    assert step.describe()["launch"] == "eager"
    assert step.replay(10).seconds > 0


def test_what_is_no_simulation_is_refused():
    gpu = SimulatedGpu("sim:h100")
    with pytest.raises(BadInputError, match="--mode compile"):
        simulate_workload(Small(mlp), WorkloadOptions(), gpu, "compile")
    with pytest.raises(BadInputError, match="no operator"):
        simulate_workload(Small(lambda: (nn.Identity(), torch.randn(2))), WorkloadOptions(), gpu, "graph")


@pytest.mark.parametrize("preset", PRESETS)
def test_the_roofline_takes_the_slower_of_arithmetic_and_memory(preset):
    roofline = SimulatedGpu(f"sim:{preset}").board.roofline
    facts = PRESETS[preset]
    tiny = roofline.kernel("k")
    compute = roofline.kernel("k", flops=1e12, bytes_moved=1e6)
    memory = roofline.kernel("k", bytes_moved=1e9)
    both = roofline.kernel("k", flops=1e12, bytes_moved=1e9)
    assert 1e-6 < tiny.time_s < 6e-6
    assert compute.time_s > 1e12 / facts.peak_flops["fp16"]
    assert memory.time_s > 1e9 / facts.bytes_per_s
    assert both.time_s == pytest.approx(max(compute.time_s, memory.time_s), rel=0.01)
    assert both.active_j > compute.active_j
    assert compute.clocked > 0.9 > memory.clocked
    # what doesn't fit in the cache gains nothing by being repeated
    assert memory.repeat == 1.0
    assert roofline.kernel("k", bytes_moved=5e6).repeat < 0.95


def test_an_unknown_dtype_is_refused_and_tf32_is_faster_than_fp32():
    gpu = SimulatedGpu("sim:h100")
    with pytest.raises(BadInputError, match="float8"):
        gpu.board.roofline.kernel("k", 1e9, 1e6, "float8_e4m3fn")

    def big():
        return nn.Linear(4096, 4096).eval(), torch.randn(4096, 4096)

    operators = count(big)
    plain = SimulatedStep(gpu, kernels_of(gpu, operators))
    tensor = SimulatedStep(gpu, kernels_of(gpu, operators, tf32=True))
    assert steady_step(gpu, tensor.schedule).time_s < 0.5 * steady_step(gpu, plain.schedule).time_s
