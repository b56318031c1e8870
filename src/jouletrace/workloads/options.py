"""Options of a workload."""

from __future__ import annotations

from dataclasses import dataclass, field

TASKS = ("infer", "train", "generate")
"""Tasks of a workload."""


@dataclass(frozen=True)
class WorkloadOptions:
    """How to build a workload; None means the workload's default.

    Attributes:
        task: "infer", "train" or "generate".
        batch: Samples per iteration.
        seq_len: Tokens per sample, for language models.
        dtype: "fp32" (IEEE), "tf32", "fp16", "bf16", "fp64" or "amp". None means fp16 on CUDA and
            fp32 elsewhere for built-in models, and unchanged types for objects of the user's code.
        seed: Seed of random weights and inputs.
        input_sets: Number of distinct random inputs, used in rotation.
        config: Overrides of the model's configuration, by key.
        optimizer: "adamw" or "sgd", for a training step.
        label_smoothing: Label smoothing of the training step's cross entropy.
        data: Folder of training images; None for random ones.
        max_new_tokens: Tokens to generate per sample.
        random: Draw random weights and ignore those in the files.
        own_loop: Generate by our own loop with this kind of cache ("dynamic" or "static"), which reads no value from
            the device. None for transformers' ``generate``.
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
    random: bool = False
    own_loop: str | None = None
