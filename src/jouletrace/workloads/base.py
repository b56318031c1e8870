"""The interface of a workload: a name, and a way to build it on a torch device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

    from jouletrace.workloads.generation_pieces import Generation


@dataclass
class Built:
    """A workload on a device.

    Attributes:
        call: One iteration: ``call(i)`` uses input set ``i % len(inputs)``; returns the outputs.
            Usually an ``iteration.Iteration``.
        module: The model; None for a plain callable.
        inputs: The input sets: positional and keyword arguments of each.
        facts: Contents of ``Run.workload``: name, task, batch, seq_len, dtype, parameters,
            weights ("random, seed 0"), inputs, attention implementation, library versions.
        items: Samples in an iteration, for throughput (1 for a plain callable).
        restore: Restores the user's own model after a build on a device that holds no values, where
            its tensors were replaced by tensors without values. Safe to call twice.
        generation: The pieces of an iteration that generates tokens; None for other iterations.
    """

    call: Callable[[int], Any]
    module: torch.nn.Module | None
    inputs: list[tuple[tuple[Any, ...], dict[str, Any]]]
    facts: WorkloadFacts
    items: int = 1
    restore: Callable[[], None] = lambda: None
    generation: Generation | None = None


class Workload(Protocol):
    """A workload that can be built on a torch device."""

    name: str

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """Build it on "cuda:0", "cpu" or "meta".

        Raises:
            BadInputError: If the options don't fit, or the user's code returns a wrong value.
            NotPossibleError: If a library or memory is missing.
        """
