"""Common parts of the workloads that consist of one kernel: their options and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Inputs, Iteration
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.environment import common_facts, require_device
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.nearest import nearest
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values, seeded
from jouletrace.workloads.precision import Precision, precision

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

AUTO = "auto"


def read_config(name: str, options: WorkloadOptions, defaults: Mapping[str, str]) -> dict[str, str]:
    """``--config`` of a workload without a model, merged with its defaults.

    Raises:
        BadInputError: If a key isn't one of ``defaults``, or an option makes no sense here.
    """
    check_options(name, options)
    if options.task != "infer":
        raise BadInputError(f"{name}: no task '{options.task}': it has no parameters to train")
    for option, value in (("--batch", options.batch), ("--seq-len", options.seq_len)):
        if value is not None:
            raise BadInputError(f"{option} {value}: {name} has none; it takes --config {'=..., '.join(defaults)}=...")
    return over_defaults(name, options, defaults)


def over_defaults(name: str, options: WorkloadOptions, defaults: Mapping[str, str]) -> dict[str, str]:
    """``--config`` merged with the defaults of a workload that has its own settings.

    Raises:
        BadInputError: If a key isn't one of ``defaults``; the message offers the nearest.
    """
    for key in options.config:
        if key not in defaults:
            known = f" ({', '.join(defaults)})" if defaults else ""
            raise BadInputError(f"--config {key}: {name} has no such setting{nearest(key, defaults)}{known}")
    return {**defaults, **options.config}


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

    call = target if iterations == 1 else repeated
    told: WorkloadFacts = {
        "task": "infer",
        "iterations": iterations,
        "weights": None,
        "inputs": "random",
        **common_facts(None, how, on),
        **facts,
    }
    return Built(Iteration(call, inputs, how.settings), None, inputs, told, items=iterations)


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
