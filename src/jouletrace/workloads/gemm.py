"""A product of two square matrices of random numbers: the base load of studies that compare GPUs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Inputs
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.kernels import AUTO, build_kernel, read_config, whole
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values, seeded
from jouletrace.workloads.precision import precision

if TYPE_CHECKING:
    import torch

GEMMS: dict[str, str | None] = {"gemm": None, "sgemm": "fp32", "dgemm": "fp64"}
"""Names as in BLAS, and the dtype of each; None where ``--dtype`` decides."""

SIZE, SIZE_CPU = 8192, 512
"""Rows and columns by default."""

_TRIED, _TRIED_CPU = (1024, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 16384), (128, 256, 384, 512, 768, 1024)
_GOOD_ENOUGH = 0.99
_TRY_S, _TRY_CPU_S = 0.2, 0.03


class Gemm:
    """``C = A B``, computed ``iterations`` times in each iteration of the profile.

    Its settings (``--config``): ``size`` (rows and columns, or "auto" for the smallest size that reaches the
    best rate of operations on this device) and ``iterations``.

    Attributes:
        name: "gemm", "sgemm" or "dgemm".
        own_dtype: The number format of that name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.own_dtype = GEMMS[name]

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        config = read_config(self.name, options, {"size": "", "iterations": "1"})
        if self.own_dtype is not None and options.dtype not in (None, self.own_dtype):
            raise BadInputError(f"--dtype {options.dtype}: {self.name} is {self.own_dtype}; use gemm")
        on = require_device(device)
        iterations = whole(self.name, "iterations", config["iterations"])
        how = precision(self.own_dtype or options.dtype or ("fp16" if on.type == "cuda" else "fp32"), device)
        tried: dict[int, float] = {}
        asked = config["size"]
        if asked == AUTO and holds_values(on):
            tried = rates(on, how.name or "fp32", options.seed)
            size = best_size(tried)
        elif asked in ("", AUTO):  # tensors without values can't be timed
            size = SIZE_CPU if on.type == "cpu" and holds_values(on) else SIZE
        else:
            size = whole(self.name, "size", asked)
        import torch

        with memory_guard(f"{self.name}, size {size} on {device}"), seeded(options.seed, on):
            inputs: list[Inputs] = [(_matrices(on, how.weights, size), {}) for _ in range(options.input_sets)]
        facts: WorkloadFacts = {"name": self.name, "size": size, "flops": 2.0 * size**3 * iterations}
        if tried:
            facts["size_tried"] = {str(n): rate for n, rate in tried.items()}  # FLOP/s
        return build_kernel(torch.mm, inputs, how, on, facts, iterations)


def rates(on: torch.device, dtype: str, seed: int) -> dict[int, float]:
    """FLOP/s of products by size, best of three; sizes that don't fit into memory are left out.

    Raises:
        NotPossibleError: If even the smallest doesn't fit.
    """
    import torch

    from jouletrace.errors import NotPossibleError

    how = precision(dtype, str(on))
    found: dict[int, float] = {}
    cpu = on.type == "cpu"
    for size in _TRIED_CPU if cpu else _TRIED:
        try:
            with memory_guard(f"gemm, size {size} on {on}"), seeded(seed, on), how.settings():
                a, b = _matrices(on, how.weights, size)
                seconds = min(_seconds(a, b, _TRY_CPU_S if cpu else _TRY_S) for _ in range(3))
        except NotPossibleError:
            if not found:
                raise
            break
        found[size] = 2.0 * size**3 / seconds
        del a, b
        if not cpu:
            torch.cuda.empty_cache()
    return found


def best_size(tried: dict[int, float]) -> int:
    """The smallest size that nearly reaches the best rate; larger ones only take longer."""
    most = max(tried.values())
    return next(size for size in sorted(tried) if tried[size] >= _GOOD_ENOUGH * most)


def _matrices(on: torch.device, dtype: torch.dtype | None, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices of standard normal numbers, the second scaled so that products stay in range in half precision."""
    import torch

    a = torch.randn(size, size, device=on, dtype=torch.float32).to(dtype)
    b = (torch.randn(size, size, device=on, dtype=torch.float32) / size**0.5).to(dtype)
    return a, b


def _seconds(a: torch.Tensor, b: torch.Tensor, least_s: float) -> float:
    """Seconds of a product, run back to back for about ``least_s``."""
    import torch

    def wait() -> None:
        if a.is_cuda:
            torch.cuda.synchronize(a.device)

    torch.mm(a, b)
    wait()
    n = 0
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < least_s or n == 0:
        for _ in range(4):
            torch.mm(a, b)
        n += 4
        wait()
    return seconds / n
