"""Options of a comparison, with defaults and permitted values."""

from __future__ import annotations

from dataclasses import dataclass, field

from jouletrace.errors import BadInputError

ALPHA = 0.05
"""Probability of at least one false alarm among all verdicts of a comparison."""

DETAILS = ("all", "model", "phase", "layer", "op", "kernel")


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        margin: Relative difference below which two sides count as equal.
        between: Relative standard deviation between runs, where it is known from elsewhere.
        renames: Names of A, by their names in B.
        detail: The parts to compare: "all", "model" for none, or one level.
        alpha: Probability of a false alarm, over all verdicts.
    """

    margin: float = 0.01
    between: float | None = None
    renames: dict[str, str] = field(default_factory=dict)
    detail: str = "all"
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            BadInputError: With the option, its value and the permitted values.
        """
        if not 0 < self.margin < 1:
            raise BadInputError(f"--margin {self.margin:g}: must lie between 0 and 100 %")
        if self.between is not None and not 0 < self.between < 1:
            raise BadInputError(f"--between {self.between:g}: must lie between 0 and 100 %")
        if self.detail not in DETAILS:
            raise BadInputError(f"--detail {self.detail}: must be one of {', '.join(DETAILS)}")
        if not 0 < self.alpha < 1:
            raise BadInputError(f"alpha {self.alpha:g}: must lie between 0 and 1")
