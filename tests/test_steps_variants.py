"""Variable steps on the CPU and on simulated boards: one protocol."""

import re
import time
from pathlib import Path

import pytest

import jouletrace.steps
from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.steps import Unit, VariantRefusedError, make_variable_step
from jouletrace.steps.base import DETACHED, REFUSALS
from jouletrace.steps.simulated import SimulatedStep

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from jouletrace.workloads import ObjectWorkload, WorkloadOptions, names, resolve  # noqa: E402
from jouletrace.workloads.trees import named_tensors  # noqa: E402

pytestmark = pytest.mark.thorough

TINY = {
    "bert": {"num_hidden_layers": "1", "hidden_size": "32", "num_attention_heads": "2", "intermediate_size": "64"},
    "deit": {
        "num_hidden_layers": "1", "hidden_size": "32", "num_attention_heads": "2", "intermediate_size": "64",
        "image_size": "32",
    },
    "distilbert": {"n_layers": "1", "dim": "32", "n_heads": "2", "hidden_dim": "64"},
    "gpt2": {"n_layer": "1", "n_embd": "32", "n_head": "2", "vocab_size": "100"},
    "resnet50": {"depths": "[1, 1]", "hidden_sizes": "[16, 32]", "embedding_size": "8"},
    "swin": {"depths": "[2]", "num_heads": "[2]", "embed_dim": "16", "image_size": "64", "window_size": "4"},
}  # fmt: skip
TINY["vit"] = TINY["deit"]
TINY["minilm"] = TINY["mpnet"] = TINY["bert"]


def tiny(name):
    config = next(config for prefix, config in TINY.items() if name.startswith(prefix))
    seq_len = 8 if name.startswith(("bert", "distilbert", "gpt2", "minilm", "mpnet")) else None
    return resolve(name).build("cpu", WorkloadOptions(config=config, seq_len=seq_len, input_sets=2))


def of(target, *inputs):
    return make_variable_step(ObjectWorkload(target, inputs).build("cpu", WorkloadOptions()), "cpu", "eager")


def simulated():
    kernels = [SimKernel(name, 20e-6, 300.0, op=name, module="m") for name in ("mm", "gelu", "mm")]
    return SimulatedStep(open_simulated("sim:h100?noise=0"), kernels)


def on_the_cpu():
    return of(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(32, 64))


@pytest.mark.parametrize("make", [simulated, on_the_cpu])
def test_a_variable_step_offers_what_experiments_ask_of_it(make):
    step = make()
    assert step.changes == {}
    step.check()
    a, b = step.units()[:2]
    for changes in ({}, {a: 0}, {a: DETACHED}, {a: 1, b: 3}):
        variant = step.variant(changes)
        assert variant.changes == changes
        variant.check()
        assert variant.replay(3).seconds > 0
        assert variant.latencies(3).shape == (3,)
        assert variant.describe()["mode"] == step.mode
        variant.close()
    step.empty().check()
    with pytest.raises(BadInputError, match=r"has no unit conv f16\[3\] in x"):
        step.variant({Unit("conv", "f16[3]", "x"): 0})
    with pytest.raises(BadInputError, match=r"0 or more, or -1 \(detached\), not -2"):
        step.variant({a: -2})
    step.close()


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(tuple(TINY))])
def test_built_in_models_compute_the_same_with_any_unit_removed_or_repeated(name):
    built = tiny(name)
    step = make_variable_step(built, "cpu", "eager")
    wanted = [[tensor.clone() for _, tensor in named_tensors(built.call(i))] for i in range(2)]
    units = step.units()
    assert sum(unit.count for unit in units) >= len(units) > 5
    groups = [units[i::4] for i in range(4)] + [units]
    for multiplicity in (DETACHED, 0, 2):
        for group in groups:
            variant = step.variant(dict.fromkeys(group, multiplicity))
            for i in range(2):
                found = [tensor for _, tensor in named_tensors(variant._altered(i))]
                for one, other in zip(wanted[i], found, strict=True):
                    assert torch.equal(one, other)


PAUSE_S = 0.004
pauses: list[float] = []
library = torch.library.Library("jouletrace_tests", "FRAGMENT")
library.define("pause(Tensor x) -> Tensor")


@torch.library.impl(library, "pause", "CPU")
def _pause(x):
    pauses.append(PAUSE_S)
    time.sleep(PAUSE_S)
    return x + 1


def test_a_repeated_operator_takes_its_time_again_and_a_removed_one_none():
    step = of(lambda x: torch.ops.jouletrace_tests.pause(x).exp(), torch.randn(4))
    pause = step.units()[0]
    assert pause == Unit("jouletrace_tests.pause", "f32[4]", "")
    for times in (0, 1, 3):
        variant = step.variant({pause: times})
        pauses.clear()
        latencies = variant.latencies(5)
        assert len(pauses) == 5 * times
        assert latencies.min() >= times * PAUSE_S


def test_a_changed_iteration_is_found_by_the_check():
    sizes = [3]
    step = of(lambda: torch.ones(sizes[0]).exp())
    variant = step.variant({})
    variant.check()
    sizes[0] = 4
    variant.replay(1)
    with pytest.raises(JouletraceError, match="other shapes than before"):
        variant.check()


def test_the_cpu_is_not_paced():
    with pytest.raises(VariantRefusedError, match="the CPU") as refused:
        on_the_cpu().paced(1e-3)
    assert refused.value.reason == "no_pacing"


def test_compiled_code_is_refused_with_a_reason():
    built = ObjectWorkload(torch.exp, torch.randn(3)).build("cpu", WorkloadOptions())
    with pytest.raises(VariantRefusedError, match="--mode compile") as refused:
        make_variable_step(built, "cpu", "compile")
    assert refused.value.reason == "compiled"


def test_a_graph_on_the_cpu_is_refused():
    built = ObjectWorkload(torch.exp, torch.randn(3)).build("cpu", WorkloadOptions())
    with pytest.raises(BadInputError, match="CUDA graphs need a GPU"):
        make_variable_step(built, "cpu", "graph")


def test_every_refusal_has_a_code_with_an_explanation():
    used = set()
    for path in Path(jouletrace.steps.__file__).parent.rglob("*.py"):
        used |= set(re.findall(r'VariantRefusedError\(\s*"(\w+)"', path.read_text()))
    assert used == set(REFUSALS)


def test_closing_a_variant_frees_what_it_kept():
    step = on_the_cpu()
    variant = step.variant({step.units()[0]: 0})
    assert variant._altered.stored[0]
    variant.close()
    assert variant._altered.stored == [{}]
