"""Options of a workload, and what every workload refuses of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from jouletrace.errors import BadInputError, nearest

TASKS = ("infer", "train", "generate")
OPTIMIZERS = ("adamw", "sgd")

NEW_TOKENS, PROMPT = 64, 128
"""Tokens to generate by default, and the largest default number of tokens of a prompt."""


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


_OF_ANY = {"task", "dtype", "seed", "config", "random", "own_loop"}
"""Options that ``check_options`` checks singly, or that change nothing in a workload without them."""


def check_options(
    name: str,
    options: WorkloadOptions,
    *,
    takes: Collection[str] = (),
    tasks: Collection[str] = ("infer",),
    dtypes: Collection[str] = ("fp32",),
    config: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Refuse every option that a workload with code of its own doesn't name; returns ``--config`` with its defaults.

    Args:
        name: Of the workload.
        options: As given.
        takes: Names of the other options that it has ("batch").
        tasks: Its tasks.
        dtypes: Its number formats. Where it has only one, its class states that as ``own_dtype`` too.
        config: Its settings (``--config``) and their defaults.

    Raises:
        BadInputError: With the option.
    """
    check_consistent(name, options)
    if options.task not in tasks:
        raise BadInputError(f"{name}: no task '{options.task}': {', '.join(tasks)} only")
    if options.dtype not in (None, *dtypes):
        raise BadInputError(f"--dtype {options.dtype}: {name} has {', '.join(dtypes)} only")
    usual = WorkloadOptions()
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name not in _OF_ANY | {*takes} and value != getattr(usual, option.name):
            settings = f"; it takes --config {'=..., '.join(config)}=..." if config else ""
            raise BadInputError(f"--{option.name.replace('_', '-')} {value}: {name} has none{settings}")
    return over_defaults(name, options, config or {})


def over_defaults(name: str, options: WorkloadOptions, defaults: Mapping[str, str]) -> dict[str, str]:
    """``--config`` merged with the defaults of a workload that has its own settings.

    Raises:
        BadInputError: If a key isn't one of ``defaults``; the message offers the nearest.
    """
    for key in options.config:
        if key not in defaults:
            names = f" ({', '.join(defaults)})" if defaults else ""
            raise BadInputError(f"--config {key}: {name} has no such setting{nearest(key, defaults)}{names}")
    return {**defaults, **options.config}


def check_consistent(name: str, options: WorkloadOptions) -> None:
    """Refuse options that make no sense for any workload, or that belong to another task.

    Raises:
        BadInputError: With the option and its permitted values.
    """
    task = options.task
    if task not in TASKS:
        raise BadInputError(f"{name}: no task '{task}': {', '.join(TASKS)}")
    check_loss_and_optimizer(options.label_smoothing, options.optimizer)
    if task != "train" and options.data is not None:
        raise BadInputError(f"{name}: --data is for --task train")
    if task != "train" and (options.label_smoothing or options.optimizer != "adamw"):
        raise BadInputError(f"{name}: --optimizer and --label-smoothing are for --task train")
    if task != "generate" and options.max_new_tokens is not None:
        raise BadInputError(f"{name}: --max-new-tokens is for --task generate")
    if task == "generate" and options.max_new_tokens is not None and options.max_new_tokens < 1:
        raise BadInputError(f"--max-new-tokens {options.max_new_tokens}: must be at least 1")
    if task == "generate" and options.input_sets != 1:
        raise BadInputError(f"--input-sets {options.input_sets}: --task generate takes one prompt")
    for option, value in (
        ("--batch", options.batch),
        ("--seq-len", options.seq_len),
        ("--input-sets", options.input_sets),
    ):
        if value is not None and value < 1:
            raise BadInputError(f"{option} {value}: must be at least 1")
    check_seed(options.seed)


def check_loss_and_optimizer(label_smoothing: float, optimizer: str) -> None:
    """Refuse values with which no training step can be built.

    Raises:
        BadInputError: With the option and its permitted values.
    """
    if optimizer not in OPTIMIZERS:
        raise BadInputError(f"--optimizer {optimizer}: must be one of {', '.join(OPTIMIZERS)}")
    if not 0 <= label_smoothing < 1:  # refuses NaN too
        raise BadInputError(f"--label-smoothing {label_smoothing:g}: must be at least 0 and less than 1")


def check_seed(seed: int) -> None:
    """Refuse a seed that torch or numpy doesn't accept.

    Raises:
        BadInputError: With the permitted range.
    """
    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: must lie between 0 and {2**63 - 1}")
