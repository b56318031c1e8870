"""Checks of the options that every workload shares."""

from __future__ import annotations

from jouletrace.errors import BadInputError
from jouletrace.workloads.generation import check_generation
from jouletrace.workloads.options import TASKS, WorkloadOptions
from jouletrace.workloads.training import check_training


def check_options(name: str, options: WorkloadOptions) -> None:
    """Refuse options that make no sense for any workload.

    Raises:
        BadInputError: With the option and its permitted values.
    """
    if options.task not in TASKS:
        raise BadInputError(f"{name}: no task '{options.task}': {', '.join(TASKS)}")
    check_training(name, options)
    check_generation(name, options)
    for option, value in (
        ("--batch", options.batch),
        ("--seq-len", options.seq_len),
        ("--input-sets", options.input_sets),
    ):
        if value is not None and value < 1:
            raise BadInputError(f"{option} {value}: must be at least 1")
    check_seed(options.seed)


def check_seed(seed: int) -> None:
    """Refuse a seed that torch or numpy doesn't accept.

    Raises:
        BadInputError: With the permitted range.
    """
    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: must lie between 0 and {2**63 - 1}")
