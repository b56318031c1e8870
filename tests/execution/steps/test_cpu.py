"""Steps on the CPU, for real, and what is refused there."""

import time

import numpy as np
import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps import compile_built, make_step
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

torch = pytest.importorskip("torch")

PAUSE_S = 0.003


def build(target, inputs=(), **options):
    return ObjectWorkload(target, inputs).build("cpu", WorkloadOptions(**options))


class Counter:
    """Counts its calls; a call takes ``PAUSE_S``."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        time.sleep(PAUSE_S)


def test_a_replay_runs_n_iterations_and_says_when():
    counter = Counter()
    step = make_step(build(counter), "cpu", "eager")
    before, start = counter.calls, time.time_ns()
    interval = step.replay(7)
    assert counter.calls - before == 7
    assert start <= interval.start_ns < interval.end_ns <= time.time_ns()
    assert interval.seconds >= 7 * PAUSE_S
    assert step.mode == "cpu"


def test_latencies_are_one_a_call_and_fill_the_time():
    step = make_step(build(Counter()), "cpu", "eager")
    shares = []
    for _ in range(10):  # a busy machine may stop us anywhere, but not always between two calls
        start = time.perf_counter()
        latencies = step.latencies(20)
        shares.append(latencies.sum() / (time.perf_counter() - start))
    assert latencies.shape == (20,)
    assert latencies.dtype == np.float64
    assert latencies.min() >= PAUSE_S
    assert 0.9 <= max(shares) <= 1.0


@pytest.mark.thorough
def test_input_sets_rotate_across_replays():
    built = resolve("deit-t").build("cpu", WorkloadOptions(input_sets=3, config={"num_hidden_layers": "1"}))
    seen = []
    call = built.call
    built.call = lambda i: (seen.append(i % 3), call(i))[1]
    step = make_step(built, "cpu", "eager")
    assert seen == [0, 1, 2]  # each set is tried once
    seen.clear()
    step.replay(2)
    step.latencies(2)
    step.replay(1)
    assert seen == [0, 1, 2, 0, 1]


def test_a_step_describes_itself():
    assert make_step(build(Counter()), "cpu", "eager").describe() == {
        "mode": "cpu",
        "l2": "warm",
        "threads": torch.get_num_threads(),
        "latency": "wall time of each call",
    }


@pytest.mark.parametrize(
    ("mode", "l2", "dtype", "message"),
    [
        ("graph", "warm", None, r"--mode graph: CUDA graphs need a GPU"),
        ("eager", "cold", None, r"--l2 cold: only a GPU's L2"),
        ("eager", "warm", "tf32", r"--dtype tf32: a number format of NVIDIA GPUs"),
        ("fast", "warm", None, r"--mode fast: must be one of eager, graph, compile"),
        ("eager", "tepid", None, r"--l2 tepid: must be one of warm, cold"),
    ],
)
def test_what_a_cpu_can_not_do_is_refused(mode, l2, dtype, message):
    with pytest.raises(BadInputError, match=message):
        make_step(build(Counter(), dtype=dtype), "cpu", mode, l2=l2)


def test_steps_do_not_run_on_shapes():
    with pytest.raises(BadInputError, match=r"meta: steps run on cuda:N and cpu"):
        make_step(build(Counter()), "meta", "eager")


def test_a_workload_that_raises_says_what_and_where():
    def forward(x):
        return x @ x

    with pytest.raises(
        BadInputError, match=r"forward: its call raised RuntimeError: .*\(test_cpu.py, line \d+: return x @ x\)"
    ):
        make_step(build(forward, torch.ones(2, 3)), "cpu", "eager")


def through_functional(x):
    return torch.nn.functional.linear(x, torch.ones(2, 9))


class Nested(torch.nn.Module):
    def forward(self, x):
        return through_functional(x)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        (torch.nn.Sequential(torch.nn.Identity(), Nested()), r"test_cpu\.py, line \d+: return torch\.nn\.functional\."),
        (torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(9, 2)), r"module 1: Linear\(in_features=9, .*\)"),
    ],
)
def test_an_error_within_torch_names_the_line_of_the_user_or_the_module(model, place):
    with pytest.raises(BadInputError, match=rf"its forward raised RuntimeError: .* \({place}.*\)$"):
        make_step(build(model, torch.ones(2, 3)), "cpu", "eager")


def test_a_workload_that_takes_all_memory_is_not_possible():
    with pytest.raises(NotPossibleError, match=r"out of memory \(asked for .* GiB more\)"):
        make_step(build(lambda: torch.empty(1 << 58)), "cpu", "eager")


@pytest.mark.thorough
def test_a_compiled_workload_computes_the_same_and_says_how_it_was_compiled():
    built = resolve("deit-t").build("cpu", WorkloadOptions(input_sets=2, config={"num_hidden_layers": "1"}))
    compiled = compile_built(built, backend="eager")
    for i in range(2):
        torch.testing.assert_close(compiled.call(i).logits, built.call(i).logits)
    assert compiled.facts["compile"]["backend"] == "eager"
    assert compiled.facts["compile"]["graph_breaks"] == 0
    assert "compile" not in built.facts


@pytest.mark.thorough
def test_a_compiler_that_fails_is_not_possible_and_suggests_eager():
    def broken(graph, inputs):
        raise RuntimeError("no compiler found")

    with pytest.raises(NotPossibleError, match=r"can't be compiled: .*no compiler found.*; use --mode eager") as info:
        compile_built(build(torch.nn.Linear(4, 2), torch.ones(3, 4)), backend=broken)
    assert "\n" not in str(info.value)


@pytest.mark.thorough
def test_mode_compile_runs_on_the_cpu():
    step = make_step(build(torch.nn.Linear(4, 2), torch.ones(3, 4)), "cpu", "compile")
    assert step.mode == "compile"
    assert step.latencies(3).min() > 0
    assert step.describe()["backend"] == "inductor"
