"""What judges share: options of their command lines, and intervals of figures beside their truths.

Importing this makes the simulators of ``tests/support`` and ``tests/wings/serving`` importable.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.run import Estimate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "wings" / "serving"))

Case = tuple[Estimate, float]
"""A figure and its truth."""


def options(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """``--NAME`` for each default, of its type; several values where that is a list, of the type of its first."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        one, several = (default[0], "*") if isinstance(default, list) else (default, None)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(one), default=default, nargs=several)
    return parser


def written(rows: Iterable[dict[str, Any]], path: str | None, shown: Callable[[dict[str, Any]], str]) -> None:
    """Print each row as it comes; to a path write all rows so far, as JSON."""
    done = []
    for row in rows:
        done.append(row)
        print(shown(row), flush=True)
        if path:
            Path(path).write_text(json.dumps(done, indent=1) + "\n")


@dataclass(frozen=True)
class Judged:
    """Intervals of the figures that there are, and their truths; shapes (n,)."""

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    truth: NDArray[np.float64]

    @property
    def n(self) -> int:
        return len(self.truth)

    @property
    def held(self) -> NDArray[np.bool_]:
        return (self.low <= self.truth) & (self.truth <= self.high)

    @property
    def error(self) -> NDArray[np.float64]:
        """Relative to the truth."""
        return self.value / self.truth - 1

    @property
    def rms(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.mean(self.error**2)))

    @property
    def half(self) -> NDArray[np.float64]:
        """Half-widths, relative to the truth."""
        return (self.high - self.low) / 2 / self.truth


def percents(mean: ArrayLike, low: ArrayLike, high: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """Shares without a figure (NaN), of intervals that hold; in %, median half-width, mean error, 95 % of errors."""
    rows = np.array([mean, low, high, truth], float)
    given = np.isfinite(rows[0])
    found = Judged(*rows[:, given])
    if not found.n:
        return {"null": 1.0}
    return {
        "null": float(1 - given.mean()),
        "holds": float(found.held.mean()),
        "half_pct": float(100 * np.median(found.half)),
        "bias_pct": float(100 * found.error.mean()),
        "error95_pct": float(100 * np.quantile(np.abs(found.error), 0.95)),
    }


def judged(cases: Iterable[Case]) -> Judged:
    """The cases whose figures there are."""
    rows = [(one.value, one.low, one.high, truth) for one, truth in cases if one.value is not None]
    return Judged(*np.array(rows, float).reshape(-1, 4).T)
