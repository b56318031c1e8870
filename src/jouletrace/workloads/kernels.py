"""Common parts of the workloads that consist of one kernel: their options and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.facts import common_facts
from jouletrace.workloads.iteration import Inputs, Iteration
from jouletrace.workloads.nearest import nearest
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.precision import Precision

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
