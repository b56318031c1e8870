"""Checks of the options that every workload shares."""

from __future__ import annotations

from jouletrace.errors import BadInputError
from jouletrace.workloads.base import WorkloadOptions
from jouletrace.workloads.generation import check_generation
from jouletrace.workloads.training import check_training

TASKS = ("infer", "train", "generate")
"""What can be done with a workload."""


def check_options(name: str, options: WorkloadOptions) -> None:
    """Refuse options that make no sense for any workload.

    Raises:
        BadInputError: Naming the option and what it may be.
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
