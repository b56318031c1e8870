"""The causes of a difference of energy, as data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from jouletrace.comparing.leaves import Leaf
from jouletrace.run import Estimate

COUNT, TIME, POWER, WAITING, WHOLE = "count", "time", "power", "waiting", "whole"
"""Terms of a change: how often, how long each, at what power, how long nothing ran; and one that isn't divided."""

REST, TOGETHER, ON_BOTH = "rest", "together", "on both sides"
"""How rows came about that have what all others leave of the whole, those of one role, and all that both sides have."""


@dataclass(frozen=True, eq=False)
class Cause:
    """A part of the difference.

    Attributes:
        how: How both sides of it correspond (``matching``), or "rest", "together", "on both sides".
        a, b: Its leaves.
        energy: On both sides, J.
        change: B - A, J, with its 95 % interval; in a ``Why``, with that over all rows together.
        terms: What the change consists of, J; they add up to it.
        certain: True if it is beyond its interval over all rows together, and beyond the margin.
        most: The largest change on record of two runs of one thing, J, for which the interval is wider.
    """

    how: str
    a: Sequence[Leaf] = field(repr=False)
    b: Sequence[Leaf] = field(repr=False)
    energy: tuple[Estimate, Estimate]
    change: Estimate
    terms: dict[str, float]
    certain: bool = False
    most: float = 0.0

    @property
    def leaves(self) -> Sequence[Leaf]:
        """Those of A, or of B where A has none."""
        return self.a or self.b or (Leaf(),)

    @property
    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Roles of both sides with their formats, where any is known ("fp32 product"), that of most energy first."""
        return _roles(self.a), _roles(self.b)

    @property
    def role(self) -> str:
        """Its role, of several that with the most energy on both sides."""
        joules = defaultdict[str, float](float)
        for leaf in (*self.a, *self.b):
            joules[leaf.role] += leaf.joules
        return max(joules, key=joules.__getitem__, default="")

    @property
    def module(self) -> str:
        """The module around all of it; "" where it isn't known."""
        words = [leaf.module.split(".") for leaf in (*self.a, *self.b) if leaf.module]
        shortest = min(map(len, words), default=0)
        same = (n for n in range(shortest) if len({split[n] for split in words}) > 1)
        return ".".join(words[0][: next(same, shortest)]) if words else ""

    @property
    def ops(self) -> tuple[str, ...]:
        """Its operators, those of A first."""
        return tuple(dict.fromkeys(leaf.op for leaf in (*self.a, *self.b) if leaf.op))

    @property
    def value(self) -> float:
        """The change in J."""
        return self.change.value or 0.0


@dataclass(frozen=True)
class Why:
    """The difference of two sides divided by its causes.

    Attributes:
        whole: B - A, J.
        of_a: Energy of A, J.
        rows: Causes, the largest first; they add up to the whole.
        first: Those to name first: rows of one role are one.
        kernels: True if both sides have kernels.
        stated: True if the whole differs, or a cause is certain: else nothing is reported.
        work: All kernels together, of single runs of programs, whose wholes differ by how long they set up.
    """

    whole: Estimate
    of_a: float
    rows: tuple[Cause, ...] = ()
    first: tuple[Cause, ...] = ()
    kernels: bool = False
    stated: bool = False
    work: Cause | None = None

    @property
    def others(self) -> float:
        """What the causes that are named first leave of the whole, J."""
        return (self.whole.value or 0.0) - sum(cause.value for cause in self.first)


def _roles(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    joules = defaultdict[tuple[str, str], float](float)
    for leaf in leaves:
        if not leaf.idle:
            joules[leaf.format, leaf.role] += leaf.joules
    with_format = {role for form, role in joules if form}
    largest = sorted(joules, key=joules.__getitem__, reverse=True)
    return tuple(f"{form} {role}".strip() for form, role in largest if form or role not in with_format)
