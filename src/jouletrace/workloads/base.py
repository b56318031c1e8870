"""The interface of a workload: a name, and a way to build it on a torch device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

Call = Callable[[int], Any]


@dataclass
class Built:
    """A workload on a device.

    Attributes:
        call: One iteration: ``call(i)`` uses input set ``i % len(inputs)``; returns the outputs.
            Usually an ``Iteration``.
        module: The model; None for a plain callable.
        inputs: The input sets: positional and keyword arguments of each.
        facts: Contents of ``Run.workload``: name, task, batch, seq_len, dtype, parameters,
            weights ("random, seed 0"), inputs, attention implementation, library versions.
        items: Samples in an iteration, for throughput (1 for a plain callable).
        restore: Restores the user's own model after a build on a device that holds no values, where
            its tensors were replaced by tensors without values. Safe to call twice.
        generation: Makes the call of an iteration that generates so many tokens; None for other iterations.
    """

    call: Call
    module: torch.nn.Module | None
    inputs: list[tuple[tuple[Any, ...], dict[str, Any]]]
    facts: WorkloadFacts
    items: int = 1
    restore: Callable[[], None] = lambda: None
    generation: Callable[[int], Call] | None = None


class Workload(Protocol):
    """A workload that can be built on a torch device."""

    name: str

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """Build it on "cuda:0", "cpu" or "meta".

        Raises:
            BadInputError: If the options don't fit, or the user's code returns a wrong value.
            NotPossibleError: If a library or memory is missing.
        """


Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


@dataclass(frozen=True)
class Iteration:
    """The ``call`` of a ``Built``: calls its target on each input set in turn.

    The settings are entered and left in each iteration, so that workloads of different
    precision can alternate in one process; that takes about 5 µs of host time, 8 with autocast.

    Attributes:
        target: The model or callable; ``steps`` replaces it by a compiled one.
        inputs: The input sets.
        settings: Makes the context of one iteration (see ``environment.Precision.settings``).
    """

    target: Callable[..., Any]
    inputs: list[Inputs]
    settings: Callable[[], AbstractContextManager[None]]

    def __call__(self, i: int) -> Any:
        """Run on input set ``i % len(inputs)`` and return the target's outputs."""
        args, kwargs = self.inputs[i % len(self.inputs)]
        with self.settings():
            return self.target(*args, **kwargs)


PREFILL, DECODE, BETWEEN = "prefill", "decode", "between forwards"
"""Phases of an iteration that generates."""

OPTIMIZER = "(optimizer)"
DATA = "(data)"

_open: list[str] = []


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Attribute the operators called inside to ``name`` instead of a module."""
    _open.append(name)
    try:
        yield
    finally:
        _open.pop()


def mark() -> str:
    """The innermost name in force; "" outside of any."""
    return _open[-1] if _open else ""
