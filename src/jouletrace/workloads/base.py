"""What a workload is: a name, what it needs, and a way to build it on a torch device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from jouletrace.workloads.generation import Generation


@dataclass(frozen=True)
class WorkloadOptions:
    """How a workload is to be built; None means the workload's own default.

    Attributes:
        task: "infer", "train" or "generate".
        batch: Samples per iteration.
        seq_len: Tokens per sample, for models of language.
        dtype: "fp32" (IEEE), "tf32", "fp16", "bf16", "fp64" or "amp". None means fp16 on CUDA and
            fp32 elsewhere for models made here, and "as it is" for what the user's code made.
        seed: Seed of random weights and inputs.
        input_sets: Distinct random inputs to rotate among.
        config: Overrides of the model's configuration, by key.
        optimizer: "adamw" or "sgd"; of a training step.
        label_smoothing: Of its cross entropy.
        data: Folder of images that it is trained on; None for random ones.
        max_new_tokens: Tokens to generate for each sample.
        early_stop: Whether a sample may end before it has them, at a token that ends a sequence.
        random: Draw random weights, and leave those in the files alone.
        own_loop: Generate by a loop of our own with this kind of cache ("dynamic" or "static"): where nothing may
            look at what the device computes. None for transformers' ``generate``.
    """

    task: str = "infer"
    batch: int | None = None
    seq_len: int | None = None
    dtype: str | None = None
    seed: int = 0
    input_sets: int = 1
    config: dict[str, str] = field(default_factory=dict)
    optimizer: str = "adamw"
    label_smoothing: float = 0.0
    data: str | None = None
    max_new_tokens: int | None = None
    early_stop: bool = False
    random: bool = False
    own_loop: str | None = None


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
    facts: dict[str, Any]
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
