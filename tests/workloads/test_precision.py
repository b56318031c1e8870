"""Each dtype sets torch's switches, and they come back."""

import pytest

from jouletrace.errors import NotPossibleError
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, memory_guard

torch = pytest.importorskip("torch")


def switches():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture(params=[(False, True), (True, False)])
def outside(request):
    """The user's own settings, put back afterwards."""
    before = switches()
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = request.param
    yield request.param
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    ("dtype", "inside"), [("fp32", (False, False)), ("tf32", (True, True)), ("amp", (False, False)), (None, None)]
)
def test_switches_hold_inside_an_iteration_only(outside, dtype, inside):
    built = ObjectWorkload(switches).build("cpu", WorkloadOptions(dtype=dtype))
    assert built.call(0) == (inside or outside)
    assert switches() == outside
    flags = built.facts["torch_flags"]
    assert (flags["matmul_tf32"], flags["cudnn_tf32"]) == (inside or outside)


def test_switches_come_back_when_an_iteration_raises(outside):
    def fail():
        raise ValueError("halfway")

    built = ObjectWorkload(fail).build("cpu", WorkloadOptions(dtype="tf32"))
    with pytest.raises(ValueError, match="halfway"):
        built.call(0)
    assert switches() == outside
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
            "1.25 GiB is free. Process 1 has ...",
            "x: out of memory (asked for 2.00 GiB more, 1.25 GiB free); try a smaller --batch",
        ),
        (
            "[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "17179869184 bytes. Error code 12",
            "x: out of memory (asked for 16.00 GiB more); try a smaller --batch",
        ),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "x: out of memory; try a smaller --batch"),
    ],
)
def test_allocators_messages_become_one_line(text, said):
    with pytest.raises(NotPossibleError) as info, memory_guard("x"):
        raise RuntimeError(text)
    assert str(info.value) == said


def test_other_errors_pass_the_memory_guard_as_they_are():
    with pytest.raises(RuntimeError, match="shape mismatch"), memory_guard("x"):
        raise RuntimeError("shape mismatch")
