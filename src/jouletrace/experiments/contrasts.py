"""Which arms to add and subtract for what a part costs, for launch and gaps, and for the checks.

Each function returns weights of arms, or None where an arm that it needs has no window. ``paced`` asks
for arms with a pause in every iteration. Under a cap their pauses differ a little (``pacing.off_readings``), so
what a variant's pause is longer than its reference's is taken off at what a pause costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.experiments.arms import DETACH, GAPS, REFERENCE, REMOVE, REPEAT, SLOPE, Arm
from jouletrace.experiments.levels import Levels, Weights


def added(*sums: tuple[float, Weights]) -> dict[Arm, float]:
    """Sums of arms, each times a factor, as one."""
    whole: dict[Arm, float] = {}
    for factor, weights in sums:
        for arm, w in weights.items():
            whole[arm] = whole.get(arm, 0.0) + factor * w
    return whole


def of_kind(levels: Levels, kind: str, paced: bool | None = None, part: int | None = None) -> list[Arm]:
    """Arms of a kind, in the order of their first window; with a pause or without, and of one part, if given."""
    return [
        arm for arm in levels.arms if arm.kind == kind and paced in (None, arm.spin_ns > 0) and part in (None, arm.part)
    ]


def first(levels: Levels, kind: str, paced: bool | None = None, part: int | None = None) -> Arm | None:
    """The first of ``of_kind``, if there is one."""
    return next(iter(of_kind(levels, kind, paced, part)), None)


def reference(levels: Levels, paced: bool = False) -> Arm | None:
    """What variants are held against."""
    return first(levels, REFERENCE, paced)


def over_reference(levels: Levels, arm: Arm) -> Weights | None:
    """What a variant costs more than its reference, at the reference's pause."""
    base = reference(levels, arm.spin_ns > 0)
    return None if base is None else over(levels, arm, base)


def over(levels: Levels, arm: Arm, base: Arm) -> Weights | None:
    """What a variant costs more than another, at the other's pause."""
    if not levels.has(arm, base):
        return None
    difference = {arm: 1.0, base: -1.0}
    if arm.spin_ns == base.spin_ns:
        return difference
    pause = per_pause(levels)
    return None if pause is None else added((1.0, difference), (base.spin_ns - arm.spin_ns, pause))


def per_pause(levels: Levels) -> Weights | None:
    """What a nanosecond of pause costs, on the working board: the reference with several pauses, a line through them.

    Where the experiment ended before these, what it costs with nothing but the pause to run: somewhat less, as the
    board cools, and its idle power with it.
    """
    base = reference(levels, paced=True)
    arms = [] if base is None else [base, *of_kind(levels, SLOPE)]
    if len(arms) < 2:
        arms = of_kind(levels, GAPS, paced=True)
    if len({arm.spin_ns for arm in arms}) < 2:
        return None
    mean = sum(arm.spin_ns for arm in arms) / len(arms)
    spread = sum((arm.spin_ns - mean) ** 2 for arm in arms)
    return {arm: (arm.spin_ns - mean) / spread for arm in arms}


def saving(levels: Levels, part: int, paced: bool = False) -> Weights | None:
    """What the step saves without the part: less than the part costs, since others miss what it leaves in the cache."""
    arm = first(levels, REMOVE, paced, part)
    more = None if arm is None else over_reference(levels, arm)
    return None if more is None else added((-1.0, more))


def removal(levels: Levels, part: int, paced: bool = False) -> Weights | None:
    """What the part costs: the step with it detached less the step without it.

    In both, later operators read a stored output. Where the part could not be detached, its saving.
    """
    without = first(levels, REMOVE, paced, part)
    alone = first(levels, DETACH, paced, part)
    if any((arm.kind, arm.part, arm.spin_ns > 0) == (DETACH, part, paced) for arm in levels.missing):
        return None  # its saving alone would be too small
    if without is None or alone is None:
        return saving(levels, part, paced)
    more = over(levels, without, alone)
    return None if more is None else added((-1.0, more))


def repetition(levels: Levels, part: int, paced: bool = False) -> Weights | None:
    """What a further launch of the part costs."""
    arm = first(levels, REPEAT, paced, part)
    more = None if arm is None else over_reference(levels, arm)
    return None if arm is None or more is None else added((1 / (arm.multiplicity - 1), more))


def cost(levels: Levels, part: int, paced: bool = False) -> tuple[Weights | None, str]:
    """What the part costs in context, and by which method.

    Removal is taken where it can be had: repetitions find their data in the cache. Repetition is
    shown beside it.
    """
    found = removal(levels, part, paced)
    if found is not None:
        return found, "removal"
    found = repetition(levels, part, paced)
    return found, "repetition" if found is not None else "removal"


def gaps(levels: Levels) -> Weights | None:
    """Launch and gaps: what an iteration costs that does nothing.

    An empty graph can run dry of the host; with a pause in it, it does not. So where pauses were
    run, the straight line through the two shortest is followed back to no pause at all.
    """
    arms = sorted(of_kind(levels, GAPS), key=lambda arm: arm.spin_ns)
    if not arms:
        return None
    if len(arms) == 1:
        return {arms[0]: 1.0} if arms[0].spin_ns == 0 else None
    near, far = arms[:2]
    span = far.spin_ns - near.spin_ns
    return {near: far.spin_ns / span, far: -near.spin_ns / span}


def whole(levels: Levels, parts: Sequence[int], paced: bool = False) -> Weights | None:
    """All parts and the gaps, each measured by itself."""
    total = gaps(levels)
    for part in parts:
        weights, _ = cost(levels, part, paced)
        if total is None or weights is None:
            return None
        total = added((1.0, total), (1.0, weights))
    return total


def without_pause(levels: Levels, kind: str = REFERENCE) -> Weights | None:
    """An arm that pauses less what its pause costs: of the reference, the step at the clock of no cap."""
    arm, pause = first(levels, kind, paced=True), per_pause(levels)
    return None if arm is None or pause is None else added((1.0, {arm: 1.0}), (-arm.spin_ns, pause))
