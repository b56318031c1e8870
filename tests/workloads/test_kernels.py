"""Workloads that are one kernel: products, copies, sums over processes."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.execution.steps import simulate_workload
from jouletrace.workloads import WorkloadOptions, resolve
from jouletrace.workloads.kernels import best_size

torch = pytest.importorskip("torch")


def options(**config):
    dtype = config.pop("dtype", None)
    return WorkloadOptions(dtype=dtype, config={key: str(value) for key, value in config.items()})


def test_a_gemm_is_the_product_of_its_two_matrices():
    built = resolve("gemm").build("cpu", options(size=64))
    (a, b), _ = built.inputs[0]
    assert torch.equal(built.call(0), a @ b)
    assert built.facts["flops"] == 2 * 64**3
    assert built.facts["dtype"] == "fp32"
    assert 0.5 < float(built.call(0).std()) < 1.5, "neither zeros nor beyond half precision"


def test_iterations_count_each_product_as_an_item():
    built = resolve("gemm").build("cpu", options(size=32, iterations=5))
    assert (built.items, built.facts["flops"]) == (5, 5 * 2 * 32**3)


@pytest.mark.parametrize(("name", "dtype"), [("sgemm", torch.float32), ("dgemm", torch.float64)])
def test_sgemm_and_dgemm_are_what_blas_calls_so(name, dtype):
    built = resolve(name).build("cpu", options(size=16))
    assert built.call(0).dtype == dtype
    assert built.facts["torch_flags"]["matmul_tf32"] is False, "IEEE single precision"
    with pytest.raises(BadInputError, match=f"{name} has fp.. only"):
        resolve(name).build("cpu", options(size=16, dtype="fp16"))


@pytest.mark.thorough
def test_auto_takes_the_smallest_size_that_all_but_reaches_the_best_rate():
    assert best_size({1024: 300.0, 2048: 690.0, 4096: 796.0, 8192: 800.0, 16384: 799.0}) == 4096
    built = resolve("gemm").build("cpu", options(size="auto"))
    assert str(built.facts["size"]) in built.facts["size_tried"]


def test_a_copy_copies_and_says_what_it_moves():
    built = resolve("memcpy").build("cpu", options(size=1))
    (target, source), _ = built.inputs[0]
    built.call(0)
    assert torch.equal(target, source)
    assert source.std() > 0.5
    assert built.facts["bytes_moved"] == 2 * 2**20


@pytest.mark.parametrize(
    ("name", "config", "complaint"),
    [
        ("gemm", {"size": "0"}, "--config size=0: gemm needs a whole number"),
        ("gemm", {"sise": "8"}, "no such setting; did you mean 'size'"),
        ("memcpy", {"direction": "up"}, "must be one of d2d, h2d, d2h"),
        ("memcpy", {"direction": "h2d"}, "only GPUs have memory separate from the host's"),
        ("memcpy", {"size": "x"}, "memcpy needs a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_a_line(name, config, complaint):
    with pytest.raises(BadInputError, match=r"^.*$") as caught:
        resolve(name).build("cpu", options(**config))
    assert complaint in str(caught.value)


def test_options_without_a_meaning_here_are_refused():
    with pytest.raises(BadInputError, match="--batch 4: gemm has none"):
        resolve("gemm").build("cpu", WorkloadOptions(batch=4))
    with pytest.raises(BadInputError, match="memcpy: no task 'train': infer only"):
        resolve("memcpy").build("cpu", WorkloadOptions(task="train"))
    for name in ("gemm", "memcpy"):
        with pytest.raises(BadInputError, match=f"{name}: --optimizer and --label-smoothing are for --task train"):
            resolve(name).build("cpu", WorkloadOptions(label_smoothing=0.1))
        with pytest.raises(BadInputError, match=f"{name}: --data is for --task train"):
            resolve(name).build("cpu", WorkloadOptions(data="images"))


@pytest.mark.thorough
def test_on_a_simulated_gpu_a_gemm_is_one_kernel_of_its_own_dtype():
    from jouletrace.devices import open_device

    device = open_device("sim:h100")
    try:
        for name, dtype in (("gemm", "fp16"), ("sgemm", "fp32"), ("dgemm", "fp64")):
            built, step = simulate_workload(resolve(name), options(size=4096), device, "graph")
            assert [kernel.flops for kernel in step.schedule.kernels] == [2 * 4096**3]
            assert (built.facts["dtype"], step.schedule.kernels[0].name) == (dtype, f"mm_{dtype}")
        _, step = simulate_workload(resolve("memcpy"), options(size=64), device, "graph")
        assert [kernel.bytes_moved for kernel in step.schedule.kernels] == [2 * 64 * 2**20]
    finally:
        device.close()
