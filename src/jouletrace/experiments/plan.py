"""Which windows to run, and in what order.

Windows come in blocks. A block captures a handful of variants afresh, with a reference and a null
experiment of its own, and runs their windows in random order with references in between. So
whatever wanders (heat, the board itself) is seen by references a second or two away, what differs
between captures of the same work shows as a spread between blocks, and no more than a handful of
captures hold memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.experiments.arms import (
    DETACH,
    GAPS,
    REMOVE,
    REPEAT,
    SPIKE,
    STEP,
    TOGETHER,
    Arm,
)
from jouletrace.experiments.commons import PLAIN, Common
from jouletrace.experiments.parts import Part

_SIGNAL = 0.08
"""Share of the step that repeats add: well above the noise of a window, small enough to leave the rest alone."""

_MOST_COPIES = 8
_GAP_WINDOWS = 5


@dataclass(frozen=True)
class PlanSettings:
    """How to experiment.

    Attributes:
        budget_s: Seconds for everything, captures included.
        target: Wanted half-width of a part's interval, relative to its energy.
        closure: Wanted half-width of the closure.
        matters: Share of the step's energy below which a part need not be known better than one of
            this share.
        window_s: Seconds of a window. Long against the sensor's period.
        detuned_window_s: The same of a step that pauses so as not to beat with the sensor.
        ramp_s: Seconds that a variant runs before each of its windows.
        capped_ramp_s: The same while a power cap acts, whose loop overshoots when the load changes.
        settle_s: Seconds that the reference runs first in each block, after the board has been idle for captures.
        capped_settle_s: The same while a power cap acts: an H100's loop, surprised by the load, holds the
            board 3 % below its cap at first and takes seconds to let go.
        sensor_s: Update period of the power sensor, with which pauses must not beat.
        sampling_s: From one to the next of the samples that the sensor's readings are made of, with which steps
            must not beat either; None where it isn't known.
        capture_s: Seconds that a capture takes, until some have been seen.
        hold: Variants held captured at a time.
        reference_every: A reference after so many other windows.
        pool_below: Parts below this share of the step's time are pooled.
        together: Whether equal layers are one part.
        removal, repetition: Which methods to use, where the step can.
        pace: Whether to look for a power cap and measure at equal clocks too.
        spikes: How many parts are spiked.
        pairs: How many pairs are removed together.
        modules: How many modules are removed as a whole.
        phases: Whether each phase of an iteration is one part, as far as the step can do without one.
        seed: Of the random order.
    """

    budget_s: float = 150.0
    target: float = 0.10
    closure: float = 0.012
    matters: float = 0.02
    window_s: float = 0.5
    detuned_window_s: float = 0.5
    ramp_s: float = 0.1
    capped_ramp_s: float = 0.5
    settle_s: float = 0.4
    capped_settle_s: float = 4.0
    sensor_s: float = 0.02
    sampling_s: float | None = None
    capture_s: float = 0.2
    hold: int = 12
    reference_every: int = 3
    pool_below: float = 0.003
    together: bool = True
    removal: bool = True
    repetition: bool = True
    pace: bool = True
    spikes: int = 3
    pairs: int = 2
    modules: int = 3
    phases: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("budget_s", "target", "closure", "matters", "window_s"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"experiment: {name} must be positive, not {getattr(self, name)}")
        for name in ("hold", "reference_every"):
            if getattr(self, name) < 1:
                raise BadInputError(f"experiment: {name} must be at least 1, not {getattr(self, name)}")
        if not (self.removal or self.repetition):
            raise BadInputError("experiment: neither removal nor repetition is left to measure with")


@dataclass(frozen=True)
class Block:
    """Windows run with one set of captures.

    Attributes:
        spin_ns: Pause of its reference in every iteration; 0 of a block of gaps.
        order: Arm of each window, in the order in which they run.
    """

    spin_ns: int
    order: tuple[Arm, ...]

    @property
    def captures(self) -> int:
        """How many captures it needs."""
        return len({arm for arm in self.order if arm.kind != STEP})


@dataclass(frozen=True)
class Scope:
    """How much the first round holds.

    Attributes:
        windows: Windows of each arm; of a repetition, whose signal is the larger, half of that.
        lean: Whether to leave out what is not a part's own cost: one part is spiked, no pair and one module
            removed, and small parts are measured in one way: removed.
        both: Whether parts are repeated at equal clocks though they can be removed, and pairs are removed; if not,
            only what is spiked is.
        matched: Whether all parts are measured at equal clocks; if not, only those that matter.
    """

    windows: int = 2
    lean: bool = False
    both: bool = True
    matched: bool = True


SCOPES = ((Scope(), 0.75), (Scope(1, both=False), 0.8), (Scope(1, lean=True, both=False), 0.92))
"""First rounds to try, in turn, and the share of what is left of the budget that each may take.

