"""What may run in a window, and how it is written down in the ``windows`` table.

The columns ``variant``, ``unit`` and ``multiplicity`` say all that an estimate needs: ``variant`` is
a kind, with ``+ID`` if a second unit is changed alike, and `` paced 612us`` if the step waits so long
in every iteration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

STEP = "step"
"""The user's untouched step, within the experiment."""
REFERENCE = "reference"
"""The step captured as variants are, with nothing changed: what they are held against."""
NULL = "null"
"""The same once more, captured afresh and treated like a variant."""
REMOVE = "remove"
DETACH = "detach"
"""A unit that runs for nobody, later operators getting its stored output: what its removal is held against."""
REPEAT = "repeat"
SPIKE = "spike"
"""Extra copies of a unit whose cost is known by then: another multiplicity than ``REPEAT``'s."""
TOGETHER = "together"
"""Two units removed at once."""
SLOPE = "slope"
"""The reference with another pause: what a pause costs."""
GAPS = "gaps"
"""All units removed."""
SCREEN = "screen"
"""A short look at how long a variant takes; too short for its energy."""
PACE = "pace"
"""The reference while the pause is sought that keeps it below the power cap."""

KINDS = (STEP, REFERENCE, NULL, REMOVE, DETACH, REPEAT, SPIKE, TOGETHER, SLOPE, GAPS, SCREEN, PACE)
FRESH = (NULL, REMOVE, DETACH, REPEAT, SPIKE, TOGETHER, SLOPE)
"""Kinds that are compared with the reference, and share whatever offset a fresh capture has."""

_TEXT = re.compile(r"(?P<kind>[a-z]+)(?:\+(?P<partner>\d+))?(?: paced (?P<spin>[\d.]+)us)?")


@dataclass(frozen=True, order=True)
class Arm:
    """One of the things compared: windows of the same arm are repetitions of each other.

    Attributes:
        kind: One of ``KINDS``.
        part: Id of the part that is changed; None if none, or all.
        multiplicity: Launches of it for one in the model; -1 of ``DETACH``.
        partner: Id of a second part changed alike.
        spin_ns: Pause in every iteration, in nanoseconds.
    """

    kind: str
    part: int | None = None
    multiplicity: int = 1
    partner: int | None = None
    spin_ns: int = 0

    @property
    def added(self) -> int:
        """Launches of the part more than in the model."""
        return abs(self.multiplicity) - 1

    @property
    def variant(self) -> str:
        """The ``variant`` column."""
        partner = "" if self.partner is None else f"+{self.partner}"
        return f"{self.kind}{partner}" + (f" paced {self.spin_ns / 1000:.3f}us" if self.spin_ns else "")

    @classmethod
    def read(cls, variant: str | None, unit: int | None, multiplicity: float | None) -> Self | None:
        """From the columns of a window; None if it is no window of an experiment on parts."""
        found = _TEXT.fullmatch(variant or "")
        if found is None or found["kind"] not in KINDS:
            return None
        return cls(
            found["kind"],
            unit,
            1 if multiplicity is None else round(multiplicity),
            None if found["partner"] is None else int(found["partner"]),
            round(float(found["spin"] or 0) * 1000),
        )
