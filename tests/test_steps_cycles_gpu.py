"""Cycle counters of a real GPU."""

import pytest

from jouletrace.steps import make_variable_step
from jouletrace.steps.base import CountsCycles
from jouletrace.steps.cuda.cycle_counter import cycle_counter
from jouletrace.workloads import WorkloadOptions, resolve

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = "cuda:0"


def test_a_gpu_counts_the_cycles_of_a_kernel_that_waits_for_so_many():
    device = torch.device(CUDA)
    counter = cycle_counter(device)
    before = counter.read()
    torch.cuda._sleep(200_000_000)
    after = counter.read()
    assert len(after.sm) == torch.cuda.get_device_properties(device).multi_processor_count
    passed = after.count[0] - before.count[0]
    assert 200_000_000 <= passed < 230_000_000
    assert 200 < after.mean_mhz(before) < 4000


def test_a_step_on_a_gpu_counts_cycles():
    step = make_variable_step(resolve("deit-t").build(CUDA, WorkloadOptions(batch=1)), CUDA, "graph")
    assert isinstance(step, CountsCycles)
    assert step.cycles() is not None
    step.close()
