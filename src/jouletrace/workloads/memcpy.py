"""A copy of memory: within the device, or to and from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.iteration import Inputs
from jouletrace.workloads.kernels import build_kernel, read_config, whole
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values
from jouletrace.workloads.precision import precision
from jouletrace.workloads.random_weights import seeded

if TYPE_CHECKING:
    import torch

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
        config = read_config(self.name, options, {"size": "256", "iterations": "1", "direction": "d2d"})
        if options.dtype not in (None, self.own_dtype):
            raise BadInputError(f"--dtype {options.dtype}: memcpy copies bytes of no particular type")
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
        return build_kernel(copy, inputs, how, on, facts, iterations)


def copy(target: torch.Tensor, source: torch.Tensor) -> Any:
    """Enqueue one copy."""
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
