"""What every block of windows has beside its variants: the reference first, then arms that run once in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jouletrace.experiments.arms import NULL, REFERENCE, SLOPE, STEP, Arm

Common = tuple[Arm, ...]
"""The reference first."""

COMMON: Common = (Arm(REFERENCE), Arm(NULL), Arm(STEP), Arm(STEP))
"""Of blocks without a pause."""


def detuned_commons(spin_ns: int, others_ns: Sequence[int]) -> tuple[Common, ...]:
    """The same of blocks in which everything pauses, each with another one of those that tell what a pause costs."""
    base = tuple(replace(arm, spin_ns=spin_ns) for arm in COMMON)
    return tuple((*base, Arm(SLOPE, spin_ns=other_ns)) for other_ns in others_ns)


def paced_commons(spin_ns: int, others_ns: Sequence[int]) -> tuple[Common, ...]:
    """Of blocks with a pause, each with another one of those that tell what a pause costs."""
    base = (Arm(REFERENCE, spin_ns=spin_ns), Arm(NULL, spin_ns=spin_ns))
    return tuple((*base, Arm(SLOPE, spin_ns=other_ns)) for other_ns in others_ns)
