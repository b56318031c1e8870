"""A workload that can be traced, either unchanged or with operators repeated in place: its calls, and their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.steps.base import Interval
from jouletrace.tracing.trace import Trace

Ints = NDArray[np.int64]

UNKNOWN = -1

PLACES = 3
"""Calls of each kind of operator (same shapes, same kernels) that are repeated: a single call may not be typical."""

REPEATS_S = (300e-6, 900e-6)
"""Durations of all runs of a repeated operator together, in alternation: several windows of a sample (0.1 ms)."""

MOST_REPEATS = 100

REPEATED_SHARE, MOST_TOGETHER = 0.15, 64
"""Share by which repeats lengthen a long iteration, and the least number of such iterations to draw from."""

LEAST_SHARE = 0.005
"""Share of the kernels' time: kinds of calls below it aren't repeated, which leaves the time to the others."""

_WINDOW = 160
"""Kernels that are compared at once where the sequences differ."""


@dataclass(frozen=True)
class Call:
    """One call of an operator in an iteration.

    Attributes:
        op: Operator with its namespace ("aten.addmm"); "" for kernels that no operator of torch launches.
        shapes: Types and shapes of its tensor inputs.
        module: Qualified name of the innermost module; "" outside of all.
        site: Call of its module that contains it, as of ``module_names.CallSite``.
        phase: Phase of the iteration ("forward", "backward", "optimizer", "prefill", "decode", ...).
        kernels: The kernels that it launches, as indices into the names of the listing, in launch order.
        seconds: Time for which these run.
        repeatable: Whether two runs leave the same state as one.
        number: Its position among all operator calls of the iteration, including those that launch nothing.
        inner: Its position among the operator calls of its module's call; ``UNKNOWN`` where no module's forward makes
            it.
    """

    op: str
    shapes: str
    module: str
    site: str
    phase: str
    kernels: tuple[int, ...]
    seconds: float
    repeatable: bool = True
    number: int = UNKNOWN
    inner: int = UNKNOWN


@dataclass(frozen=True)
class Variant:
    """An iteration in which some calls run several times in place.

    Attributes:
        repeats: Position of each such call, ascending, and its number of runs; empty for a plain iteration.
    """

    repeats: tuple[tuple[int, int], ...] = ()


PLAIN = Variant()


@dataclass(frozen=True)
class Matched:
    """The assignment of recorded kernels to calls.

    Attributes:
        call: Position of its call; ``UNKNOWN`` where it matches none. Shape (n,).
        repeat: Whether it belongs to a repetition, shape (n,).
        iteration: Number of its iteration, shape (n,).
    """

    call: Ints
    repeat: NDArray[np.bool_]
    iteration: Ints

    @property
    def unmatched(self) -> float:
        """Share of the kernels that match no call."""
        return float(np.mean(self.call == UNKNOWN)) if len(self.call) else 0.0


def variants(
    calls: Sequence[Call], rng: np.random.Generator, iteration_s: float = 0.0, places: int = PLACES
) -> list[Variant]:
    """The plain iteration, and iterations in which calls of the kinds that matter are repeated, drawn by ``rng``.

    ``places`` calls of each kind are repeated, each with two numbers of runs. A short iteration has one of these
    repeats, one of a longer ``iteration_s`` (seconds) as many as lengthen it by ``REPEATED_SHARE``. Each repeat occurs
    in about as many variants as any other.
    """
    kinds: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for place, call in enumerate(calls):
        if call.kernels and call.repeatable:
            kinds.setdefault((call.op, call.shapes, call.kernels), []).append(place)
    repeats: list[tuple[int, int]] = []
    least = LEAST_SHARE * sum(call.seconds for call in calls)
    for mine in kinds.values():
        if sum(calls[place].seconds for place in mine) < least:
            continue
        length = max(float(np.median([calls[place].seconds for place in mine])), 1e-6)
        for long in (False, True):
            repeats += [(int(place), repeats_of(length, long)) for place in rng.permutation(mine)[:places]]
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


def _expected(calls: Sequence[Call], log: Sequence[Variant]) -> tuple[Ints, Matched]:
    """Names of all kernels that iterations launch, in sequence, and what they belong to."""
    plain = np.array([name for call in calls for name in call.kernels], np.int64)
    lengths = np.array([len(call.kernels) for call in calls], np.int64)
    place, end = np.repeat(np.arange(len(calls)), lengths), np.cumsum(lengths)
    none = np.zeros(0, np.int64)
    made: dict[Variant, tuple[Ints, Ints, NDArray[np.bool_]]] = {}
    for variant in set(log):
        more = [np.tile(np.arange(end[at] - lengths[at], end[at]), times - 1) for at, times in variant.repeats]
        after = [np.full(len(which), end[at]) for which, (at, _) in zip(more, variant.repeats, strict=True)]
        which, where = np.concatenate([none, *more]), np.concatenate([none, *after])
        repeat = np.insert(np.zeros(len(plain), bool), where, True)
        made[variant] = np.insert(plain, where, plain[which]), np.insert(place, where, place[which]), repeat
    parts = [made[variant] for variant in log] or [(none, none, none.astype(bool))]
    names, call, repeat = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return names, Matched(call, repeat, np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts]))


def match(names: Ints, calls: Sequence[Call], log: Sequence[Variant]) -> Matched:
    """Determine the call of each recorded kernel by the sequence in which kernels were launched.

    Both sequences are followed in parallel. Where they differ (dropped records, a program that branches), the
    longest common runs of the following kernels are matched; other kernels stay unknown.

    Args:
        names: Names of the recorded kernels in launch order, as in ``Call.kernels``; UNKNOWN for others. Shape (n,).
        calls: Calls of one plain iteration.
        log: Variant of each iteration that ran, in order.
    """
    (wanted_names, expected), count = _expected(calls, log), len(names)
    place = np.full(count, UNKNOWN, np.int64)
    here = there = 0
    known: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = {}
    while here < count and there < len(wanted_names):
        equal = _equal(names, here, wanted_names, there)
        place[here : here + equal] = np.arange(there, there + equal)
        here, there = here + equal, there + equal
        found, wanted = names[here : here + _WINDOW], wanted_names[there : there + _WINDOW]
        key = found.tobytes(), wanted.tobytes()
        if key not in known:
            blocks = SequenceMatcher(None, wanted.tolist(), found.tolist(), autojunk=False).get_matching_blocks()
            known[key] = [(block.a, block.b, block.size) for block in blocks if block.size]
        for a, b, size in known[key]:
            place[here + b : here + b + size] = np.arange(there + a, there + a + size)
        a, b, size = known[key][-1] if known[key] else (0, _WINDOW, 0)
        here, there = here + b + size, there + a + size
    found_at = place != UNKNOWN
    call, repeat, iteration = np.full(count, UNKNOWN, np.int64), np.zeros(count, bool), np.zeros(count, np.int64)
    call[found_at], repeat[found_at] = expected.call[place[found_at]], expected.repeat[place[found_at]]
    iteration[found_at] = expected.iteration[place[found_at]]
    return Matched(call, repeat, np.maximum.accumulate(iteration) if count else iteration)


def _equal(names: Ints, here: int, others: Ints, there: int) -> int:
    """Number of entries, from these positions on, for which both sequences agree."""
    length = min(len(names) - here, len(others) - there)
    done, chunk = 0, 256
    while done < length:
        size = min(chunk, length - done)
        differ = names[here + done : here + done + size] != others[there + done : there + done + size]
        if differ.any():
            return done + int(np.argmax(differ))
        done, chunk = done + size, chunk * 4
    return length


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
class MatchedTrace:
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


class Traceable(Protocol):
    """A workload ready to be traced."""

    def listing(self) -> Listing:
        """Run one plain iteration and list its calls.

        Raises:
            NotPossibleError: If kernels can't be traced here.
        """

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> MatchedTrace:
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
