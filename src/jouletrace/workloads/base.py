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
        generation: The pieces of an iteration that generates tokens; None for other iterations.
    """

    call: Callable[[int], Any]
    module: torch.nn.Module | None
    inputs: list[tuple[tuple[Any, ...], dict[str, Any]]]
    facts: WorkloadFacts
    items: int = 1
    restore: Callable[[], None] = lambda: None
    generation: Generation | None = None


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


TOGETHER = 32
"""Repetitions of short pieces within one captured call: the launch of a graph takes time, and a generation in a graph
has a single launch."""

PREFILL, DECODE, BETWEEN = "prefill", "decode", "between forwards"

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Segment:
    """A piece of an iteration that runs separately.

    Attributes:
        phase: ``PREFILL``, ``DECODE`` or ``BETWEEN``.
        weight: Its multiplicity in an iteration; for a forward at one of several lengths, by linear interpolation.
        call: Runs it.
        times: Repetitions in one call.
        length: Tokens that attention reads in it: the prompt's, or those of the cache; None for ``BETWEEN``.
        context: Tokens of its prompt, where it is of a grid of contexts and not of the iteration.
    """

    phase: str
    weight: float
    call: Call
    times: int = 1
    length: int | None = None
    context: int | None = None


@dataclass(frozen=True)
class Generation:
    """The pieces of an iteration that generates.

    Attributes:
        prompt: Tokens of the prompt.
        steps: Forwards of an iteration: the number of tokens of the longest sequence.
        tokens: New tokens of all sequences together.
        cache: "dynamic" or "static"; see ``kv_cache``.
        segments: Its pieces, which add up to the whole.
        first_token: Runs until the first token exists.
        contexts: Prefill and decode at each context that was asked for.
    """

    prompt: int
    steps: int
    tokens: int
    cache: str
    segments: tuple[Segment, ...]
    first_token: Call
    contexts: tuple[Segment, ...] = ()


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
