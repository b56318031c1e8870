"""Steps on a real GPU."""

import numpy as np
import pytest

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps import CaptureError, check_outputs, compile_built, make_step
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, names, resolve

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = "cuda:0"


def build(spec="deit-t", **options):
    return resolve(spec).build(CUDA, WorkloadOptions(**options))


SETTINGS = {
    "resnet50": {}, "swin-tiny": {}, "dlrm": {},
    "gemm": {"size": "256"}, "sgemm": {"size": "256"}, "dgemm": {"size": "256"},
}  # fmt: skip
"""Of workloads that don't take a number of layers, so that they are small."""


def short(name):
    return SETTINGS.get(name, {"num_hidden_layers": "2"})


def first(outputs):
    return getattr(outputs, "logits", outputs)


def test_a_model_that_reads_from_the_host_is_refused_with_the_line():
    built = build("mpnet", config=short("mpnet"))
    with pytest.raises(CaptureError, match=r"modeling_mpnet.py, line \d+: .*use --mode eager"):
        make_step(built, CUDA, "graph")


ELSEWHERE = ("mpnet", "memcpy")
"""Tested by themselves: one can't be captured, one writes over what it is given."""


@pytest.mark.parametrize("name", [name for name in names() if name not in ELSEWHERE])
def test_a_graph_computes_what_eager_does(name):
    built = build(name, config=short(name), input_sets=2)
    assert check_outputs(built) == []
    step = make_step(built, CUDA, "graph")
    for i in range(3):
        step.replay(1)
        torch.testing.assert_close(first(step._outputs[i % 2]), first(built.call(i)), rtol=2e-2, atol=2e-3)
    step.close()


@pytest.mark.parametrize("direction", ["d2d", "h2d", "d2h"])
def test_a_captured_copy_copies_what_is_there_now(direction):
    built = build("memcpy", config={"size": "1", "direction": direction})
    step = make_step(built, CUDA, "graph")
    (target, source), _ = built.inputs[0]
    source.normal_()
    assert not torch.equal(target.cpu(), source.cpu())
    step.replay(1)
    assert torch.equal(target.cpu(), source.cpu())
    step.close()


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp64", "amp"])
def test_every_dtype_runs_in_a_graph(dtype):
    step = make_step(build(dtype=dtype, config={"num_hidden_layers": "2"}), CUDA, "graph")
    step.replay(2)
    assert torch.isfinite(step._outputs[0].logits).all()


def test_ieee_and_tf32_products_differ_and_ieee_is_exact():
    torch.manual_seed(0)
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    exact = (a.double() @ b.double()).float()
    errors = {}
    for dtype in ("fp32", "tf32"):
        built = ObjectWorkload(torch.matmul, (a, b)).build(CUDA, WorkloadOptions(dtype=dtype))
        errors[dtype] = float((built.call(0).cpu() - exact).abs().max())
    assert errors["fp32"] < 1e-3 < errors["tf32"]


@pytest.mark.parametrize(("mode", "batch"), [("graph", 1), ("graph", 64), ("eager", 64)])
def test_latencies_and_replay_agree(mode, batch):
    step = make_step(build("deit-b", batch=batch), CUDA, mode)
    n = 400 if batch == 1 else 100
    step.replay(n)
    per_iteration = step.replay(n).seconds / n
    assert step.latencies(n).mean() == pytest.approx(per_iteration, rel=0.05)


def test_a_graph_is_faster_than_eager_at_batch_one():
    built = build("deit-b", batch=1)
    graph, eager = make_step(built, CUDA, "graph"), make_step(built, CUDA, "eager")
    for step in (graph, eager):
        step.replay(50)
    assert np.median(graph.latencies(200)) < 0.7 * np.median(eager.latencies(200))


def test_reading_what_the_l2_could_hold_is_slower_cold_than_warm():
    built = ObjectWorkload(torch.sum, torch.randn(6 << 20)).build(CUDA, WorkloadOptions())  # 24 MiB
    warm, cold = make_step(built, CUDA, "graph"), make_step(built, CUDA, "graph", l2="cold")
    for step in (warm, cold):
        step.replay(200)
    assert np.median(cold.latencies(300)) > 1.1 * np.median(warm.latencies(300))


def test_the_flushes_can_be_taken_off_a_cold_replay():
    cold = make_step(build("deit-t", batch=1), CUDA, "graph", l2="cold")
    cold.replay(200)
    cold_s = np.median(cold.latencies(300))
    both, flushes = cold.replay(300).seconds, cold.flush_only().replay(300).seconds
    assert (both - flushes) / 300 == pytest.approx(cold_s, rel=0.1)


def test_a_model_that_waits_for_the_host_can_not_be_captured_and_says_where():
    def forward(x):
        return x + 1 if x.sum().item() > 0 else x

    built = ObjectWorkload(forward, torch.randn(8)).build(CUDA, WorkloadOptions())
    with pytest.raises(CaptureError, match=r"test_gpu\.py, line \d+: return x \+ 1 if .*use --mode eager") as info:
        make_step(built, CUDA, "graph")
    assert "aten.item" in str(info.value)
    assert "\n" not in str(info.value)
    # What comes after a failed capture still works, eager and captured, on the stream as it was.
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert make_step(built, CUDA, "eager").replay(3).seconds > 0
    other = make_step(build(config={"num_hidden_layers": "1"}), CUDA, "graph")
    assert other.replay(3).seconds > 0


def test_no_memory_left_is_not_possible():
    with pytest.raises(NotPossibleError, match=r"deit-base, batch 1000000 on cuda:0: out of memory \(asked for"):
        build("deit-b", batch=1_000_000)


def test_a_gpu_beyond_the_last_is_not_possible():
    with pytest.raises(NotPossibleError, match=r"cuda:99: torch sees \d+ GPU"):
        resolve("deit-t").build("cuda:99", WorkloadOptions())


def test_a_compiled_model_runs_and_computes_the_same():
    built = build(config={"num_hidden_layers": "2"}, input_sets=2)
    compiled = compile_built(built, torch.device(CUDA))
    torch.testing.assert_close(compiled.call(1).logits, built.call(1).logits, rtol=2e-2, atol=5e-3)
    step = make_step(built, CUDA, "compile")
    assert step.mode == "compile"
    assert step.latencies(10).min() > 0
    assert step.describe()["backend"] == "inductor"
