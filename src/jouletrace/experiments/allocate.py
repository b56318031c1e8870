"""Time goes to the widest interval that matters.

After each round the parts' intervals are held against what is wanted, and the next round's windows go
to those that miss it by most. What decides is the spread of all arms together, hardly that of the
part's own few windows: so a part isn't left alone because its windows happened to agree, and
intervals keep their coverage (``tests/test_experiments_run.py`` looks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jouletrace.experiments import contrasts
from jouletrace.experiments.arms import DETACH, REMOVE, REPEAT, Arm
from jouletrace.experiments.levels import Levels
from jouletrace.experiments.plan import PlanSettings, Wish

_ROUND_BLOCKS = 2


@dataclass(frozen=True)
class Need:
    """How far an arm's figure is from what is wanted.

    Attributes:
        excess: Half-width over the wanted one; above 1 it is too wide.
        arm: What to run more of.
    """

    excess: float
    arm: Arm


def needs(levels: Levels, parts: Sequence[int], settings: PlanSettings) -> list[Need]:
    """The arms whose intervals are too wide: without a pause first, and the worst first."""
    found = [Need(math.inf, arm) for arm in levels.missing if arm.kind in (REMOVE, DETACH, REPEAT)]
    # Energies at equal clocks are far less certain: the sensor sees the pauses. What is left goes to them.
    for paced in (False, True):
        wanting = [need for need in _of_pace(levels, parts, paced, settings) if need.excess > 1]
        found += sorted(wanting, key=lambda need: -need.excess)
    return found


def next_wishes(levels: Levels, wanting: Sequence[Need], hold: int, most: int) -> list[Wish]:
    """The next round: as many windows for each of the neediest as should do.

    Args:
        levels: What is known.
        wanting: As of ``needs``.
        hold: Arms that fit a block; a round has two of them at most.
        most: Windows of an arm at most.
    """
    wishes = []
    for need in wanting[: _ROUND_BLOCKS * hold]:
        missing = levels.count(need.arm) * (need.excess**2 - 1) if math.isfinite(need.excess) else most
        wishes.append((need.arm, min(max(math.ceil(missing), 1), most)))
    return wishes


def _of_pace(levels: Levels, parts: Sequence[int], paced: bool, settings: PlanSettings) -> list[Need]:
    base = contrasts.reference(levels, paced)
    if base is None:
        return []
    step = levels.value({contrasts.reference(levels) or base: 1.0})
    found = []
    everything: dict[Arm, float] = {}
    for part in parts:
        weights, method = contrasts.cost(levels, part, paced)
        if weights is None:
            continue  # it was refused, or not one window of it had an energy
        kinds = (REMOVE, DETACH) if method == "removal" else (REPEAT,)
        arms = [arm for kind in kinds for arm in contrasts.of_kind(levels, kind, paced, part)]
        half = levels.estimate(weights, "need").half_width
        # Of the two costs of a part under a cap the marginal one is the better known.
        plain, _ = contrasts.cost(levels, part)
        size = abs(levels.value(weights if plain is None else plain))
        wanted = settings.target * max(size, settings.matters * step)
        found += [(math.inf if half is None else half, wanted, arm) for arm in arms]
        everything = contrasts.added((1.0, everything), (1.0, weights))
    whole = levels.ratio(everything, {base: 1.0}, "closure").half_width
    # A sum too wide is the fault of its widest terms.
    short = (whole or 0.0) / settings.closure
    widest = max((half for half, _, _ in found), default=0.0)
    return [Need(max(half / wanted, short * half / widest if short > 1 else 0.0), arm) for half, wanted, arm in found]
