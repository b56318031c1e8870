"""How a program is excited while it is recorded: single operator calls run several times in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jouletrace.execution.calls import Call, Listing, RecordedLaunches

PLACES = 3
"""Calls of each kind of operator (same shapes, same kernels) that are repeated: a single call may not be typical."""

REPEATS_S = (300e-6, 900e-6)
"""Durations of all runs of a repeated operator together, in alternation: several windows of a sample (0.1 ms)."""

MOST_REPEATS = 100

REPEATED_SHARE, MOST_TOGETHER = 0.15, 64
"""Share by which repeats lengthen a long iteration, and the least number of such iterations to draw from."""

LEAST_SHARE = 0.005
"""Share of the kernels' time: kinds of calls below it aren't repeated, which leaves the time to the others."""


@dataclass(frozen=True)
class Variant:
    """An iteration in which some calls run several times in place.

    Attributes:
        repeats: Position of each such call, ascending, and its number of runs; empty for a plain iteration.
    """

    repeats: tuple[tuple[int, int], ...] = ()


PLAIN = Variant()


def variants(
    calls: Sequence[Call], rng: np.random.Generator, iteration_s: float = 0.0, places: int = PLACES
) -> list[Variant]:
    """The plain iteration, and iterations in which calls of the kinds that matter are repeated, drawn by ``rng``.

    ``places`` calls of each kind are repeated, each with two numbers of runs. A short iteration has one of these
    repeats, one of a longer ``iteration_s`` (seconds) as many as lengthen it by ``REPEATED_SHARE``. Each repeat occurs
    in about as many variants as any other.
    """
    kinds: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for index, call in enumerate(calls):
        if call.kernels and call.repeatable:
            kinds.setdefault((call.op, call.shapes, call.kernels), []).append(index)
    repeats: list[tuple[int, int]] = []
    least = LEAST_SHARE * sum(call.seconds for call in calls)
    for mine in kinds.values():
        if sum(calls[index].seconds for index in mine) < least:
            continue
        length = max(float(np.median([calls[index].seconds for index in mine])), 1e-6)
        for long in (False, True):
            repeats += [(int(index), repeats_of(length, long)) for index in rng.permutation(mine)[:places]]
    together = round(REPEATED_SHARE * iteration_s / float(np.mean(REPEATS_S)))
    if together <= 1:
        return [PLAIN, *(Variant((repeat,)) for repeat in repeats)]
    turns = -(-MOST_TOGETHER * together // max(len(repeats), 1))
    drawn = [repeats[i] for _ in range(turns) for i in rng.permutation(len(repeats))]
    parts = [drawn[at : at + together] for at in range(0, len(drawn), together)]
    return [PLAIN, *(Variant(tuple(sorted(dict(part).items()))) for part in parts)]


def repeats_of(length_s: float, long: bool) -> int:
    """Numbers of runs in place for an operator of this length: two values, so that the repeats can be distinguished."""
    wanted = round(REPEATS_S[int(long)] / max(length_s, 1e-9))
    return int(np.clip(wanted, 3 if long else 2, MOST_REPEATS))


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


class Traceable(Protocol):
    """A workload ready to be traced."""

    def listing(self) -> Listing:
        """Run one plain iteration and list its calls.

        Raises:
            NotPossibleError: If kernels can't be traced here.
        """

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> RecordedLaunches:
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
