"""Sums over all GPUs of a fleet: every process holds a buffer and ends with the sum of all buffers.

The environment names the group as for ``torchrun`` (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``);
``fleet run --together`` sets these variables for its processes. A single process forms a group of one.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.kernels import build_kernel, read_config, whole
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values
from jouletrace.workloads.precision import precision
from jouletrace.workloads.random_weights import seeded

if TYPE_CHECKING:
    import torch

_MIB = 1 << 20
_WAIT = timedelta(seconds=120)


class AllReduce:
    """``torch.distributed.all_reduce`` of a buffer of random numbers, by NCCL on GPUs and gloo on CPUs.

    Its settings (``--config``): ``size`` (MiB, 256 by default) and ``iterations``.

    Attributes:
        name: "allreduce".
        own_dtype: Number format of the buffer.
    """

    name = "allreduce"
    own_dtype = "fp32"

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``; waits until all processes have joined."""
        config = read_config(self.name, options, {"size": "256", "iterations": "1"})
        size, iterations = (whole(self.name, key, config[key]) for key in ("size", "iterations"))
        on = require_device(device)
        if not holds_values(on):
            raise NotPossibleError("allreduce: simulated GPUs have no links to one another")
        how = precision(options.dtype or self.own_dtype, device)
        ranks = join(on)
        with memory_guard(f"allreduce, {size} MiB on {device}"), seeded(options.seed, on):
            import torch

            words = size * _MIB // torch.empty(0, dtype=how.weights).element_size()
            buffer = torch.randn(words, device=on).to(how.weights)
        facts: WorkloadFacts = {"name": self.name, "size_mib": size, "ranks": ranks, "dtype": how.name}
        return build_kernel(averaged, [((buffer,), {})], how, on, facts, iterations)


def averaged(buffer: torch.Tensor) -> Any:
    """Sum over all processes and divide by their number, so that repetitions keep the magnitude of the numbers."""
    import torch.distributed as dist

    dist.all_reduce(buffer)
    return buffer.div_(dist.get_world_size())


def join(on: torch.device) -> int:
    """Join the group of processes that the environment names; returns their number.

    Raises:
        BadInputError: If some of the variables are missing.
        NotPossibleError: If torch lacks the backend, or not all processes join in time.
    """
    import torch.distributed

    dist: Any = torch.distributed  # partly unexported
    if not dist.is_available():
        raise NotPossibleError("allreduce: this torch is built without torch.distributed")
    if dist.is_initialized():
        return int(dist.get_world_size())
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in os.environ]
    if 0 < len(missing) < len(names):
        raise BadInputError(f"allreduce: {', '.join(missing)} is not set, but others of {', '.join(names)} are")
    backend = "nccl" if on.type == "cuda" else "gloo"
    try:
        if missing:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        else:
            dist.init_process_group(backend, timeout=_WAIT)
    except (RuntimeError, ValueError) as error:
        raise NotPossibleError(
            f"allreduce: the processes could not form a group: {str(error).splitlines()[0]}"
        ) from None
    return int(dist.get_world_size())
