"""How long blocks take, and which of them there is time for."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.experiments import plan
from jouletrace.experiments.plan import Block, PlanSettings

_PAUSE_CAPTURES = 4
"""Captures that a new pause takes before any variant with it."""


class Budget:
    """Foresees how long blocks take, going by how long those before them took.

    Args:
        settings: Length of windows and ramps.

    Attributes:
        capture_s: Seconds of a capture.
        capped: Whether a power cap acts.
        settings: As given.
    """

    def __init__(self, settings: PlanSettings) -> None:
        self.capture_s = settings.capture_s
        self.capped = False
        self.settings = settings
        self._taken_s = self._foreseen_s = 0.0
        self._slower = 1.0

    def seconds(self, block: Block) -> float:
        """How long a block should take."""
        return self._slower * self._planned_s(block)

    def first_round_s(self, blocks: Sequence[Block]) -> float:
        """How long a first round of these should take."""
        # Each pause is a step of its own, with its operators listed anew.
        pauses = {arm.spin_ns for block in blocks for arm in block.order if arm.spin_ns}
        return sum(map(self.seconds, blocks)) + _PAUSE_CAPTURES * len(pauses) * self.capture_s

    def within(self, blocks: Sequence[Block], left_s: float) -> list[Block]:
        """The blocks that there is time for."""
        kept = []
        for block in blocks:
            left_s -= self.seconds(block)
            if left_s >= 0:
                kept.append(block)
        return kept

    def ran(self, block: Block, seconds: float) -> None:
        """Learn from a block that has been run."""
        self._taken_s += seconds
        self._foreseen_s += self._planned_s(block)
        self._slower = max(self._taken_s / self._foreseen_s, 1.0)

    def _planned_s(self, block: Block) -> float:
        return plan.seconds(block, self.settings, self.capture_s, self.capped)
