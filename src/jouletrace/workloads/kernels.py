"""Workloads that consist of one kernel: products of two square matrices, and copies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Inputs, Iteration
from jouletrace.workloads.environment import DTYPES, Precision, common_facts, precision, require_device
from jouletrace.workloads.options import WorkloadOptions, check_options
from jouletrace.workloads.placement import holds_values, seeded
from jouletrace.workloads.user_code import memory_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

AUTO = "auto"


def whole(name: str, key: str, text: str) -> int:
    """A setting that is a count.

    Raises:
        BadInputError: If it isn't a whole number of 1 or more.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise BadInputError(f"--config {key}={text}: {name} needs a whole number of 1 or more")
    return int(text)


def build_kernel(
    target: Callable[..., Any],
    inputs: list[Inputs],
    how: Precision,
    on: torch.device,
    facts: WorkloadFacts,
    iterations: int,
) -> Built:
    """A workload whose iteration calls ``target`` ``iterations`` times; each call counts as one item."""

    def repeated(*args: Any, **kwargs: Any) -> Any:
        out = None
        for _ in range(iterations):
            out = target(*args, **kwargs)
        return out

    stated: WorkloadFacts = {
        "task": "infer",
        "iterations": iterations,
        "weights": None,
        "inputs": "random",
        **common_facts(None, how, on),
        **facts,
    }
    call = Iteration(target if iterations == 1 else repeated, inputs, how.settings)
    return Built(call, None, inputs, stated, items=iterations)


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
        dtypes = DTYPES if self.own_dtype is None else (self.own_dtype,)
        settings = {"size": "", "iterations": "1"}
        config = check_options(self.name, options, takes=["input_sets"], dtypes=dtypes, config=settings)
        on = require_device(device)
        iterations = whole(self.name, "iterations", config["iterations"])
        how = precision(self.own_dtype or options.dtype or ("fp16" if on.type == "cuda" else "fp32"), device)
        asked = config["size"]
        tried = rates(on, how, options.seed) if asked == AUTO and holds_values(on) else {}
        if tried:
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


def rates(on: torch.device, how: Precision, seed: int) -> dict[int, float]:
    """FLOP/s of products by size, best of three; sizes that don't fit into memory are left out.

    Raises:
        NotPossibleError: If even the smallest doesn't fit.
    """
    import torch

    by_size: dict[int, float] = {}
    cpu = on.type == "cpu"
    for size in _TRIED_CPU if cpu else _TRIED:
        try:
            with memory_guard(f"gemm, size {size} on {on}"), seeded(seed, on), how.settings():
                a, b = _matrices(on, how.weights, size)
                seconds = min(_seconds(a, b, _TRY_CPU_S if cpu else _TRY_S) for _ in range(3))
        except NotPossibleError:
            if not by_size:
                raise
            break
        by_size[size] = 2.0 * size**3 / seconds
        del a, b
        if not cpu:
            torch.cuda.empty_cache()
    return by_size


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


DIRECTIONS = ("d2d", "h2d", "d2h")
_MIB = 1 << 20


class Memcpy:
    """Copies of a buffer of random bytes.

    Its settings (``--config``): ``size`` (MiB, 256 by default), ``iterations`` and ``direction`` ("d2d", within
    the device; "h2d" and "d2h", from and to pinned memory of the host).

    Attributes:
        name: "memcpy".
        own_dtype: Nominal only: the bytes are those of single-precision numbers.
    """

    name = "memcpy"
    own_dtype = "fp32"

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        settings = {"size": "256", "iterations": "1", "direction": "d2d"}
        config = check_options(self.name, options, takes=["input_sets"], config=settings)
        direction = config["direction"]
        if direction not in DIRECTIONS:
            raise BadInputError(f"--config direction={direction}: must be one of {', '.join(DIRECTIONS)}")
        on = require_device(device)
        if direction != "d2d" and on.type != "cuda":
            raise BadInputError(
                f"--config direction={direction}: only GPUs have memory separate from the host's; use d2d"
            )
        size, iterations = (whole(self.name, key, config[key]) for key in ("size", "iterations"))
        with memory_guard(f"memcpy, {size} MiB on {device}"), seeded(options.seed, on):
            inputs: list[Inputs] = [(_buffers(on, size * _MIB // 4, direction), {}) for _ in range(options.input_sets)]
        bytes_moved = 2 * size * _MIB * iterations if direction == "d2d" else size * _MIB * iterations
        facts: WorkloadFacts = {"name": self.name, "size_mib": size, "direction": direction, "bytes_moved": bytes_moved}
        how = precision(None, device)
        return build_kernel(_copy, inputs, how, on, facts, iterations)


def _copy(target: torch.Tensor, source: torch.Tensor) -> Any:
    return target.copy_(source, non_blocking=True)


def _buffers(on: torch.device, words: int, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and source; random, since the power of a copy depends on its data."""
    import torch

    source = torch.randn(words, device=on)
    target = torch.empty_like(source)
    if direction != "d2d" and holds_values(on):
        host = torch.empty(words, pin_memory=True)
        host.copy_(source)
        return (target, host) if direction == "h2d" else (host, source)
    return target, source
