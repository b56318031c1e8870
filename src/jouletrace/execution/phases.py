"""Which phase of an iteration an operator call belongs to."""

from __future__ import annotations

from collections.abc import Callable

from jouletrace.execution.steps.module_names import CallSite
from jouletrace.workloads.base import Built
from jouletrace.workloads.generation_pieces import BETWEEN, DECODE, PREFILL
from jouletrace.workloads.marks import DATA, OPTIMIZER

Phase = Callable[[CallSite, bool], str]
"""By where an operator is called, and whether autograd calls it."""


def phases_of(built: Built) -> Phase:
    """How phases of a workload are recognised."""
    return phase_of_generation if built.generation is not None else phase_of_step


def phase_of_step(site: CallSite, backward: bool) -> str:
    """Of an inference or a training step: "data", "forward", "backward" or "optimizer"."""
    return "backward" if backward else {DATA: "data", OPTIMIZER: "optimizer"}.get(site.module, "forward")


def phase_of_generation(site: CallSite, backward: bool) -> str:
    """Of an iteration that generates: the first forward is prefill, those after it decode."""
    numbers = [int(word) for word in site.call.split(".") if word and word != "0"]
    return BETWEEN if not numbers else PREFILL if numbers[0] == 1 else DECODE
