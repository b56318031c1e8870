"""The phase of an iteration to which an operator call belongs."""

from __future__ import annotations

from collections.abc import Callable

from jouletrace.execution.steps.module_names import CallSite
from jouletrace.workloads.base import Built
from jouletrace.workloads.generation_pieces import BETWEEN, DECODE, PREFILL
from jouletrace.workloads.marks import DATA, OPTIMIZER

Phase = Callable[[CallSite, bool], str]
"""Maps the place of an operator call, and whether autograd makes it, to its phase."""


def phases_of(built: Built) -> Phase:
    """The function that recognises the phases of a workload."""
    return phase_of_generation if built.generation is not None else phase_of_step


def phase_of_step(site: CallSite, backward: bool) -> str:
    """Phase in an inference or a training step: "data", "forward", "backward" or "optimizer"."""
    return "backward" if backward else {DATA: "data", OPTIMIZER: "optimizer"}.get(site.module, "forward")


def phase_of_generation(site: CallSite, backward: bool) -> str:
    """Phase in an iteration that generates: the first forward is prefill, later ones are decode."""
    numbers = [int(word) for word in site.call.split(".") if word and word != "0"]
    return BETWEEN if not numbers else PREFILL if numbers[0] == 1 else DECODE
