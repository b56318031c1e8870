"""The result of a comparison as plain data: ``compare`` creates it, the other modules of this package print it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from jouletrace.run import Estimate

BETTER, WORSE, SAME, INCONCLUSIVE = "better", "worse", "no difference shown", "inconclusive"
"""Verdicts. Less time and energy is better."""

HIGHER, LOWER = "higher", "lower"
"""Verdicts on power, of which more is neither better nor worse: what is done in less time often draws more."""

DIFFERENT = (BETTER, WORSE, HIGHER, LOWER)
"""Verdicts that there is a difference."""

TOP = 10
"""Default number of listed parts per level."""

FAILED, PASSED = "failed", "passed"
"""What else a check may be than inconclusive."""


@dataclass(frozen=True)
class Row:
    """One metric of one unit on both sides.

    Attributes:
        level: "model", "phase", "layer", "op", "kernel" or "range".
        name: Of the unit, as it is called in B.
        where: Module it is in; "" if that says nothing.
        shapes: Input shapes of an operator; "" if none.
        metric: Name in ``run.metrics``.
        a, b: Mean of each side's runs, in SI units; ``n`` is the runs.
        difference: B - A, with the same confidence as ``change``.
        change: B / A - 1; null with a reason where A may be nothing.
        confidence: Of both intervals: 95 % over all rows together.
        p: Probability of such a difference by chance, if there is none; None where it can't be determined.
        verdict: One of the verdicts.
        reason: Why it is inconclusive, by code; None otherwise.
        detectable: Smallest relative change that would be detected with probability 0.9; None where unknown.
        flags: Codes of what a reader must know ("shapes_differ", "below_margin", ...).
    """

    level: str
    name: str
    where: str
    shapes: str
    metric: str
    a: Estimate
    b: Estimate
    difference: Estimate
    change: Estimate
    confidence: float
    p: float | None
    verdict: str
    reason: str | None = None
    detectable: float | None = None
    flags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "flags": list(self.flags)}


@dataclass(frozen=True)
class Side:
    """What was compared.

    Attributes:
        name: "A" or "B".
        title: Workload, batch, dtype and so on.
        runs: Where the runs are from.
        devices: Names and ids of the GPUs.
        count: Independent runs.
    """

    name: str
    title: str
    runs: tuple[str, ...]
    devices: tuple[str, ...]
    count: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "runs": list(self.runs), "devices": list(self.devices)}


@dataclass(frozen=True)
class Check:
    """What became of one ``--fail-if``.

    Attributes:
        text: As written.
        outcome: "failed", "passed" or "inconclusive".
        says: In words: which row decides, by how much, what could have been detected.
    """

    text: str
    outcome: str
    says: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"check": self.text, "outcome": self.outcome, "says": self.says}


@dataclass
class Comparison:
    """The result of a comparison.

    Attributes:
        a, b: The sides.
        rows: The model's figures first, then parts by level, largest difference first.
        unmatched_a, unmatched_b: Units of one side only: level and name.
        notes: What differs in how the sides were run, and how the spread is known.
        warnings: Known failures that touch the figures.
        margin: Relative difference below which sides count as equal.
        alpha: Probability of a false alarm over all rows.
        gain: Relative gain error between different GPUs' sensors; 0 on one GPU.
        simulated: Whether some GPU was simulated.
        method: How the figures came about, in one sentence.
        checks: Outcomes of ``--fail-if``.
    """

    a: Side
    b: Side
    rows: list[Row]
    unmatched_a: list[tuple[str, str]] = field(default_factory=list)
    unmatched_b: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    margin: float = 0.01
    alpha: float = 0.05
    gain: float = 0.0
    simulated: bool = False
    method: str = ""
    checks: list[Check] = field(default_factory=list)

    def row(self, metric: str, name: str | None = None, level: str = "model") -> Row:
        """A row by metric, and by name below the model.

        Raises:
            KeyError: If there is none.
        """
        for row in self.rows:
            if row.level == level and row.metric == metric and name in (None, row.name):
                return row
        raise KeyError(f"{level} {name or ''} {metric}")

    def __str__(self) -> str:
        """The tables of the terminal."""
        from jouletrace.report.comparison import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """The object that ``--format json`` prints."""
        return {
            "schema": 1,
            "simulated": self.simulated,
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "margin": self.margin,
            "alpha": self.alpha,
            "sensor_gain": self.gain,
            "rows": [row.to_dict() for row in self.rows],
            "unmatched": {
                side: [{"level": level, "name": name} for level, name in units]
                for side, units in (("a", self.unmatched_a), ("b", self.unmatched_b))
            },
            "checks": [check.to_dict() for check in self.checks],
            "notes": self.notes,
            "warnings": self.warnings,
            "method": self.method,
        }
