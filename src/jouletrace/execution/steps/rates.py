"""The best rates that a GPU reaches: square products of random data by number format, and copies in its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import cast

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.run.forms import BestRates
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.workloads.environment import tf32_switches

SIZE = 8192
"""Rows of the matrices: on 132 SMs 15 rounds of tiles of 128 × 256, of which a partly empty last one counts little."""

COPY_BYTES = 2**30
"""Bytes that a copy reads: 20 times the cache of an H100 (50 MB)."""

SERIES_S, EACH_S = 0.02, 0.2
"""Seconds of a timed series, and of all series of a rate, of which the fastest counts: six rates take less than 2 s on
GPUs whose fp32 products of this size take 0.05 s or less."""

FORMATS = {
    "fp32": ("float32", 4, (0, 0)),
    "tf32": ("float32", 4, (8, 0)),
    "fp16": ("float16", 2, (7, 0)),
    "bf16": ("bfloat16", 2, (8, 0)),
    "fp8": ("float8_e4m3fn", 1, (8, 9)),
}
"""Torch's type of each format, its bytes, and the compute capability from which on a GPU has pipes for it."""

Timed = Callable[[int], float]
"""Runs a product or copy so many times, and returns the seconds that these took."""


def best_rates(device: Device, torch_device: str | None) -> BestRates:
    """The rates of a GPU, simulated if ``torch_device`` is None; without those that it lacks or has no memory for."""
    each = _simulated(cast(SimulatedGpu, device)) if torch_device is None else _on_gpu(torch_device)
    by_name = {name: rate for name, run in each if (rate := _best(run, 2.0 * (SIZE**3 if name else COPY_BYTES)))}
    rates: BestRates = {"device": device.info.id, "name": device.info.name}
    if "" in by_name:
        rates["bytes_per_s"] = by_name.pop("")
    return {**rates, "flops_per_s": by_name}


def _best(run: Timed, amount: float) -> float | None:
    """Amount of work a second in the fastest series; None where the GPU can't do it."""
    try:
        run(1)  # loads the library's kernel
        once_s = run(1)
        times, series = max(1, round(SERIES_S / once_s)), max(1, round(EACH_S / max(SERIES_S, once_s)))
        return amount * times / min(run(times) for _ in range(series))
    except (RuntimeError, TypeError, BadInputError):  # no memory, no such type in this version of torch, no pipes
        return None


def _simulated(device: SimulatedGpu) -> Iterator[tuple[str, Timed]]:
    """Products by format, and copies as "", on a simulated GPU."""
    board = device.board

    def run(flops: float, moved: float, dtype: str, times: int) -> float:
        start_ns, end_ns = board.run([board.roofline.kernel("rate", flops, moved, dtype)], times)
        return (end_ns - start_ns) / 1e9

    for name, (_, size, _) in FORMATS.items():
        yield name, partial(run, 2.0 * SIZE**3, 3.0 * size * SIZE**2, name)
    yield "", partial(run, 0.0, 2.0 * COPY_BYTES, "fp32")


def _on_gpu(torch_device: str) -> Iterator[tuple[str, Timed]]:
    """The same on a real one; the matrices of a product live until the next one has its own."""
    import torch

    def run(make: Callable[[], Callable[[], object]], times: int) -> float:
        call = make()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def product(dtype: str) -> Callable[[], object]:
        a, b = (torch.randn(SIZE, SIZE, device=torch_device).to(getattr(torch, dtype)) for _ in range(2))
        if a.element_size() > 1:
            return partial(torch.mm, a, b)
        unit_scale = torch.ones((), device=torch_device)
        return partial(torch._scaled_mm, a, b.t(), scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16)

    def copy() -> Callable[[], object]:
        source = torch.randint(-(2**31), 2**31 - 1, (COPY_BYTES // 4,), dtype=torch.int32, device=torch_device)
        return partial(torch.empty_like(source).copy_, source)

    with torch.cuda.device(torch_device), torch.inference_mode():
        for name, (dtype, _, least) in FORMATS.items():
            if torch.cuda.get_device_capability(torch_device) >= least and hasattr(torch, dtype):
                with tf32_switches(name == "tf32"):
                    yield name, partial(run, cache(partial(product, dtype)))
        yield "", partial(run, cache(copy))
