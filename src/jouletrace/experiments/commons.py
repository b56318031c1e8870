"""What every block of windows has beside its variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jouletrace.experiments.arms import NULL, REFERENCE, SLOPE, STEP, Arm


@dataclass(frozen=True)
class Common:
    """What the blocks of one kind have.

    Attributes:
        arms: The reference, then arms that run once in every block.
        turns: Arms of which each block has one in turn.
    """

    arms: tuple[Arm, ...]
    turns: tuple[Arm, ...] = ()

    @property
    def reference(self) -> Arm:
        """What the block's variants are held against."""
        return self.arms[0]

    def of(self, block: int, blocks: int, before: int) -> tuple[Arm, ...]:
        """What one block has: a first round of fewer blocks than turns spreads all of them over its blocks.

        Args:
            block: Its number in the round.
            blocks: How many the round has.
            before: How many ran before the round.
        """
        if not self.turns:
            return self.arms
        if before == 0 and blocks < len(self.turns):
            return (*self.arms, *self.turns[block::blocks])
        return (*self.arms, self.turns[(before + block) % len(self.turns)])


PLAIN = Common((Arm(REFERENCE), Arm(NULL), Arm(STEP), Arm(STEP)))
"""Of blocks without a pause."""


def detuned(spin_ns: int, others_ns: Sequence[int]) -> Common:
    """The same of blocks in which everything pauses, with references that pause longer: what a pause costs."""
    return Common(tuple(replace(arm, spin_ns=spin_ns) for arm in PLAIN.arms), _slopes(others_ns))


def paced(spin_ns: int, others_ns: Sequence[int]) -> Common:
    """Of blocks below a cap, with references that pause longer: what a pause costs."""
    return Common((Arm(REFERENCE, spin_ns=spin_ns), Arm(NULL, spin_ns=spin_ns)), _slopes(others_ns))


def _slopes(others_ns: Sequence[int]) -> tuple[Arm, ...]:
    return tuple(Arm(SLOPE, spin_ns=other_ns) for other_ns in others_ns)
