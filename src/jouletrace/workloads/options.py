"""How a workload is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

TASKS = ("infer", "train", "generate")
"""What can be done with a workload."""


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