The rest goes where intervals turn out widest.
"""

LEAST = Scope(1, lean=True, both=False, matched=False)
"""The first round if not even pooling parts makes room."""

Wish = tuple[Arm, int]
"""An arm and how many windows of it."""


def opening(
    parts: Sequence[Part],
    share: Mapping[int, float],
    paced: tuple[Callable[[Arm], int], Common] | None,
    refused: Collection[tuple[str, int]],
    settings: PlanSettings,
    rng: np.random.Generator,
    scope: Scope = SCOPES[0][0],
    groups: Sequence[Part] = (),
    plain: Common = PLAIN,
    tuned: Callable[[Arm], int] | None = None,
) -> list[Block]:
    """The first round: every arm once, as far as the scope goes.

    Under a cap the step runs as it is with parts removed, which is what marginal cost means, and
    everything else with a pause.

    Args:
        parts: All parts.
        share: Their rough shares of the step, by id.
        paced: From a variant to the pause in nanoseconds that keeps it below the cap, and what paced blocks
            have; None where no cap acts.
        refused: Kind and part that the step can't do.
        settings: As they are.
        rng: For the order.
        scope: How much of it.
        groups: Modules to be removed as a whole, from the step as it runs.
        plain: What blocks have where no cap acts.
        tuned: From a variant to its pause in nanoseconds there; None if all wait as their reference does.
    """
    if scope.lean:
        settings = replace(settings, spikes=min(settings.spikes, 1))
    # What one phase leaves in the cache for the next is no small part of either's saving: they don't add up.
    if scope.lean or settings.phases or (paced is not None and not scope.both):
        settings = replace(settings, pairs=0)
    windows = scope.windows
    able = {
        kind: [part for part in parts if (kind, part.id) not in refused]
        for kind, wanted in ((REMOVE, settings.removal), (REPEAT, settings.repetition))
        if wanted
    }
    without, more = able.get(REMOVE, []), able.get(REPEAT, [])
    half = max(windows // 2, 1)

    def taken(some: Sequence[Part]) -> list[Wish]:
        return [(arm, windows) for part in some for arm in removed(part.id, (DETACH, part.id) not in refused)]

    small = {part.id for part in parts if abs(share.get(part.id, 0.0)) < settings.matters}
    checked = checks(without, more, share, settings)
    if paced is not None:
        one_way = set() if scope.both else {part.id for part in without}
    else:
        # Kept apart, equal layers say themselves how far measurements agree.
        one_way = {part.id for part in without if not settings.together or (scope.lean and part.id in small)}
    one_way -= {arm.part for arm in checked if arm.kind == SPIKE}
    kept = [part for part in more if part.id not in one_way]
    repeated = [(Arm(REPEAT, part.id, 1 + copies(share, part.id)), half) for part in kept]
    repeated += [(arm, windows) for arm in checked]
    modules: list[Wish] = [(Arm(REMOVE, group.id, 0), windows) for group in groups if settings.removal]
    if paced is None:
        waits = tuned or (lambda arm: plain.reference.spin_ns)
        wishes = [(replace(arm, spin_ns=waits(arm)), count) for arm, count in taken(without) + repeated + modules]
        return in_blocks(wishes, plain, settings, rng)
    running = taken(without) + modules
    running += [(Arm(REPEAT, part.id, 1 + copies(share, part.id)), windows) for part in more if part not in without]
    pause, common = paced
    matched = [(arm, count) for arm, count in taken(without) + repeated if scope.matched or arm.part not in small]
    rest = [(replace(arm, spin_ns=pause(arm)), count) for arm, count in matched]
    return in_blocks(running, PLAIN, settings, rng) + in_blocks(rest, common, settings, rng)


def modules(scope: Scope, settings: PlanSettings) -> int:
    """How many modules are removed as a whole."""
    return min(settings.modules, 1) if scope.lean else settings.modules


def removed(part: int, detached: bool = True) -> list[Arm]:
    """The arms whose difference is what a part costs."""
    return [Arm(REMOVE, part, 0), *([Arm(DETACH, part, -1)] if detached else [])]


def checks(
    without: Sequence[Part], more: Sequence[Part], share: Mapping[int, float], settings: PlanSettings
) -> list[Arm]:
    """Spikes and pairs, of the largest parts that can take it."""
    ranked = sorted(more, key=lambda part: -abs(share.get(part.id, 0.0)))
    # A spike has twice the copies of the repetition or nearly: not of what is a fifth of the step.
    fitting = [part for part in ranked if not part.members and abs(share.get(part.id, 0.0)) <= 2 * _SIGNAL]
    arms = [Arm(SPIKE, part.id, 1 + spike_copies(copies(share, part.id))) for part in fitting[: settings.spikes]]
    ranked = sorted(without, key=lambda part: -abs(share.get(part.id, 0.0)))
    pairs = [ranked[i : i + 2] for i in range(0, 2 * settings.pairs, 2)]
    arms += [Arm(TOGETHER, a.id, 0, b.id) for a, b in (pair for pair in pairs if len(pair) == 2)]
    return arms


def copies(share: Mapping[int, float], part: int) -> int:
    """Extra launches that add about ``_SIGNAL`` of the step."""
    return min(max(math.ceil(_SIGNAL / max(abs(share.get(part, _SIGNAL)), 1e-6) - 0.25), 1), _MOST_COPIES)


def spike_copies(repeated: int) -> int:
    """Another number of copies than the repetition's, further from it the more there are."""
    return repeated + max(1, repeated // 2)


def in_blocks(
    wishes: Sequence[Wish], common: Common, settings: PlanSettings, rng: np.random.Generator, before: int = 0
) -> list[Block]:
    """Wishes in random order, each block with references and what blocks have in common.

    Args:
        wishes: Arms and how many windows of each.
        common: What every block has.
        settings: As they are.
        rng: For the order.
        before: How many blocks ran before.
    """
    shuffled = [wishes[i] for i in rng.permutation(len(wishes))]
    number = math.ceil(len(shuffled) / settings.hold)
    return [_block(shuffled[i::number], common.of(i, number, before), settings, rng) for i in range(number)]


def _block(wishes: Sequence[Wish], common: Sequence[Arm], settings: PlanSettings, rng: np.random.Generator) -> Block:
    reference = common[0]
    tasks = [*(arm for arm, windows in wishes for _ in range(windows)), *common[1:]]
    order = [reference]
    for i, at in enumerate(rng.permutation(len(tasks)), 1):
        order.append(tasks[at])
        if i % settings.reference_every == 0 or i == len(tasks):
            order.append(reference)
    return Block(reference.spin_ns, tuple(order))


def gap_block(gap_ns: Sequence[int], rng: np.random.Generator) -> Block:
    """Launch alone: a block of its own and the last one, since the board cools in it."""
    arms = [Arm(GAPS, None, 0, spin_ns=ns) for ns in gap_ns for _ in range(_GAP_WINDOWS)]
    return Block(0, tuple(arms[i] for i in rng.permutation(len(arms))))


def seconds(block: Block, settings: PlanSettings, capture_s: float, capped: bool) -> float:
    """How long a block takes, roughly."""
    windows_s = len(block.order) * (settings.window_s + ramp(block, settings, capped))
    return windows_s + block.captures * capture_s + settle(block, settings, capped)


def ramp(block: Block, settings: PlanSettings, capped: bool) -> float:
    """Seconds of the ramp before each of a block's windows."""
    return settings.capped_ramp_s if capped and not block.spin_ns and not _of_gaps(block) else settings.ramp_s


def settle(block: Block, settings: PlanSettings, capped: bool) -> float:
    """Seconds that a block's reference runs before its first window; a block of gaps has none."""
    if _of_gaps(block):
        return 0.0
    return settings.capped_settle_s if capped and not block.spin_ns else settings.settle_s


def _of_gaps(block: Block) -> bool:
    return block.order[0].kind == GAPS
