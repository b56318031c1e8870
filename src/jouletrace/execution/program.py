"""A workload that can be traced for a while, as it is and with one operator at a time repeated in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jouletrace.execution.calls import PLAIN, UNKNOWN, Call, Ints, Matched, Variant
from jouletrace.execution.steps.base import Interval
from jouletrace.tracing.trace import Trace


@dataclass(frozen=True)
class Listing:
    """What one plain iteration calls.

    Attributes:
        calls: In launch order.
        names: Of kernels, to which ``Call.kernels`` are indices.
        note: Why operators aren't known, where they aren't; "" otherwise.
    """

    calls: Sequence[Call]
    names: Sequence[str]
    note: str = ""

    @property
    def kernels(self) -> int:
        """How many an iteration launches; at least 1."""
        return max(1, sum(len(call.kernels) for call in self.calls))

    def codes(self, trace: Trace) -> Ints:
        """The name of each entry of a trace as an index into ``names``, ``UNKNOWN`` for others; shape (n,)."""
        place = {name: i for i, name in enumerate(self.names)}
        return np.array([place.get(name, UNKNOWN) for name in trace.names], np.int64)[trace.name]


@dataclass(frozen=True)
class Traced:
    """A traced recording.

    Attributes:
        trace: What ran, in launch order.
        matched: Whose it is.
        iterations: How many ran.
        interval: When.
    """

    trace: Trace
    matched: Matched
    iterations: int
    interval: Interval


@dataclass(frozen=True)
class Excitation:
    """What is done to a program while it is recorded.

    Attributes:
        plain_s: Seconds as it is.
        repeated_s: Seconds with variants drawn at random.
        variants: Drawn from, the plain iteration among them.
        stay_s: Seconds for which a drawn variant stays; 0 for one iteration.
        seed: Of the draws.
    """

    plain_s: float
    repeated_s: float = 0.0
    variants: tuple[Variant, ...] = (PLAIN,)
    stay_s: float = 0.0
    seed: int = 0

    def draws(self, iteration_s: float) -> Iterator[Variant]:
        """Variants of one iteration after the other, without end."""
        rng = np.random.default_rng(self.seed)
        stay = max(1, round(self.stay_s / iteration_s))
        while True:
            variant = self.variants[int(rng.integers(len(self.variants)))]
            for _ in range(stay):
                yield variant


class Program(Protocol):
    """A workload ready to be traced."""

    def listing(self) -> Listing:
        """Run one plain iteration and list what it calls.

        Raises:
            NotPossibleError: If kernels can't be traced here.
        """

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> Traced:
        """Run it under the tracer.

        Args:
            listing: Of this program.
            excitation: What is done to it.
            iteration_s: Of a plain iteration.
            advance: Called with seconds as they pass.

        Raises:
            NotPossibleError: If kernels can't be traced here.
            BrokenOffError: If the workload raises.
        """
