"""A workload that can be traced, either unchanged or with one operator at a time repeated in place."""

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
    """The calls of one plain iteration.

    Attributes:
        calls: The calls in launch order.
        names: Names of kernels, which ``Call.kernels`` indexes.
        note: Why operators are unknown; "" if they are known.
    """

    calls: Sequence[Call]
    names: Sequence[str]
    note: str = ""

    @property
    def kernels(self) -> int:
        """Number of kernels per iteration; at least 1."""
        return max(1, sum(len(call.kernels) for call in self.calls))

    def codes(self, trace: Trace) -> Ints:
        """The name of each entry of a trace as an index into ``names``, ``UNKNOWN`` for others; shape (n,)."""
        place = {name: i for i, name in enumerate(self.names)}
        return np.array([place.get(name, UNKNOWN) for name in trace.names], np.int64)[trace.name]


@dataclass(frozen=True)
class Traced:
    """A traced recording.

    Attributes:
        trace: The work that ran, in launch order.
        matched: Assignment of its kernels to calls.
        iterations: Number of iterations that ran.
        interval: Time of the recording.
    """

    trace: Trace
    matched: Matched
    iterations: int
    interval: Interval


@dataclass(frozen=True)
class Excitation:
    """Changes to a program while it is recorded.

    Attributes:
        plain_s: Seconds without changes.
        repeated_s: Seconds with variants drawn at random.
        variants: The variants to draw from, including the plain iteration.
        stay_s: Seconds for which a drawn variant stays; 0 for one iteration.
        seed: Seed of the draws.
    """

    plain_s: float
    repeated_s: float = 0.0
    variants: tuple[Variant, ...] = (PLAIN,)
    stay_s: float = 0.0
    seed: int = 0

    def draws(self, iteration_s: float) -> Iterator[Variant]:
        """Variants of successive iterations, without end."""
        rng = np.random.default_rng(self.seed)
        stay = max(1, round(self.stay_s / iteration_s))
        while True:
            variant = self.variants[int(rng.integers(len(self.variants)))]
            for _ in range(stay):
                yield variant


class Program(Protocol):
    """A workload ready to be traced."""

    def listing(self) -> Listing:
        """Run one plain iteration and list its calls.

        Raises:
            NotPossibleError: If kernels can't be traced here.
        """

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> Traced:
        """Run it under the tracer.

        Args:
            listing: Listing of this program.
            excitation: Changes while it is recorded.
            iteration_s: Duration of a plain iteration in seconds.
            advance: Called with the seconds that have passed.

        Raises:
            NotPossibleError: If kernels can't be traced here.
            BrokenOffError: If the workload raises.
        """
