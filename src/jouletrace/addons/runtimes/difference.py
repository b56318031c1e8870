"""The difference between a model's outputs and those of the model that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import CheckFailedError

TOLERANCES = {"fp32": 1e-3, "fp64": 1e-3, "fp16": 2e-2}
"""Largest difference of an output relative to its largest value, by number format: the effect of summation order."""


@dataclass(frozen=True)
class Difference:
    """The output with the largest difference.

    Attributes:
        output: Its name.
        relative: Largest difference over the largest value of the original; infinite for another shape or NaN.
        text: The difference in words.
    """

    output: str
    relative: float
    text: str


def compare(original: Mapping[str, NDArray[Any]], other: Sequence[NDArray[Any]]) -> Difference:
    """Compare the outputs of a model with the original's, in order."""
    if len(original) != len(other):
        return Difference("", float("inf"), f"it has {len(other)} outputs, not {len(original)}")
    differences = [
        _one(name, np.asarray(a), np.asarray(b)) for (name, a), b in zip(original.items(), other, strict=True)
    ]
    return max(differences, key=lambda one: one.relative)


def check(found: Difference, tolerance: float, what: str) -> None:
    """Refuse a model with a larger difference than permitted.

    Raises:
        CheckFailedError: With the difference and the tolerance.
    """
    if not found.relative <= tolerance:
        raise CheckFailedError(f"{what} differs from the model in torch: {found.text} (--tolerance {tolerance:g})")


def _one(name: str, a: NDArray[Any], b: NDArray[Any]) -> Difference:
    if a.shape != b.shape:
        text = f"output {name!r} has the shape {_by(b.shape)}, not {_by(a.shape)}"
        return Difference(name, float("inf"), text)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if not a.size:
        return Difference(name, 0.0, f"output {name!r} is empty")
    if not np.array_equal(np.isfinite(wide_a), np.isfinite(wide_b)):
        return Difference(name, float("inf"), f"output {name!r} has NaN or infinity in other places")
    finite = np.isfinite(wide_a)
    if not finite.any():
        return Difference(name, float("inf"), f"output {name!r} is NaN or infinite throughout: nothing can be compared")
    apart = float(np.abs(wide_a - wide_b)[finite].max(initial=0.0))
    largest = float(np.abs(wide_a[finite]).max(initial=0.0))
    relative = apart / largest if largest else (0.0 if apart == 0 else float("inf"))
    return Difference(name, relative, f"output {name!r} by {apart:.3g}, {relative:.2g} of its largest value")


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
