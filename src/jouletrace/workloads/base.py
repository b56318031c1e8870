"""What a workload is: a name, what it needs, and a way to build it on a torch device."""

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
        module: The model, where there is one.
        inputs: The input sets: positional and keyword arguments of each.
        facts: What goes into ``Run.workload``: name, task, batch, seq_len, dtype, parameters,
            weights ("random, seed 0"), inputs, attention implementation, library versions.
        items: Samples in an iteration, for throughput (1 for a plain callable).
        restore: Puts a model that the user had before back as it was, where the device holds no
            values: there it was given tensors without any. Safe to call twice.
        generation: What an iteration that generates tokens is made of; None of others.
    """

    call: Callable[[int], Any]
    module: torch.nn.Module | None
    inputs: list[tuple[tuple[Any, ...], dict[str, Any]]]
    facts: WorkloadFacts
    items: int = 1
    restore: Callable[[], None] = lambda: None
    generation: Generation | None = None


class Workload(Protocol):
    """Something that can be built on a torch device."""

    name: str

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """Make it ready on "cuda:0", "cpu" or "meta".

        Raises:
            BadInputError: If the options don't fit, or the user's code returns the wrong thing.
            NotPossibleError: If a library or memory is missing.
        """
